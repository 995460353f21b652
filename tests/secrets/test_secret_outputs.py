"""No command shows a secret that its inputs hold, in any form of its output or on stderr."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import RunCli
from corpus import Way, forms_of, ways
from rows import each_row
from tiers import REPEAT
from twins import twin

from nginx_tune.cli.audit_formats import FORMATS
from nginx_tune.conf.secret_values import redact_text
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.inspection import Capture, Request
from nginx_tune.host.live import LiveHost
from nginx_tune.host.recording import redact
from nginx_tune.observe.inspect.inspection import read_configuration
from nginx_tune.report.terminal.saying import shown_line

PACKAGE = Path(__file__).resolve().parents[2] / "nginx_tune"
WAYS = [way for way in ways() if way.place != "whole"]


def _assert_absent(secret: str, text: str, where: str) -> None:
    for form in forms_of(secret):
        assert form not in text, f"{where} shows {form!r} ({REPEAT}): {text[:2000]}"


def _write_tree(folder: Path, secret: str) -> Path:
    """A configuration with every way in a file of its own, and some files included by them."""
    (folder / "conf.d").mkdir()
    lines: dict[str, list[str]] = {}
    for number, way in enumerate(WAYS):
        file = folder / "conf.d" / f"{number}.inc"
        file.write_text(Way("", "whole", way.text).configuration(secret))
        lines.setdefault(way.place, []).append(f"include {file};")
    at = {place: "\n".join(found) for place, found in lines.items()}
    conf = folder / "nginx.conf"
    conf.write_text(
        f"{at['main']}\nevents {{}}\nhttp {{\n{at['http']}\nserver {{\nlisten 127.0.0.1:1;\n"
        f"{at['server']}\nlocation / {{\nroot /srv;\naio threads=absent;\n{at['location']}\n}}\n"
        "}\n"
        f"}}\nstream {{\n{at['stream']}\n}}\nmail {{\n{at['mail']}\n}}\nrtmp {{\n{at['rtmp']}\n}}\n"
    )
    return conf


def test_a_capture_of_all_ways(tmp_path: Path, drawn_secrets: list[str]) -> None:
    for number, secret in enumerate(drawn_secrets):
        folder = tmp_path / str(number)
        folder.mkdir()
        conf = _write_tree(folder, secret)
        answers = read_configuration(LiveHost(), Nginx(conf_path=str(conf)))
        assert len(answers) > len(WAYS)
        capture = redact(Capture(tool_version="0", request=Request(), answers=answers))
        _assert_absent(secret, encode(capture).decode(), "the capture")


@each_row("command", ["audit", "recommend"])
def test_commands_that_read_a_configuration(
    command: str, run_cli: RunCli, tmp_path: Path, drawn_secrets: list[str]
) -> None:
    for number in (0, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        secret = drawn_secrets[number]
        conf = _write_tree(folder, secret)
        forms = FORMATS if command == "audit" else ("console", "json")
        files = [part for form in forms for part in ("-f", f"{form}={folder / form}.out")]
        words = [command, "-c", conf, "--nginx", "/usr/sbin/nginx", *files]
        run = run_cli(*(word for word in words if command == "audit" or word != "unused"))
        assert "internal error" not in run.stderr
        written = [folder / f"{form}.out" for form in forms]
        assert all(file.stat().st_size for file in written), run.stderr
        for file in written:
            _assert_absent(secret, file.read_text(), f"{command} in {file.name}")
        _assert_absent(secret, run.stdout + run.stderr, command)


@pytest.mark.needs("root", "nginx")
def test_what_nginx_says_of_a_tree(
    run_cli: RunCli, tmp_path: Path, drawn_secrets: list[str]
) -> None:
    secret = drawn_secrets[0]
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file").write_text("x")
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        "events {}\nhttp {\nlog_format a b;\n"
        f"upstream u {{ server 127.0.0.1:1 {secret}; }}\n"
        f"server {{ listen 127.0.0.1:8081; root {tmp_path}/root; }}\n}}\n"
    )
    run = run_cli("audit", conf, "--test", "-f", "json", "--nginx", "/usr/sbin/nginx")
    said = json.loads(run.stdout)["nginx_test"]["messages"]
    assert any(f" in {conf}:4" in line for line in said), "file and line stay"
    _assert_absent(secret, run.stdout + run.stderr, "audit --test")
    run = run_cli("validate", conf, "--against", twin(conf), "--pairs", "1", "--no-store")
    assert run.returncode == 3
    _assert_absent(secret, run.stdout + run.stderr, "validate")


@pytest.mark.needs("probe")
def test_access_logs(run_cli: RunCli, tmp_path: Path, drawn_secrets: list[str]) -> None:
    secret = drawn_secrets[0]
    log, manifest = tmp_path / "access.log", tmp_path / "manifest"
    lines = [
        f'192.0.2.{n % 9} - {secret} [22/Nov/2026:10:00:{n // 6:02d} +0000] "GET /a{n % 7}'
        f'?t={secret} HTTP/1.1" 200 1234 "https://example.com/?s={secret}" "agent {secret}"'
        for n in range(300)
    ]
    log.write_text("\n".join([*lines, f"no line of a log: token={secret}", ""]))
    for form in ("console", "json"):
        for extra in ([], ["--keep-paths"], ["--with-query"]):
            run = run_cli("-v", "learn", log, "-f", form, "--manifest", manifest, *extra)
            assert run.returncode == 0, run.stderr
            _assert_absent(secret, run.stdout + run.stderr, "learn")
            _assert_absent(secret, manifest.read_text(), f"the manifest {extra}")


ERRORS = [
    "cannot read https://user:@S@@example.com/a.json: refused",
    "GET /api?token=@S@ HTTP/1.1: 403",
    "GET /api?@S@ HTTP/1.1: 403",
    "https://example.com/a?q=1&x=@S@: no answer",
    "sent Authorization: Basic @B@ and got 401",
    "Authorization: Bearer @S@",
    "Cookie: id=@S@; b=2",
    "env DB_PASSWORD=@S@ was refused",
    "mysql --password=@S@ failed",
    '{"client_secret": "@S@"}',
    "-----BEGIN PRIVATE KEY-----\n@S@\n-----END PRIVATE KEY-----",
    "redis://:@S@@127.0.0.1:6379/0 is gone",
    'nginx did not start: invalid parameter "@S@" in /nowhere/nginx.conf:3',
    'nginx did not start: unknown "@S@" variable',
    '/usr/sbin/nginx -t rejects it: invalid value "@S@" in /nowhere/nginx.conf:3',
    'the stub has exited: invalid URL prefix in "http://a:@S@@b"',
]


@each_row("error", ERRORS)
def test_error_lines(error: str, drawn_secrets: list[str]) -> None:
    for secret in drawn_secrets:
        text = Way("", "whole", error).configuration(secret)
        shown = shown_line(text)
        _assert_absent(secret, shown, "stderr")
        if "nginx.conf:3" in error:
            assert shown.endswith("/nowhere/nginx.conf:3")
        once = redact_text(text)
        assert redact_text(once) == once


STAY = [
    '/etc/nginx/sites-enabled/a-1.conf:12: unexpected end of file, expecting "}"',
    "--rate '10x' is not a rate (for example 100, 100,200 or 100-500)",
    "127.0.0.1 port 8080 is not a server that nginx-tune started",
    "nginx did not start: bind() to 0.0.0.0:80 failed (98: Address already in use)",
    "http://127.0.0.1:8080/a/b.html: 404",
    "is this right? yes: ratio(hot.p99) <= 0.5",
    "key = value of keys_zone=main:10m max_size=10g, cache_key $uri",
    "3 cookies and a token were there, the author said",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "stored as run 20261122-101500-3f2a9b1c",
]  # fmt: skip


@each_row("text", STAY)
def test_lines_that_hold_none_stay(text: str) -> None:
    assert shown_line(text) == text


_SAYS = {"report/terminal/saying.py", "host/collect.py"}
_MAKERS = {
    "Finding": {"audit/engine.py"},
    "NginxTest": {"experiment/trial.py"},
    "ArmText": {
        "experiment/validate/validation.py",
        "experiment/scenario/run.py",
        "change/generate/nginx_conf.py",
    },
    "Capture": {"observe/inspect/inspection.py"},
}
_RAW = {"audit/rules/ob_no_status.py", "conf/secrets.py"}


@pytest.mark.long
def test_nothing_in_the_package_goes_past_what_leaves_secrets_out() -> None:
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        nodes = list(ast.walk(ast.parse(path.read_text())))
        if name not in _SAYS:
            found += (f"{name}:{line} says {text}" for line, text in _said(nodes))
        found += (
            f"{name}:{line} makes a {made}"
            for line, made in _made(nodes)
            if name not in _MAKERS[made]
        )
        if name not in _RAW:
            found += (f"{name}:{line} puts raw words into a text" for line in _raw_words(nodes))
    assert not found, "\n".join(found)


def _said(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Only ``terminal/saying`` prints to standard error; progress and usage pages go through it.

    But for the page that click writes for a group that is called without a command.
    """
    for call in (one for one in nodes if isinstance(one, ast.Call)):
        to_stderr = any(
            word.arg == "err"
            and not (isinstance(word.value, ast.Constant) and not word.value.value)
            for word in call.keywords
        )
        if to_stderr or _prints(call.func):
            text = ast.unparse(call)[:80]
            if "NoArgsIsHelp" not in text and "format_message()" not in text:
                yield call.lineno, text


def _prints(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id == "print"
    written = isinstance(called, ast.Attribute) and called.attr == "write"
    return written and ast.unparse(called) == "sys.stderr.write"


def _made(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """What a new writer of such a document quotes has to pass through functions of ``conf``."""
    documents = {
        alias.name
        for one in nodes
        if isinstance(one, ast.ImportFrom)
        and (one.module or "").startswith("nginx_tune.documents.")
        for alias in one.names
    }
    for call in (one for one in nodes if isinstance(one, ast.Call)):
        made = call.func.id if isinstance(call.func, ast.Name) else ""
        if made in _MAKERS and made in documents:
            yield call.lineno, made


def _raw_words(nodes: list[ast.AST]) -> Iterator[int]:
    """``str(directive)`` is what may be shown; ``words`` is for looking into it."""
    for text in (one for one in nodes if isinstance(one, ast.JoinedStr)):
        for part in ast.walk(text):
            if isinstance(part, ast.Attribute) and part.attr == "words":
                yield text.lineno
