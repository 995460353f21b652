"""What commands print on a narrow terminal: whole words and commands, no line too wide."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import on_terminal
from recorded_hosts import facts_file

from nginx_tune import cli
from nginx_tune.documents.base import encode
from nginx_tune.documents.measured_server import ServerMeasurement, ServerSecond
from nginx_tune.documents.observation import Observation
from nginx_tune.report.folding import fold, fold_text

FACTS = facts_file("sata-ssd")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
BROAD = "inspect --host nowhere.json --capture somewhere.json --path /srv/a/rather/long/directory"


def _on_terminal(width: int, *arguments: str) -> list[str]:
    return _ESCAPE.sub("", on_terminal(width, *arguments)).splitlines()


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    "command",
    ["doctor", "explain", "explain thread-pools", "explain hot.p99", "scenario list", BROAD],
)
def test_no_line_is_wider_than_the_terminal(command: str, width: int) -> None:
    lines = _on_terminal(width, *command.split())
    assert lines
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    """Results of commands, with what makes their lines long."""
    second = ServerSecond(second=0, cpu_seconds=0.5)
    observation = Observation(
        pid=1, duration_seconds=2.0, worker_processes=2,
        server=ServerMeasurement(cpu_seconds=1.0, series=[second]),
    )  # fmt: skip
    (tmp_path / "seen.json").write_bytes(encode(observation))
    request = '127.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "-"'
    (tmp_path / "access.log").write_text(f"{request}\n" * 9)
    return tmp_path


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    "command",
    [
        "compare {0}/seen.json {0}/seen.json",
        "learn {0}/access.log",
        "probe http://127.0.0.1:1/ --allow-live --duration 100ms --warmup 0s --rate 50",
        "lab list",
    ],
)
def test_results_are_folded_too(
    command: str, width: int, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = seen / f"cache-of-{'x' * 60}"
    (cache / "nginx-tune/lab").mkdir(mode=0o700, parents=True)
    (cache / "nginx-tune/lab/0123456789abcdef01234567.img").write_bytes(b"x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    lines = _on_terminal(width, "-q", *command.format(seen).split())
    assert len(lines) > 1
    assert "error" not in lines[0]
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


@pytest.mark.parametrize("form", ["diff", "md", "json"])
def test_no_result_steers_the_terminal(form: str, seen: Path) -> None:
    """A diff has the bytes of a configuration; a pipe gets them, a terminal sees them."""
    conf = seen / "nginx.conf"
    name = "a\x1b]0;owned\x07\x1b[31m\xc2\x9b2J"
    text = f"events {{}}\nhttp {{ access_log /a.log;\n server_name_in_redirect off; # {name}\n}}\n"
    conf.write_bytes(text.encode("latin-1"))
    (seen / "facts.json").write_bytes(FACTS.read_bytes())
    asked = ("plan", str(conf), "--facts", str(seen / "facts.json"), "-f", form)
    lines = "\n".join(_on_terminal(80, "-q", *asked))
    assert "access_log" in lines
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lines)
    if form != "json":
        assert "a\\x1b]0;owned\\x07\\x1b[31m" in lines
        command = [sys.executable, "-m", "nginx_tune", "-q", *asked]
        piped = subprocess.run(command, capture_output=True, check=True).stdout
        assert (b"\x1b]0;owned\x07" in piped) is (form == "diff"), "a page is not for patch"


def test_every_result_for_people_knows_the_terminal() -> None:
    """What a command writes for a console goes through a writer that folds it."""
    folding = re.compile(r"screen_bytes|text_bytes|width=|_console|shown\(|(?<=: )console$")
    for file in sorted(Path(cli.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "console":
                        said = f"{file.stem}: {ast.unparse(value)}"
                        assert folding.search(said), said


def test_a_pipe_gets_lines_as_they_are(run_cli: object) -> None:
    told = run_cli(*BROAD.split())  # type: ignore[operator]
    assert len(told.stderr.splitlines()) == 1


def test_commands_stay_whole_or_go_on_as_a_shell_takes_them() -> None:
    said = "not counted; for waiting; sysctl kernel.task_delayacct=1, then reload nginx"
    assert "  sysctl kernel.task_delayacct=1, then" in fold(said, 42)
    long = "nginx-tune validate --plan plan.json --max-time 30min --require 'hot.p99 <= 50ms'"
    folded = fold(f"what to do: {long}; and then", 50)
    assert max(map(len, folded)) <= 50
    assert folded[1] == "  nginx-tune validate --plan plan.json \\"
    assert "--require 'hot.p99 <= 50ms'" in "\n".join(folded)
    assert folded[0] == "what to do:"


def test_a_filled_paragraph_is_filled_anew_and_cells_keep_their_column() -> None:
    first = "one two three four five six seven eight nine ten eleven twelve thirteen"
    page = f"Why\n  {first}\n  fourteen fifteen and so on"
    assert fold_text(page, 60).splitlines()[2].startswith("  twelve thirteen fourteen")
    row = "name   ok     some words that go on and on until there is no room left for them here"
    assert fold_text(row, 60).splitlines()[1].startswith(" " * 14 + "room left")


def test_text_for_an_ascii_terminal_is_ascii() -> None:
    assert on_terminal(80, "explain", "loop-blocked-on-disk", encoding="ascii").isascii()
    told = on_terminal(80, "explain", "hot.p99", encoding="ascii")
    assert told.isascii()
    assert "\\u" not in told
    assert "..." in told or "~" in told


def test_a_plan_on_a_terminal_breaks_no_word_of_its_reasons(seen: Path) -> None:
    conf = seen / "nginx.conf"
    conf.write_text("events {}\nhttp { access_log /a.log; server { listen 81; root /srv; } }\n")
    asked = ("plan", str(conf), "--facts", str(FACTS), "--kind", "media")
    lines = _on_terminal(60, "-q", *asked)
    reasons = [line for line in lines if line.startswith("#")]
    assert reasons[0].endswith("in 1 file; nothing is written yet")
    assert [line for line in reasons if len(line) > 60 and " " in line[2:].strip()] == []
    same = [_on_terminal(60, "-q", *asked, "-f", form) for form in ("md", "markdown")]
    assert same[0] == same[1]


def test_a_page_is_not_poured_into_a_terminal(seen: Path) -> None:
    lines = _on_terminal(80, "report", str(seen / "seen.json"))
    assert lines[0] == "nginx-tune: a page is HTML and is not written to a terminal"
    assert "-o report.html" in lines[-1]
    program = [sys.executable, "-m", "nginx_tune", "report", str(seen / "seen.json")]
    piped = subprocess.run(program, capture_output=True, check=True).stdout
    assert piped.startswith(b"<!DOCTYPE html>")
