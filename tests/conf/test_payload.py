"""Crossplane's payloads: what crossplane itself says, and a tree that comes back from one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import crossplane
import msgspec
import pytest
from click.testing import CliRunner
from conf_readers import Disk
from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.cli.main import cli
from nginx_tune.conf.dumps import (
    Dump,
    Payload,
    encode_payload,
    is_payload,
    payload_of,
    read_payload,
)
from nginx_tune.conf.tree import ConfTree, parse_text, read_tree
from nginx_tune.errors import UsageError

HERE = Path(__file__).parent
VALID = sorted((HERE / "valid").glob("*.conf"))
OTHERS = sorted((HERE.parent / "audit").glob("*/*.conf"))
DIFFERS = {
    "braces-in-words": "crossplane ends a word at a closing brace",
    "not-utf8": "crossplane parts words at Unicode spaces",
    "byte-order-mark": "crossplane takes the mark for a part of the first name",
    "comments": "crossplane gives comments among arguments though none were asked for",
}


@each_row("path", [*VALID, *OTHERS], ids=lambda path: path.stem)
def test_the_payload_is_what_crossplane_prints(path: Path) -> None:
    ours = json.loads(encoded(read_tree(str(path), Disk())))
    theirs = crossplane.parse(str(path), check_ctx=False, check_args=False)
    same = _reasons_out(ours) == _reasons_out(theirs)
    assert same is (path.stem not in DIFFERS)


def _reasons_out(payload: dict[str, Any]) -> dict[str, Any]:
    """Each parser has its own words for what it could not read, and stops where it likes."""
    for file in payload["config"]:
        if file["errors"]:
            file["errors"], file["parsed"] = "some", "part"
    payload["errors"] = len(payload["errors"]) > 0
    return payload


@each_row("path", [one for one in VALID if one.stem != "not-utf8"], ids=lambda path: path.stem)
def test_a_tree_comes_back_with_its_places(path: Path) -> None:
    tree = read_tree(str(path), Disk())
    assert _words(_again(encoded(tree))) == _words(tree)


PIECES = st.sampled_from([*"ab{};#'\"\\ \n$", "\\\\", '\\"', "${x}", "é", "~^", "(", ")"])


@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_we_read_comes_back(text: str) -> None:
    tree = parse_text(f"http {{ if ($a = b) {{ set $x\n{text}; }} }}\nevents {{}}\n")
    if tree.complete:
        assert _words(_again(encoded(tree))) == _words(tree)


def test_a_lua_block_is_its_last_argument() -> None:
    tree = parse_text('http { set_by_lua_block $x { return "}" } }\nevents {}')
    payload = payload_of(tree)
    block = payload.config[0].parsed[0].block
    assert block is not None
    assert block[0].args == ["$x", ' return "}" ']
    assert _words(_again(encoded(tree))) == _words(tree)


STATEMENT = b'{"directive": "x", "line": 1, "args": []'
COMBINED = b'{"config": [{"file": "a", "parsed": [%s, "file": "b"}]}]}' % STATEMENT
FAILED = (
    b'{"config": [{"file": "a", "status": "failed", "errors": [{"error": "bad }"}], "parsed": []}]}'
)
DEEP = b'{"config": [{"file": "a", "parsed": ' + STATEMENT.join([b"[", *[b', "block": ['] * 5000])


@each_row(
    ("data", "reason"),
    [
        (b'{"config": 5}', "Expected `array`"),
        (b'{"config": []}', "without files"),
        (b'{"a', "not a payload of crossplane"),
        (COMBINED, "combined into one"),
        (FAILED, "could not parse a: bad }"),
        (DEEP, "not a payload"),
    ],
)
def test_what_is_no_payload_is_said_in_one_line(data: bytes, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_payload(data, "x.json")


def test_blocks_nested_without_end_are_refused() -> None:
    inner = "[]"
    for _ in range(300):
        inner = f'[{{"directive": "a", "line": 1, "args": [], "block": {inner}}}]'
    with pytest.raises(UsageError, match="nested"):
        read_payload(f'{{"config": [{{"file": "a", "parsed": {inner}}}]}}'.encode(), "x.json")


@each_row("data", [b"{{ ansible_managed }}", b"{% if a %}", b"events {}", b""])
def test_a_template_is_no_payload(data: bytes) -> None:
    assert not is_payload(data)


@each_row("way", ["a file", "standard input"])
def test_audit_finds_the_same_in_a_payload(tmp_path: Path, way: str) -> None:
    (tmp_path / "site.conf").write_text(
        "server {\n\n  listen 80;\n  location / { aio threads=gone; }\n}\n"
    )
    conf = tmp_path / "nginx.conf"
    conf.write_text("events {}\nhttp {\n  # sites\n  include site.conf;\n  tcp_nopush on;\n}\n")
    program = [sys.executable, "-m", "crossplane", "parse", str(conf)]
    parsed = subprocess.run(program, check=True, capture_output=True).stdout
    saved = tmp_path / "payload.json"
    saved.write_bytes(parsed)
    source = {"a file": str(saved), "standard input": "-"}[way]
    args = ["--facts", "none", "-f", "json"]
    there = CliRunner().invoke(cli, ["audit", str(conf), *args])
    here = CliRunner().invoke(cli, ["audit", source, *args], input=parsed)
    assert _found(here.stdout) == _found(there.stdout) != []
    assert here.exit_code == there.exit_code


def _found(findings: str) -> list[tuple[str, str, int]]:
    return [(f["rule"], f["file"], f["line"]) for f in json.loads(findings)["findings"]]


def encoded(tree: ConfTree) -> bytes:
    return encode_payload(tree)


def _again(data: bytes) -> ConfTree:
    assert msgspec.json.decode(data, type=Payload)
    dump: Dump = read_payload(data, "payload.json")
    return read_tree(dump.main, dump)


def _words(tree: ConfTree) -> list[tuple[str, tuple[str, ...], str, int]]:
    return [
        (one.name, one.args, Path(one.file).name, one.line)
        for one in tree.main.walk()
        if one.name != "if"
    ]
