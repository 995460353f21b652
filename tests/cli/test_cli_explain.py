"""``nginx-tune explain`` and the pages under docs/rules/."""

from pathlib import Path
from typing import get_args

import pytest
from command_line import RunCli
from rows import each_row

from nginx_tune.decide.engine import ALL as DECISIONS
from nginx_tune.documents.decisions import DecisionId
from nginx_tune.report.decisions import decision_pages
from nginx_tune.report.rule_page import EVERY, render_index, render_markdown_page, render_text_page

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "rules"


def test_the_pages_in_docs_are_current() -> None:
    wanted = {f"{rule.id}.md": render_markdown_page(rule) for rule in EVERY}
    wanted["README.md"] = render_index(EVERY)
    found = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    assert found == wanted, "run: python tools/write-rule-pages"


@each_row("rule", EVERY)
def test_a_page_has_every_section_and_no_long_line(rule: object) -> None:
    page = render_markdown_page(rule)  # type: ignore[arg-type]
    for section in ("## Why", "## Fires on", "## Silent on", "## Fix", "## Sources"):
        assert section in page
    assert "```nginx\n\n" not in page
    text = render_text_page(rule)  # type: ignore[arg-type]
    assert text.startswith(f"{rule.id}: ")  # type: ignore[attr-defined]
    assert "\x1b" not in text


def test_everything_is_listed_by_kind(run_cli: RunCli) -> None:
    listed = run_cli("explain")
    assert listed.returncode == 0
    assert run_cli("explain", "--list").stdout == listed.stdout
    sections = {
        lines[0]: lines[1:] for part in listed.stdout.split("\n\n") if (lines := part.splitlines())
    }
    assert list(sections) == ["rules", "decisions", "scenarios", "causes", "metrics"]
    assert len(sections["rules"]) == len(EVERY)
    assert len(sections["decisions"]) == len(DECISIONS)
    assert any(line.startswith("  server.pool_overflow ") for line in sections["metrics"])


def test_decisions_have_pages(run_cli: RunCli) -> None:
    assert len(decision_pages()) == len(DECISIONS)
    run = run_cli("explain", "per-disk-pools")
    assert run.returncode == 0
    assert "nginx-tune recommend" in run.stdout
    assert "(A16)" not in run.stdout


@each_row(
    ("arguments", "says"),
    [
        (["io-pool-var-unresolved", "--list"], "give a NAME or --list"),
        (["hot.ttbf.p99"], "is hot.ttfb.p99 meant?"),
        (["p99"], "is hot.p99 meant?"),
        (["limit_req"], "'limit_req' (nginx-tune explain lists what there is)"),
        (["P99"], "is hot.p99 meant?"),
        (["p95"], "is hot.p99 meant?"),
        (["truncatd"], "is hot.truncated meant?"),
        (["pool_overflow"], "is server.pool_overflow meant?"),
        (["cold.p95"], "is cold.p99 meant?"),
        (["requests_per_second"], "is hot.requests_per_second meant?"),
        (["Thread-Pool"], "is thread-pools meant?"),
        (["qqqqqqqq"], "nginx-tune explain lists what there is"),
        (["io-pool-var-unresolvd"], "is io-pool-var-unresolved meant?"),
        (["\x1b[31m"], "\\x1b"),
    ],
)
def test_wrong_usage(run_cli: RunCli, arguments: list[str], says: str) -> None:
    run = run_cli("explain", *arguments)
    assert run.returncode == 2
    assert says in run.stderr
    assert run.stdout == ""
    assert "\x1b" not in run.stderr


def test_every_decision_has_a_page_with_a_body() -> None:
    pages = decision_pages()
    assert set(pages) == set(get_args(DecisionId))
    for name, text in pages.items():
        body = text.split("\n\n")[1]
        assert len(body.split()) > 30, name
        assert "SOURCES" not in text


@pytest.mark.parametrize(
    "name",
    [
        "ratio(hot.p99)",
        "baseline(hot.p99)",
        "outcome( hot.p99 )",
        "predicted(ratio(hot.p99))",
        "hot.p99 <= 50ms",
        "ratio(hot.p99) <= 0.5",
        "ratio(hot.p99",
    ],
)
def test_an_expression_is_explained_by_its_metric(run_cli: RunCli, name: str) -> None:
    assert run_cli("explain", name).stdout == run_cli("explain", "hot.p99").stdout


@pytest.mark.parametrize(
    ("name", "called", "hint"),
    [
        ("ratio(hot.p9)", "hot.p9", "is hot.p99 meant?"),
        ("ratio(p99)", "p99", "is hot.p99 meant?"),
        ("ratio(decision(hot.p9)) <= 1", "hot.p9", "is hot.p99 meant?"),
        ("nothing(hot.p99)", "nothing(hot.p99)", ""),
        ("ratio(", "ratio(", ""),
    ],
)
def test_a_suggestion_is_a_name_that_can_be_asked_for(
    run_cli: RunCli, name: str, called: str, hint: str
) -> None:
    done = run_cli("explain", name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"nginx-tune: nothing is called '{called}' (")
    assert hint in done.stderr
    if "meant?" in done.stderr:
        meant = done.stderr.rpartition("(is ")[2].partition(" meant?")[0]
        assert run_cli("explain", meant).returncode == 0


def test_a_word_of_one_name_shows_its_page_and_of_several_proposes_them(run_cli: RunCli) -> None:
    shown = run_cli("explain", "keepalive")
    assert shown.stdout.startswith("upstream-keepalive (a decision")
    assert "upstream-keepalive" in shown.stderr
    several = run_cli("explain", "cache")
    assert several.returncode == 2
    assert "one of cache-layout, cache-key" in several.stderr
    assert several.stderr.count("\n") == 1
