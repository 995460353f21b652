"""Our reading beside nginx's own and beside crossplane's."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import crossplane
import pytest
from conf_readers import Disk
from free_ports import free_port
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows import each_row
from started import serving
from tiers import draws

from nginx_tune.conf.directive import Block
from nginx_tune.conf.parser import read_tokens
from nginx_tune.conf.tree import read_tree

HERE = Path(__file__).parent
VALID = sorted((HERE / "valid").glob("*.conf"))
BROKEN = sorted((HERE / "broken").glob("*.conf"))

CROSSPLANE_IS_WRONG = {
    "braces-in-words": "ends a word at a closing brace",
    "not-utf8": "parts words at Unicode spaces",
    "quotes": "does not resolve escaped backslashes",
    "escapes": "keeps \\t and \\n as they are written",
}


def _nginx_accepts(path: Path, tmp_path: Path) -> bool:
    tmp_path.joinpath("logs").mkdir(exist_ok=True)
    run = subprocess.run(
        ["/usr/sbin/nginx", "-t", "-q", "-p", tmp_path, "-c", path, "-g", f"pid {tmp_path}/pid;"],
        capture_output=True,
        check=False,
    )
    return run.returncode == 0


@pytest.mark.needs("nginx", "root")
@each_row("path", VALID, ids=lambda path: path.stem)
def test_nginx_accepts_what_we_call_valid(path: Path, tmp_path: Path) -> None:
    assert _nginx_accepts(path, tmp_path)


@pytest.mark.needs("nginx", "root")
@each_row("path", BROKEN, ids=lambda path: path.stem)
def test_nginx_refuses_what_we_list_as_unparsed(path: Path, tmp_path: Path) -> None:
    assert not _nginx_accepts(path, tmp_path)


@pytest.mark.needs("nginx")
def test_debians_own_tree_is_read_whole() -> None:
    tree = read_tree("/etc/nginx/nginx.conf", Disk())
    assert tree.complete, tree.unparsed


PIECES = st.sampled_from(
    [
        *"ab19/.^~:=,",
        "\\",
        "\\\\",
        '"',
        "'",
        "{",
        "}",
        "${x}",
        "#",
        " ",
        "\t",
        "\n",
        ";",
        "é",
        "\u00a0",
    ]
)


@pytest.mark.needs("nginx", "root")
@settings(max_examples=draws(50, 1000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, max_size=14).map("".join))
def test_whatever_nginx_accepts_we_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text(f"events {{}}\nhttp {{ map $uri $x {{ key {text}; }} }}\n")
    if _nginx_accepts(path, tmp_path):
        tree = read_tree(str(path), Disk())
        assert tree.complete, (text, tree.unparsed)


WORDS = [
    "plain", "a}b", "it's", 'in"side"', '"two words"', "'two words'", '"tab\\tnew\\nret\\rend"',
    "'a\\'b'", '"a\\"b"', '"a\'b"', "a\\;b", "a\\{b", "a\\ b", "a\\\\b", '"a\\\\"', "a\\qb",
    "a#b", '"#b"', "x=1,2", "é", "a\u00a0b", '"{;}"', "'\n'", "a\\tb", "a\\'b", "~^/x(y|z)+",
]  # fmt: skip


@pytest.mark.needs("nginx", "root")
def test_words_are_what_nginx_makes_of_them(tmp_path: Path) -> None:
    """nginx answers with the very word: the escapes are resolved as it resolves them."""
    port = free_port()
    places = "".join(f"location = /{n} {{ return 200 {w}; }}\n" for n, w in enumerate(WORDS))
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
        f"events {{}} http {{ access_log off; server {{ listen 127.0.0.1:{port};\n{places} }} }}"
    )
    ours = [d.args[1] for d in read_tree(str(conf), Disk()).main.walk() if d.name == "return"]
    with serving(["/usr/sbin/nginx", "-p", tmp_path, "-c", conf], port):
        theirs = [_body(port, f"/{n}") for n in range(len(WORDS))]
    assert ours == theirs


def _body(port: int, path: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        data = b"".join(iter(lambda: peer.recv(65536), b""))
    return data.partition(b"\r\n\r\n")[2].decode()


@each_row("path", VALID, ids=lambda path: path.stem)
def test_crossplane_sees_the_same_tree(path: Path) -> None:
    theirs = crossplane.parse(str(path), check_ctx=False, check_args=False, combine=True)
    same = theirs["status"] == "ok" and _ours(read_tree(str(path), Disk()).main) == _theirs(
        theirs["config"][0]["parsed"]
    )
    assert same is (path.stem not in CROSSPLANE_IS_WRONG)


def _ours(block: Block) -> list[Any]:
    return [
        (
            d.name,
            d.line,
            _without_parentheses(d.name, list(d.args)),
            _ours(d.block) if d.block else None,
        )
        for d in block
    ]


def _without_parentheses(name: str, args: list[str]) -> list[str]:
    if name != "if" or not args:
        return args
    args[0] = args[0].removeprefix("(")
    args[-1] = args[-1].removesuffix(")")
    return [arg for arg in args if arg]


def _theirs(parsed: list[dict[str, Any]]) -> list[Any]:
    return [
        (d["directive"], d["line"], d["args"], _theirs(d["block"]) if "block" in d else None)
        for d in parsed
        if d["directive"] != "#"
    ]


@given(st.text(alphabet="ab \n;{}\"'\\$#", max_size=60))
def test_tokens_cover_the_text_in_order(text: str) -> None:
    at = 0
    try:
        for mark, _, _, start, end in read_tokens(text):
            assert at <= start < end <= len(text)
            at = end
            if mark:
                assert text[start:end] == mark
    except Exception as error:  # noqa: BLE001  # only our own fault may stop it
        assert type(error).__name__ == "ParseFault"  # noqa: PT017
