"""The page of a report: its numbers are the document's, text stays text, nothing is fetched."""

from __future__ import annotations

import html
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import RATE, Page, blocks, documents

from nginx_tune.documents.base import Document, decode, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.run import Run
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.documents.validation import Validation
from nginx_tune.documents.verdict import Verdict
from nginx_tune.prove.histogram import decode_histogram, merge_histograms
from nginx_tune.report.embedded import embedded_documents
from nginx_tune.report.page import render_page, render_report_markdown
from nginx_tune.report.plot_axis import LogAxis
from nginx_tune.report.plot_quantiles import quantile_plots
from nginx_tune.report.plot_ratios import metrics_plot
from nginx_tune.report.text import seconds_text

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
EVERY = documents()
IDS = [type(one).__name__ for one in EVERY]
HOSTILE = (
    "<script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", '" onload="alert(1)',
    "' autofocus onfocus='x", "<!--", "-->", "</script>", "]]>", "<svg/onload=x>", "&lt;b&gt;",
    "{{ 7 * 7 }}{% raw %}", "\x1b[31mred", "a\u202eb\u2066c", "\x00\x07", "javascript:x",
    "</title></textarea><base href=//x>",
)  # fmt: skip
OWN_TAGS = {
    "html", "head", "meta", "title", "style", "body", "a", "header", "p", "span", "nav", "ol", "li",
    "main", "section", "h1", "h2", "h3", "dl", "div", "dt", "dd", "figure", "figcaption", "svg",
    "line", "rect", "circle", "polyline", "table", "thead", "tbody", "tr", "th", "td", "details",
    "summary", "pre", "code", "footer", "script",
}  # fmt: skip
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def page_of(*shown: Document) -> Page:
    return Page(render_page(shown).decode())


def poisoned(value: Any, text: str, kind: type[Document]) -> Any:
    """The document with this text in every string that may be any string."""
    raw = msgspec.to_builtins(value)

    def put(holder: Any, key: Any) -> None:
        old = holder[key]
        if isinstance(old, dict | list):
            for below in list(old) if isinstance(old, dict) else range(len(old)):
                put(old, below)
        elif isinstance(old, str) and key not in ("schema", "histogram", "primary_metric"):
            holder[key] = text
            try:
                msgspec.convert(raw, kind)
            except msgspec.ValidationError:
                holder[key] = old  # one of a few words

    for key in list(raw):
        put(raw, key)
    return msgspec.convert(raw, kind)


def harmless(page: Page, texts: str) -> None:
    assert {tag for tag, _ in page.elements} <= OWN_TAGS
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        if tag == "script":
            kinds = ("application/json", "application/x-bzip2-base64")
            assert attributes["type"] in kinds
        if tag == "a":
            assert (attributes["href"] or "").startswith("#s")
    assert not CONTROL.search(texts)


@pytest.mark.parametrize("document", EVERY, ids=IDS)
def test_text_of_any_field_stays_text(document: Document) -> None:
    tags = Counter(tag for tag, _ in page_of(document).elements)
    for text in HOSTILE:
        bad = poisoned(document, text, type(document))
        written = render_page([bad]).decode()
        page = Page(written)
        harmless(page, written)
        made = Counter(tag for tag, _ in page.elements)
        # The lines of a configuration are counted: each is an element.
        assert {t: n for t, n in made.items() if t != "span"}.keys() <= tags.keys() | {"details"}
        assert decode(type(document), embedded_documents(written, source="p")[0]) == bad


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=40), st.integers(0, len(EVERY) - 1))
def test_any_text_stays_text(text: str, number: int) -> None:
    kind = type(EVERY[number])
    try:
        bad = poisoned(EVERY[number], text, kind)
        written = render_page([bad]).decode()
    except UnicodeEncodeError:
        return  # lone surrogates are in no document
    harmless(Page(written), written)


