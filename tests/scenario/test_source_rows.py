"""The table of what the sources state: whole, and true of scenarios, commands and claims."""

import io
import json
import re
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import click
import msgspec
import pytest
from rich.console import Console

from nginx_tune.cli.main import cli
from nginx_tune.documents.base import decode
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.scenario import Claim, RowClaim, Scenarios, SourceRow, SourceRows
from nginx_tune.experiment.scenario import variants
from nginx_tune.experiment.scenario.files import list_scenarios, read_source_rows
from nginx_tune.report.rule_page import rules_by_id
from nginx_tune.report.scenario import render_source_rows_markdown, source_rows_screen
from nginx_tune.report.screen import plain_text
from nginx_tune.report.terminal.writer import lay_out

ROOT = Path(__file__).resolve().parents[2]
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
LAST = {"A": 17, "B": 7, "C": 9, "D": 6}
ROWS = [f"{text}{number}" for text, last in LAST.items() for number in range(1, last + 1)]
SCENARIOS = {scenario.name: scenario for scenario in list_scenarios()}
TABLE = {one.row: one for one in read_source_rows(list(SCENARIOS.values())).rows}


def is_guard(claim: Claim) -> bool:
    """Whether it only keeps a scenario honest: nothing is cut short, nothing fails."""
    text = claim.expression.removeprefix("baseline(").replace(")", "")
    return claim.expect == "holds" and text in {"total.truncated == 0", "total.errors == 0"}


def test_every_row_stands_there_once_and_in_order() -> None:
    assert len(ROWS) == 39
    assert [one.row for one in read_source_rows(list(SCENARIOS.values())).rows] == ROWS


def test_no_word_of_the_table_is_misspelt() -> None:
    """A reader of TOML passes over fields that it does not know."""
    text = (resources.files("nginx_tune") / "sources" / "rows.toml").read_bytes()
    tables = msgspec.toml.decode(text)
    assert set(tables) == {"rows"}
    for one in tables["rows"]:
        assert set(one) <= set(SourceRow.__struct_fields__) - {"claims"}, one["row"]


def test_a_row_says_what_shows_it_or_why_not() -> None:
    for row in ROWS:
        one = TABLE[row]
        assert one.fact, row
        assert one.scenarios or one.set_up or one.commands, row
        assert one.missing or one.shown == "yes", row
        assert len(set(one.scenarios + one.set_up)) == len(one.scenarios + one.set_up), row
        if one.shown == "yes" and not one.set_up:
            assert one.claims or one.commands, row


def test_the_scenarios_of_a_row_claim_it() -> None:
    """Both ways, but for claims that only keep a scenario honest."""
    for row in ROWS:
        claiming = {
            name
            for name, scenario in SCENARIOS.items()
            if any(c.source_row == row and not is_guard(c) for c in scenario.claims)
        }
        one = TABLE[row]
        assert set(one.scenarios) == claiming, row
        assert [(claim.scenario, claim.name) for claim in one.claims] == [
            (name, c.name)
            for name in one.scenarios
            for c in SCENARIOS[name].claims
            if c.source_row == row
        ], row
        assert set(one.set_up) <= set(SCENARIOS), row
        for name in one.set_up:
            assert row not in {c.source_row for c in SCENARIOS[name].claims}, (row, name)


def test_no_claim_is_of_a_row_that_there_is_not() -> None:
    for scenario in SCENARIOS.values():
        assert {claim.source_row for claim in scenario.claims} <= {*ROWS, ""}, scenario.name


def test_the_commands_of_the_table_exist() -> None:
    lines = sorted({line for one in TABLE.values() for line in one.commands})
    assert [line for line in lines if not exists(line)] == []


def exists(line: str) -> bool:
    program, *words = line.split()
    if program in {"python", "ansible-playbook"}:
        return (ROOT / words[0]).is_file()
    command: click.Command | None = cli
    while words and isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    if program != "nginx-tune" or command is None:
        return False
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    if command.name == "explain" and words[0] not in rules_by_id():
        return False
    return {word for word in words if word.startswith("-")} <= options


