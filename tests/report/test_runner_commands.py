"""No output gives a command to a CI service's runner, whatever names and values a tree holds.

GitHub's runner reads each line of a log: ``::NAME`` at its beginning, spaces aside, and
``##[NAME]`` anywhere in it (actions/runner, ActionCommand.cs).
"""

import json
import os
import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from command_line import RunCli
from recorded_hosts import facts_file
from rows import each_row

from nginx_tune.cli.audit_formats import FORMATS
from nginx_tune.cli.plan import FORMATS as PLAN_FORMATS
from nginx_tune.report.text import markdown_block, plain, xml_text

FACTS = facts_file("raid10-4hdd")
EVIL = (
    "a\n::error file=x::pwned\r::warning::b\u2028::notice::c\x85 ::debug::d ##[error]e##vso[task]f"
)
CONF = f"""events {{}}
http {{
    include conf.d/*.conf; include "missing.d/{EVIL}";
    log_format own '
::error file=y::pwned
  ##[error]pwned';
    server {{
        listen 127.0.0.1:8080; sendfile off; "::error::{EVIL}" on;
        location / {{ root "/srv/{EVIL}"; aio "threads=x{EVIL}"; tcp_nopush on; }}
    }}
}}
"""
_ENDS = re.compile(r"\r\n|[\n\r\x0b\x0c\x85\u2028\u2029]")
_PAUSE = re.compile(r"(?m)^::stop-commands::([0-9a-f]{32})\n(?s:.*?)\n::\1::$")
_OWN = re.compile(r"::(?:error|warning|notice) [a-z]+=[^:\r\n]*::(?!.*%(?!25|0A|0D))")


def commands(said: str) -> list[str]:
    """The lines that a runner would obey."""
    heard = _PAUSE.sub("", said)
    lines = _ENDS.split(heard)
    return [one for one in lines if one.lstrip().startswith("::") or re.search(r"##[a-z]*\[", one)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "conf.d").mkdir()
    name = EVIL.replace("/", "")
    (tmp_path / "conf.d" / f"{name}.conf").write_text('server { listen 1; aio "threads=::y"; }\n')
    (tmp_path / "conf.d" / f"{name}2.conf").write_text(f'server {{ "{EVIL}')
    (tmp_path / "nginx.conf").write_text(CONF)
    (tmp_path / "::error::main.conf").write_text(CONF)
    return tmp_path


def test_the_hostile_tree_would_give_commands(tree: Path) -> None:
    """What the other tests look for is there to be found."""
    assert len(commands((tree / "nginx.conf").read_text())) > 10
    assert commands("  ::error::x") == ["  ::error::x"]
    assert commands("x ##[error]y") == ["x ##[error]y"]


@each_row("main", ["nginx.conf", "::error::main.conf"])
@each_row("form", FORMATS)
def test_an_audit_gives_the_runner_no_command(
    run_cli: RunCli, tree: Path, form: str, main: str
) -> None:
    said = run_cli("-v", "audit", "-c", main, "--facts", "none", "-f", form, cwd=tree)
    assert said.returncode == 3, said.stderr
    assert "pwned" in said.stdout or form == "prometheus", "what is wrong is told"
    assert commands(said.stderr) == []
    if form == "github":
        lines = said.stdout.splitlines()
        assert lines
        assert all(_OWN.match(line) for line in lines), lines
        return
    assert commands(said.stdout) == []
    if form in {"json", "sarif", "gitlab"}:
        json.loads(said.stdout)
    if form in {"junit", "checkstyle"}:
        names = [one for at in ET.fromstring(said.stdout).iter() for one in at.attrib.values()]  # noqa: S314  # our own
        assert any("a\n::error file=x::pwned\\x0d" in one for one in names), "the name is kept"


@each_row("form", PLAN_FORMATS)
def test_a_plan_gives_the_runner_no_command(run_cli: RunCli, tree: Path, form: str) -> None:
    (tree / "conf.d" / f"{EVIL.replace('/', '')}2.conf").unlink(missing_ok=True)
    (tree / "nginx.conf").write_text(CONF.replace(f'"::error::{EVIL}" on;', ""))
    asked = ("plan", "nginx.conf", "--facts", FACTS, "--kind", "static", "-f", form)
    said = run_cli(*asked, cwd=tree, env={"GITHUB_ACTIONS": "true"})
    assert said.returncode == 4, said.stderr  # it includes what is not there
    assert commands(said.stdout) == commands(said.stderr) == []


