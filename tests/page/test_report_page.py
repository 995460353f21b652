"""The page of a report: its numbers are the document's, text stays text, nothing is fetched."""

import html
import itertools
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hours import hour
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import RATE, Page, blocks, documents
from rows import each_row
from tiers import ALL, draws

from nginx_tune.documents.base import Document, decode, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.documents.plan import History, Plan
from nginx_tune.documents.run import KeptRun, Validation
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.documents.verdict import Verdict
from nginx_tune.measure.proof.histogram import decode_histogram, merge_histograms
from nginx_tune.report.page.plot.curves import CurvePlot, LogAxis, disk_plots, quantile_plots
from nginx_tune.report.page.plot.ratios import SharesPlot, metrics_plot
from nginx_tune.report.page.plot.seconds import seconds_plots
from nginx_tune.report.page.render import embedded_documents, render_page, render_report_markdown
from nginx_tune.report.page.sections import section_of
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
            kinds = ("application/json", "application/x-bzip2-base85")
            assert attributes["type"] in kinds
        if tag == "a":
            assert (attributes["href"] or "").startswith("#s")
    assert not CONTROL.search(texts)


@each_row("document", EVERY, ids=IDS)
def test_text_of_any_field_stays_text(document: Document) -> None:
    tags = Counter(tag for tag, _ in page_of(document).elements)
    for text in ("".join(HOSTILE), "javascript:x", *(HOSTILE if ALL else ())):
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


@each_row("document", EVERY, ids=IDS)
def test_the_document_in_a_page_is_the_document(document: Document) -> None:
    page = render_page([document]).decode()
    found = embedded_documents(page, source="p")
    assert [encode(decode(type(document), one)) for one in found] == [encode(document)]
    assert page.count("<h1") == 1
    assert "://" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_numbers_of_a_page_are_the_documents() -> None:
    run = next(one for one in EVERY if isinstance(one, KeptRun))
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


def test_pairs_of_a_scenario_with_more_variants_are_its_rounds() -> None:
    scenario = next(one for one in EVERY if isinstance(one, ScenarioRun))
    more = []
    for round_number in range(6):
        before, after = scenario.measurements[2 * round_number : 2 * round_number + 2]
        place = {"other": round_number % 3}
        rest = [n for n in range(3) if n != place["other"]]
        for number, (variant, block) in enumerate(
            [("other", before), ("baseline", before), ("candidate", after)]
        ):
            where = place["other"] if number == 0 else rest[number - 1]
            more.append(
                msgspec.structs.replace(block, variant=variant, number=3 * round_number + where)
            )
    page = page_of(msgspec.structs.replace(scenario, measurements=more))
    assert page.values("data-ratio") == page_of(scenario).values("data-ratio")


def test_a_measured_disk_is_drawn_by_depth() -> None:
    facts = next(one for one in EVERY if isinstance(one, Facts))
    rates, times, *small = disk_plots(facts.storage)
    assert len(small) == 2
    assert [tick.text for tick in rates.x_ticks] == ["1", "2", "4", "8"]
    assert [curve.name for curve in rates.curves] == ["1,600/s"]
    # Twice the depth is twice the reads here: on two logarithmic axes a straight line.
    (line,) = rates.curves[0].segments
    places = [tuple(map(float, point.split(","))) for point in line.split()]
    steps = [(b[0] - a[0], a[1] - b[1]) for a, b in itertools.pairwise(places)]
    assert all(step == pytest.approx(steps[0], abs=0.02) for step in steps)
    # The first depth has no p99: its curve begins later than the median's.
    begins = {curve.name[:3]: curve.segments[0].split(",")[0] for curve in times.curves}
    assert float(begins["p50"]) == 0 < float(begins["p99"])
    assert "The knee is at depth 4." in small[0].caption


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
    for variant in ("baseline", "candidate"):
        texts = [
            one.classes["hot"].response_seconds.histogram
            for one in measured
            if one.variant == variant
        ]
        merged = merge_histograms(map(decode_histogram, texts))
        assert merged is not None
        assert merged.total == 1200
        last = merged.value_at(1190 / 1200)
        assert last is not None
        assert f"{variant} {seconds_text(last / 1e9)}" in names
    colours = {curve.name.split()[0]: curve.number for curve in plot.curves}
    assert colours == {"baseline": 0, "candidate": 1}


@each_row(
    ("flag", "requests"),
    [
        ("generator_cpu: the probe used 81 % of a CPU", 1000),
        ("lateness: hot: the probe released arrivals late", 1000),
        ("ack_stalls: hot: some pauses", 1200),
    ],
)
def test_a_curve_is_of_the_requests_that_the_table_is_of(flag: str, requests: int) -> None:
    """One half of a pair is flagged: the other half has no place in the curves either."""
    validation = next(one for one in EVERY if isinstance(one, Validation))
    raw = msgspec.to_builtins(validation)
    (flagged,) = [one for one in raw["measurements"] if one["block"] == 3]
    flagged["flags"] = [flag]
    for one in raw["measurements"]:  # else a flag about the only class is about all
        one["classes"]["memory"] = one["classes"]["hot"]
    page = page_of(msgspec.convert(raw, Validation))
    assert f"requests: baseline {requests:,}, candidate {requests:,}." in page.text


