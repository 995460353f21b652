"""Configurations that are mostly data, with bounds brought down to the size of a test."""

from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from nginx_tune.cli.main import main
from nginx_tune.conf import parser
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import parse_text
from nginx_tune.conf.variables import MOST_VALUES, Variables
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx import subject

LINES = 2000
VALUES = "".join(f"/a{number} /b;" for number in range(LINES))
MAP = f"events {{}}\nhttp {{\nmap $uri $to {{\n{VALUES}\n}}\n}}\n"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is larger than any other file may be."""
    path = tmp_path / "nginx.conf"
    path.write_text(MAP)
    monkeypatch.setitem(LiveHost.read_bytes.__kwdefaults__, "limit_bytes", len(MAP) - 1)
    return path


def audited(path: Path) -> int:
    return main(["audit", str(path), "--facts", "none"])


def test_it_is_audited(conf: Path) -> None:
    assert audited(conf) == 0


def test_so_is_one_that_is_included(conf: Path) -> None:
    site = conf.with_name("site.conf")
    site.write_text(f"include {conf};")
    assert audited(site) == 0


def test_there_is_a_bound_for_it_too(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subject, "MOST_BYTES", len(MAP) - 1)
    assert audited(conf) == 2
    assert "cannot read: larger than" in capsys.readouterr().err
    site = conf.with_name("site.conf")
    site.write_text(f"include {conf};")
    assert audited(site) == 3
    expected = f"{site}:1: not parsed: include {conf}: cannot read: larger than"
    assert expected in capsys.readouterr().out


@each_row(
    ("bound", "value", "reason"),
    [
        ("MOST_DIRECTIVES", LINES, f"more than {LINES} directives"),
        ("MOST_TOKENS", 3 * LINES, f"more than {3 * LINES} words"),
    ],
)
def test_past_what_is_parsed_it_is_listed(
    conf: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bound: str,
    value: int,
    reason: str,
) -> None:
    monkeypatch.setattr(parser, bound, value)
    assert audited(conf) == 3
    assert f"{conf}:4: not parsed: {reason}" in capsys.readouterr().out


def test_what_uses_a_large_map_is_judged_without_all_of_its_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = "".join(f"/a{number} /b{number}; " for number in range(20 * MOST_VALUES))
    use = "location / { root /srv$to; aio threads=$to; proxy_pass http://$to; }"
    tree = parse_text(f"events {{}} http {{ map $uri $to {{ {lines} }} server {{ {use} }} }}")
    asked: list[int] = []
    entry = Variables._entry

    def counted(*arguments: Any) -> Any:
        asked.append(1)
        return entry(*arguments)

    monkeypatch.setattr(Variables, "_entry", counted)
    (location,) = [one for one in scopes(tree) if one.kind == "location"]
    values = Variables(tree).possible("/srv$to", location)
    assert len(asked) <= MOST_VALUES + 1
    assert len(values.known) == MOST_VALUES
    assert not values.complete