@pytest.mark.long
def test_a_diff_has_its_bytes_and_the_runner_is_told_to_listen_to_none(tree: Path) -> None:
    included = f'    include conf.d/*.conf; include "missing.d/{EVIL}";\n'
    conf = CONF.replace(f'"::error::{EVIL}" on;', "").replace(included, "")
    (tree / "nginx.conf").write_text(conf)
    asked = [
        sys.executable,
        "-m",
        "nginx_tune",
        "-q",
        "plan",
        tree / "nginx.conf",
        "--facts",
        FACTS,
    ]
    runner = {**os.environ, "GITHUB_ACTIONS": "true"}
    bare, told = (
        subprocess.run(asked, capture_output=True, check=True, env=env).stdout
        for env in ({**os.environ, "GITHUB_ACTIONS": ""}, runner)
    )
    assert _PAUSE.search(told.decode())
    assert told.split(b"\n", 1)[1].rsplit(b"\n", 2)[0] + b"\n" == bare
    patch = ["patch", f"-p{len(tree.parts)}", "-d", tree, "-o", "-"]
    took = subprocess.run(patch, input=told, capture_output=True, check=False)
    assert took.returncode == 0, took.stderr
    with (tree / "kept").open("wb") as file:
        subprocess.run(asked, check=True, stdout=file, env=runner)
    assert (tree / "kept").read_bytes() == bare, "a file gets the bytes alone"


def test_an_edited_generated_file_gives_the_runner_no_command(run_cli: RunCli, tree: Path) -> None:
    (tree / EVIL.replace("/", "")).write_text(CONF)
    asked = ("--facts", FACTS, "--check", EVIL.replace("/", ""))
    said = run_cli("generate", *asked, cwd=tree)
    assert said.returncode == 1, said.stderr
    assert "pwned" in said.stdout
    assert commands(said.stdout) == commands(said.stderr) == []


@each_row(
    "asked",
    [
        (EVIL,), (f"--{EVIL}",), ("audit", f"--{EVIL}"), ("audit", "-c", EVIL),
        ("audit", "-c", "nginx.conf", "-f", EVIL), ("plan", EVIL), ("explain", EVIL),
        ("audit", "-c", "nginx.conf", "--facts", EVIL), ("--config", EVIL, "audit"),
        ("report", EVIL), ("runs", "show", EVIL), ("validate", "-c", EVIL),
    ],
    ids=lambda asked: ascii(asked)[:40],
)  # fmt: skip
def test_an_error_gives_the_runner_no_command(
    run_cli: RunCli, tree: Path, asked: tuple[str, ...]
) -> None:
    said = run_cli(*asked, cwd=tree)
    assert said.returncode != 0
    assert said.stderr.strip()
    assert commands(said.stdout) == commands(said.stderr) == []


def test_every_unseen_character_is_shown() -> None:
    """By this Python's own tables: controls but the tab, formats, ends of lines."""
    unseen = {"Cc", "Cf", "Zl", "Zp"}
    every = [chr(number) for number in range(0x110000) if number not in range(0xD800, 0xE000)]
    for one in every:
        if one != "\t" and unicodedata.category(one) in unseen:
            shown = plain(f"a{one}b")
            assert shown.isascii(), hex(ord(one))
            assert shown.isprintable(), hex(ord(one))
    kept = "".join(one for one in every if one.isalnum() and unicodedata.category(one) != "Lo")
    assert plain(kept) == kept
    assert plain("\t–→é漢字א") == "\t–→é漢字א"
    assert plain("a\u200fb\u00adc\ufeffd\U000e0041e\x1b\n\x9b") == (
        "a\\u200fb\\xadc\\ufeffd\\U000e0041e\\x1b\\x0a\\x9b"
    )


def test_markup_ends_no_line_of_its_own() -> None:
    assert xml_text("a\n::b\r##[x]") == "a&#10;::b\\x0d##&#91;x]"
    block = markdown_block("```\n````x\x1b", "diff")
    assert block == "`````diff\n```\n````x\\x1b\n`````\n"