def test_a_pair_that_does_not_count_is_grey_and_has_no_curve_by_second_nor_by_worker() -> None:
    validation = next(one for one in EVERY if isinstance(one, Validation))
    raw = msgspec.to_builtins(validation)
    (flagged,) = [one for one in raw["measurements"] if one["block"] == 3]
    flagged["flags"] = ["generator_cpu: the probe used 81 % of a CPU"]
    flagged["classes"]["hot"]["workers"] = {"7": 200}
    changed = msgspec.convert(raw, Validation)
    plots = section_of(changed).plots
    (seconds,) = [plot for plot in plots if isinstance(plot, CurvePlot) and plot.marks]
    # Blocks 2 and 3 of twelve, of four seconds each.
    assert list(seconds.grey) == [(round(100 * 8 / 48, 2), round(100 * 8 / 48, 2))]
    assert "2 runs of pairs that do not count" in seconds.caption
    assert "12 failed, in 6 seconds" in seconds.caption
    for curve in seconds.curves:
        assert len(curve.segments) == 5
        for segment in curve.segments:
            for point in segment.split():
                assert not 100 * 8 / 48 < float(point.split(",")[0]) < 100 * 16 / 48
    (workers,) = [plot for plot in plots if isinstance(plot, SharesPlot)]
    assert [list(bar.shares) for bar in workers.bars] == [[0.75, 0.25, 0.0]] * 2
    grey = [a for _, a in page_of(changed).elements if a.get("class") == "uncounted"]
    assert [(a["x"], a["width"]) for a in grey] == [("16.67", "16.67")]
    (whole,) = [p for p in section_of(validation).plots if isinstance(p, CurvePlot) and p.marks]
    assert (list(whole.grey), "Grey" in whole.caption) == ([], False)


@each_row("broken", ["", "!", "AAAA"])
def test_a_histogram_that_cannot_be_read_leaves_the_rest(broken: str) -> None:
    validation = next(one for one in EVERY if isinstance(one, Validation))
    raw = msgspec.to_builtins(validation)
    for one in raw["measurements"]:
        one["classes"]["hot"]["response_seconds"]["histogram"] = broken
    page = page_of(msgspec.convert(raw, Validation))
    assert "Latency of hot" not in page.text
    assert "hot requests/s is" in page.text


def test_seconds_are_drawn_block_after_block_and_what_failed_is_marked() -> None:
    (plot,) = seconds_plots(blocks(6))
    # Twelve blocks of four seconds; a failure in both halves of the first four pairs.
    assert list(plot.marks) == [
        round(100 * (4 * block + block // 2 + 0.5) / 48, 1) for block in range(8)
    ]
    assert "16 failed, in 8 seconds" in plot.caption
    curves = {curve.name: curve for curve in plot.curves}
    assert set(curves) == {"baseline p50", "baseline p99", "candidate p50", "candidate p99"}
    strong = curves["candidate p99"]
    assert len(strong.segments) == 6
    begins = [float(segment.split(",")[0]) for segment in strong.segments]
    assert begins == [round(100 * (4 * block + 0.5) / 48, 2) for block in range(1, 12, 2)]
    # Above in the plot is slower: p99 above p50, the baseline above the candidate.
    assert strong.end[1] < curves["candidate p50"].end[1]
    assert curves["baseline p99"].end[1] < strong.end[1]


def test_a_gap_is_a_gap_and_a_long_run_has_few_points() -> None:
    (block, *_) = blocks(1)

    def of(seconds: range, slow: int) -> Measurement:
        series = [
            SeriesPoint(
                second=n, classes={"hot": ClassSecond(p50=0.1, p99=5.0 if n == slow else 0.2)}
            )
            for n in seconds
        ]
        return msgspec.structs.replace(block, series=series)

    gap = [*of(range(5), -1).series, *of(range(9, 12), -1).series]
    (plot,) = seconds_plots([msgspec.structs.replace(block, series=gap)])
    assert [len(curve.segments) for curve in plot.curves] == [2, 2]
    (plot,) = seconds_plots([of(range(3600), 1801)])
    assert all(len(curve.segments[0].split()) == 300 for curve in plot.curves)
    assert "Of each 12 seconds" in plot.caption
    heights = [float(point.split(",")[1]) for point in plot.curves[0].segments[0].split()]
    assert heights.index(min(heights)) == 1801 // 12
    assert [tick.text for tick in plot.x_ticks][:3] == ["0 s", "10 min", "20 min"]


def test_zero_and_enormous_numbers_have_a_page() -> None:
    scenario = next(one for one in EVERY if isinstance(one, ScenarioRun))
    raw = msgspec.to_builtins(scenario)
    for value in (0.0, -1.0, 5e-324, 1e308):
        for metric in raw["verdict"]["metrics"]:
            metric |= {"ratio": value, "low": value, "high": value, "baseline": value}
        raw["predictions"][0] |= {"measured": value, "low": value, "measured_low": value}
        page = page_of(msgspec.convert(raw, ScenarioRun))
        assert "nan" not in page.text.split()


def test_through_the_command_line(run_cli: RunCli, tmp_path: Path) -> None:
    run = next(one for one in EVERY if isinstance(one, KeptRun))
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
        "history.json": encode(History()),
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
    assert "nginx-tune's history document, which a report does not show" in said["history.json"]
    assert "'nginx-tune/new/9'" in said["other.json"]
    findings = render_page([EVERY[IDS.index("Findings")]])
    (tmp_path / "findings.html").write_bytes(findings)
    shown = run_cli("runs", "show", str(tmp_path / "findings.html"))
    assert shown.returncode == 2
    assert "no stored run in this page" in shown.stderr


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "reports").glob("*.html"))