@pytest.mark.parametrize("document", EVERY, ids=IDS)
def test_the_document_in_a_page_is_the_document(document: Document) -> None:
    page = render_page([document]).decode()
    found = embedded_documents(page, source="p")
    assert [encode(decode(type(document), one)) for one in found] == [encode(document)]
    assert page.count("<h1") == 1
    assert "://" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_numbers_of_a_page_are_the_documents() -> None:
    run = next(one for one in EVERY if isinstance(one, Run))
    verdict = run.result.verdict
    primary = next(one for one in verdict.metrics if one.name == RATE)
    page = page_of(run)
    assert page.values("data-value") == [
        primary.baseline_middle, primary.candidate_middle, primary.ratio,
    ]  # fmt: skip
    rates = [one.classes["hot"].requests_per_second for one in run.result.measurements]
    pairs = [after / before for before, after in zip(rates[::2], rates[1::2], strict=True)]
    metrics = [one.ratio for one in verdict.metrics]
    assert page.values("data-ratio") == [*metrics, *pairs, primary.ratio]


def test_pairs_of_a_scenario_with_more_arms_are_its_rounds() -> None:
    scenario = next(one for one in EVERY if isinstance(one, ScenarioRun))
    more = []
    for round_number in range(6):
        before, after = scenario.measurements[2 * round_number : 2 * round_number + 2]
        place = {"other": round_number % 3}
        rest = [n for n in range(3) if n != place["other"]]
        for number, (arm, block) in enumerate(
            [("other", before), ("baseline", before), ("candidate", after)]
        ):
            where = place["other"] if number == 0 else rest[number - 1]
            more.append(msgspec.structs.replace(block, arm=arm, block=3 * round_number + where))
    page = page_of(msgspec.structs.replace(scenario, measurements=more))
    assert page.values("data-ratio") == page_of(scenario).values("data-ratio")


def test_marks_lie_where_the_axis_says() -> None:
    verdict = next(one for one in EVERY if isinstance(one, Verdict))
    plot = metrics_plot(verdict)
    assert plot is not None
    ratio = {row.mark.label: row for row in plot.rows}["hot requests/s · primary"]
    assert plot.one < ratio.at
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= ratio.at <= ratio.high
    # A tick's place and its text agree with the marks: 1× is a tick, where the line is.
    assert {tick.percent for tick in plot.ticks if tick.text == "1×"} == {plot.one}
    axis = LogAxis(0.01, 100.0)
    assert [axis.percent(v) for v in (0.0, 0.01, 1.0, 100.0, 1e9)] == [0, 0, 50, 100, 100]


def test_a_curve_ends_where_ten_samples_lie_beyond() -> None:
    measured = blocks()
    (plot,) = quantile_plots(measured)
    names = [curve.name for curve in plot.curves]
    for arm in ("baseline", "candidate"):
        texts = [
            one.classes["hot"].response_seconds.histogram for one in measured if one.arm == arm
        ]
        merged = merge_histograms(map(decode_histogram, texts))
        assert merged is not None
        assert merged.total == 1200
        last = merged.value_at(1190 / 1200)
        assert last is not None
        assert f"{arm} {seconds_text(last / 1e9)}" in names
    colours = {curve.name.split()[0]: curve.number for curve in plot.curves}
    assert colours == {"baseline": 0, "candidate": 1}


@pytest.mark.parametrize("broken", ["", "!", "AAAA"])
def test_a_histogram_that_cannot_be_read_leaves_the_rest(broken: str) -> None:
    validation = next(one for one in EVERY if isinstance(one, Validation))
    raw = msgspec.to_builtins(validation)
    for one in raw["measurements"]:
        one["classes"]["hot"]["response_seconds"]["histogram"] = broken
    page = page_of(msgspec.convert(raw, Validation))
    assert not [tag for tag, _ in page.elements if tag == "polyline"]
    assert "hot requests/s is" in page.text