def table(*rows: SourceRow) -> SourceRows:
    return SourceRows(rows=list(rows))


def test_claims_that_this_host_cannot_try_are_counted_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(variants, "check_nginx", lambda *_: "nginx")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scenarios = [SCENARIOS["accept-lasting"], SCENARIOS["thread-pools"]]
    (one,) = variants.untried_claims(scenarios, Nginx(version="1.22.1"), is_root=True)
    assert (one.scenario, one.reason) == ("accept-lasting", "nginx 1.18 is not installed")
    old = {variant.name for variant in scenarios[0].variants if variant.series}
    of_old = {claim.name for claim in scenarios[0].claims if old & {claim.variant, claim.against}}
    assert set(one.claims) == of_old
    assert not [*variants.untried_claims(scenarios, Nginx(version="1.18.0"), is_root=True)]
    assert len([*variants.untried_claims(scenarios, Nginx(version="1.22.1"), is_root=False)]) == 2
    text = plain_text(source_rows_screen(SourceRows(claims=20, untried=[one])))
    left = 20 - len(one.claims)
    assert (
        f"{left} of 20 claims can be tried on this host\nnginx 1.18 is not installed: accept"
        in text
    )


def test_the_screen_breaks_no_word_and_says_first_how_many() -> None:
    rows = SourceRows(rows=list(TABLE.values()))
    for width in (60, 80, 100, 200):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        lines = lay_out(source_rows_screen(rows), console, verbose=False).splitlines()
        assert max(map(len, lines)) <= width
        assert re.fullmatch(r"\d+ rows: \d+ shown, \d+ in part, \d+ not", lines[0])
        words = set(" ".join(lines).split())
        for row in rows.rows:
            assert set(row.fact.split()) <= words, (row.row, width)
    piped = plain_text(source_rows_screen(rows))
    assert {word for row in rows.rows for word in row.fact.split()} <= set(piped.split())


def test_nothing_of_a_row_is_lost_on_the_screen() -> None:
    one = SourceRow(
        row="A1", fact="f1 f2 f3 " * 9, figure="g1 g2", shown="part", scenarios=["one", "two"],
        set_up=["three"], commands=["nginx-tune x --y"], missing="m1 m2 " * 20,
        claims=[
            RowClaim(scenario="one", name="a | b", expected="x"),
            RowClaim(scenario="one", name="c", expected="y"),
            RowClaim(scenario="two", name="d", expected="z"),
        ],
    )  # fmt: skip
    words = plain_text(source_rows_screen(table(one))).split()
    assert (words.count("f1"), words.count("m2")) == (9, 20)
    assert "1 rows: 0 shown, 1 in part, 0 not" in plain_text(source_rows_screen(table(one)))
    wide = plain_text(source_rows_screen(table(one)))
    assert "one (2 claims); two (1 claim); set-up of three; nginx-tune x --y. m1" in wide
    marked = render_source_rows_markdown(table(one))
    assert "one: “a \\| b”, “c”; two: “d”; set-up of three" in marked
    lines = [line.replace("\\|", "") for line in marked.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {6}


def test_the_list_and_the_rows_come_in_three_forms(run_cli: RunCli) -> None:
    said = run_cli("scenario", "list", "--rows", "-f", "json")
    assert said.returncode == 0, said.stderr
    rows = decode(SourceRows, said.stdout.encode()).rows
    assert rows == list(TABLE.values())
    assert any(claim.name for row in rows for claim in row.claims)
    plain = run_cli("scenario", "list", "--rows").stdout
    assert plain.startswith("39 rows: ")
    assert "\n\nrow  fact" in plain
    found = decode(Scenarios, run_cli("scenario", "list", "-f", "json").stdout.encode())
    assert [one.name for one in found.scenarios] == sorted(SCENARIOS)
    assert json.loads(run_cli("schema", "source_rows").stdout)["$id"] == "nginx-tune/source_rows/1"