@each_row("page", EXAMPLES, ids=lambda page: page.stem)
def test_an_example_is_a_run_that_this_version_reads(page: Path) -> None:
    (data,) = embedded_documents(page.read_text(), source=page.name)
    run = decode(KeptRun, data)
    assert page.stat().st_size <= 600_000
    rows = page.with_name("README.md").read_text().splitlines()
    [row] = [one for one in rows if one.startswith(f"| [{page.name}]({page.name}) | ")]
    assert run.summary.name in row


@pytest.mark.thorough
@each_row("page", EXAMPLES, ids=lambda page: page.stem)
def test_an_example_has_the_words_of_this_version(page: Path) -> None:
    """Before a release, since `make pictures`, which draws them again, writes a megabyte."""

    def words(text: str) -> list[str]:
        return re.sub(r"<[^>]*>", " ", text[: text.index('class="document"')]).split()

    text = page.read_text()
    documents = [decode(KeptRun, one) for one in embedded_documents(text, source=page.name)]
    assert words(render_page(documents).decode()) == words(text)


@pytest.mark.long
def test_a_page_of_an_hour_of_eight_variants_and_four_classes_is_below_two_megabytes() -> None:
    rounds = draws(3, 15)
    run = hour(rounds=rounds)
    page = render_page([run])
    assert len(page) <= 200_000 + 120_000 * rounds  # of fifteen: two megabytes
    (data,) = embedded_documents(page.decode(), source="p")
    assert decode(KeptRun, data) == run
    # A point costs about ten bytes: the plots grow with variants and classes, not with the hour.
    markup = len(page) - page.index(b'class="document"')
    assert len(page) - markup < 200_000


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


def test_a_page_of_a_plan_does_not_carry_the_files(run_cli: RunCli, tmp_path: Path) -> None:
    """They hold what the configuration holds; nothing of it is seen on the page."""
    conf, plan, page = (tmp_path / name for name in ("nginx.conf", "plan.json", "page.html"))
    conf.write_text(
        "events {} http { server { listen 8080; location / { proxy_pass http://127.0.0.1:81; "
        'proxy_set_header Authorization "Basic c2Vrcml0"; } } }'
    )
    made = run_cli("-q", "plan", conf, "--kind", "proxy", "-f", "json", "-o", plan)
    assert made.returncode == 0, made.stderr
    assert b"c2Vrcml0" in decode(Plan, plan.read_bytes()).files[0].content
    assert run_cli("report", plan, "-o", page).returncode == 0
    sent = run_cli("report", page, "-f", "json")
    files = decode(Plan, sent.stdout.encode()).files
    assert [(file.path, file.content) for file in files] == [(str(conf), b"")]
    assert files[0].hunks
    (tmp_path / "sent.json").write_text(sent.stdout)
    refused = run_cli("rehearse", "--plan", tmp_path / "sent.json")
    assert refused.returncode == 2
    assert "its content is left out, as in a page of 'report'" in refused.stderr


def test_the_first_screen_says_what_the_answer_rests_on() -> None:
    verdict = next(one for one in EVERY if isinstance(one, Verdict))
    one = verdict.metrics[0]
    lacking = msgspec.structs.replace(one, name="hot.p99", baseline=None, candidate=None)
    cut = msgspec.structs.replace(one, name="hot.truncated", baseline=0.0, candidate=3.0)
    changed = msgspec.structs.replace(verdict, metrics=[one, lacking, cut], warnings=["a", "b"])
    said = section_of(changed).basis
    assert "Not measured: hot.p99" in said
    assert "BODIES WERE CUT SHORT" in said
    assert "2 warnings" in said
    assert said in page_of(changed).text