def test_zero_and_enormous_numbers_have_a_page() -> None:
    scenario = next(one for one in EVERY if isinstance(one, ScenarioRun))
    raw = msgspec.to_builtins(scenario)
    for value in (0.0, -1.0, 5e-324, 1e308):
        for metric in raw["verdict"]["metrics"]:
            metric |= {"ratio": value, "low": value, "high": value, "baseline": value}
        raw["predictions"][0] |= {"measured": value, "low": value, "measured_low": value}
        page = page_of(msgspec.convert(raw, ScenarioRun))
        assert "nan" not in page.text.split()


def test_the_markdown_says_the_same() -> None:
    text = render_report_markdown(EVERY).decode()
    assert text.count("\n## ") + text.startswith("## ") == len(EVERY)
    assert "**With the candidate, hot requests/s is" in text
    assert "<" not in re.sub(r"\\<", "", text)


def test_through_the_command_line(run_cli: RunCli, tmp_path: Path) -> None:
    run = next(one for one in EVERY if isinstance(one, Run))
    source, page, ticket = (tmp_path / name for name in ("run.json", "r.html", "t.md"))
    source.write_bytes(encode(run))
    assert run_cli("report", str(source), "-o", str(page)).returncode == 0
    assert page.stat().st_mode & 0o777 == 0o600
    assert page.read_bytes() == render_page([run])
    assert run_cli("runs", "show", str(page), "-f", "json").stdout.encode() == encode(run)
    assert run_cli("report", str(page), "-f", "json").stdout.encode() == encode(run)
    assert run_cli("report", str(page), "-o", str(ticket)).returncode == 0
    assert ticket.read_bytes() == render_report_markdown([run])


def test_what_no_page_shows_is_refused_in_one_line(run_cli: RunCli, tmp_path: Path) -> None:
    contents = {
        "facts.json": encode(Facts()),
        "other.json": b'{"schema": "nginx-tune/new/9"}',
        "none.json": b"[]",
        "broken.json": b"{",
        "empty.html": b"<!doctype html>",
        "missing.json": None,
    }
    said = {}
    for name, data in contents.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
        done = run_cli("report", str(tmp_path / name))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        said[name] = done.stderr
    assert "a facts document, which a report does not show" in said["facts.json"]
    assert "'nginx-tune/new/9'" in said["other.json"]
    findings = render_page([EVERY[IDS.index("Findings")]])
    (tmp_path / "findings.html").write_bytes(findings)
    shown = run_cli("runs", "show", str(tmp_path / "findings.html"))
    assert shown.returncode == 2
    assert "no stored run in this page" in shown.stderr


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "reports").glob("*.html"))


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_an_example_is_a_run_that_this_version_reads(page: Path) -> None:
    (data,) = embedded_documents(page.read_text(), source=page.name)
    run = decode(Run, data)
    assert run.summary.name == page.stem
    assert page.stat().st_size <= 600_000
    assert f"`{page.stem}`" in page.with_name("README.md").read_text()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.needs("chromium")
def test_a_browser_opens_it_without_a_word_and_nothing_is_wider_than_a_phone() -> None:
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "page.html"
        page.write_bytes(render_page(EVERY))
        # A frame as narrow as a phone, and a word to the outer page of what lies past its edge.
        outer = Path(place) / "outer.html"
        inner = html.escape(page.read_text(), quote=True)
        outer.write_text(
            f'<iframe id=f style="width:400px;height:900px;border:0" srcdoc="{inner}"></iframe>'
            "<p id=w></p><script>onload=()=>{const d=f.contentDocument.documentElement;"
            "w.textContent=`wide ${d.scrollWidth} of ${d.clientWidth}`}</script>"
        )
        done = [
            subprocess.run(
                ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
                 f"--user-data-dir={place}/profile", "--enable-logging=stderr", "--v=0",
                 "--dump-dom", f"file://{shown}"],
                capture_output=True, text=True, check=True, timeout=60,
            )
            for shown in (page, outer)
        ]  # fmt: skip
    assert "CONSOLE" not in done[0].stderr
    assert "</footer>" in done[0].stdout
    found = re.search(r'"w">wide (\d+) of (\d+)', done[1].stdout)
    assert found is not None
    wide, seen = map(int, found.groups())
    assert 350 < seen <= 400
    assert wide == seen
