"""The page in a browser: what a reader sees, hears and reaches by keys."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, messages, requests
from pages import documents
from rows import each_row
from tiers import ALL, REPEAT, dice

from nginx_tune.report.page.render import embedded_documents, render_page

pytestmark = pytest.mark.needs("chromium")

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "reports").glob("*.html"))
LOOKS = [
    {"width": 1280, "scheme": "light"},
    {"width": 1280, "scheme": "dark"},
    {"width": 400, "scheme": "light"},
    {"width": 400, "scheme": "dark"},
    {"width": 800, "media": "print"},
]
UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "%": 0.01, "×": 1.0, "B": 1.0}
UNITS |= {name: 1024.0 ** (n + 1) for n, name in enumerate(("KiB", "MiB", "GiB", "TiB"))}
CELL = re.compile(r"(?:[≥≤] )?(-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?) ?([^ \d\[/]*)(?:/s)?(?: .*)?")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with closing(Browser()) as opened:
        yield opened


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of all kinds of documents."""
    page = tmp_path_factory.mktemp("page") / "every.html"
    page.write_bytes(render_page(documents()))
    return page


@each_row("look", LOOKS, ids=lambda look: "-".join(map(str, look.values())))
def test_it_asks_for_nothing_says_nothing_and_fits(
    browser: Browser, every: Path, look: dict[str, Any]
) -> None:
    for page in (every, *EXAMPLES):
        browser.show(**look)
        browser.open(page)
        assert requests(browser.events) == [f"file://{page}"]
        assert messages(browser.events) == []
        wide, seen = browser.ask(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= seen <= look["width"]


@each_row("width", [400, 1280])
def test_captions_labels_and_curves_stand_clear_of_each_other(
    browser: Browser, every: Path, width: int
) -> None:
    browser.show(width=width)
    for page in (every, *EXAMPLES):
        browser.open(page)
        over = browser.ask(
            "(() => { const box = e => [e.textContent, e.getBoundingClientRect()], parts = ["
            " ...document.querySelectorAll('figcaption, .area, .ends span, .x span')].map(box);"
            " return parts.flatMap(([s, a], n) => parts.slice(n + 1).filter(([t, b]) =>"
            "  Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&"
            "  Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)"
            "  .map(([t, b]) => [s.trim().slice(0, 40), t.trim().slice(0, 40)])) })()"
        )
        assert over == []
        narrow = browser.ask(
            "[...document.querySelectorAll('figure')].filter(f =>"
            " f.querySelector('figcaption').offsetWidth < 0.9 * f.offsetWidth).length"
        )
        assert narrow == 0


def test_light_dark_and_paper_have_their_own_ground(browser: Browser, every: Path) -> None:
    browser.open(every)
    grounds = []
    for look in LOOKS[:2] + LOOKS[-1:]:
        browser.show(**look)
        grounds.append(browser.ask("getComputedStyle(document.body).backgroundColor"))
    light, dark, paper = (sum(map(int, re.findall(r"\d+", one)[:3])) for one in grounds)
    assert dark < 150
    assert light > 600
    assert paper in (0, 765)  # none, or white


def test_what_is_folded_stands_on_paper(browser: Browser, every: Path) -> None:
    browser.open(every)
    heights = "[...document.querySelectorAll('details pre')].map(e => e.checkVisibility())"
    browser.show()
    assert True not in browser.ask(heights)
    browser.show(media="print")
    assert False not in browser.ask(heights)
    browser.show()


def test_keys_reach_everything_in_the_order_of_the_page(browser: Browser, every: Path) -> None:
    browser.show()
    browser.open(every)
    browser.ask("document.querySelectorAll('details').forEach(e => e.open = true)")
    browser.ask(
        "window.all = () => [...document.querySelectorAll('a[href], summary, [tabindex]')]"
        ".filter(e => e.checkVisibility()); window.seen = []"
    )
    count = browser.ask("all().length")
    assert count > 20
    for _ in range(count):
        browser.press("Tab")
        browser.ask("seen.push(document.activeElement)")
    assert browser.ask("seen.every((e, n) => e === all()[n])")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert browser.ask(outline) != "none"
    for _ in range(count - 1):
        browser.press("Tab", shift=True)
    assert browser.ask("document.activeElement.textContent") == "To the answer"
    browser.press("Enter")
    assert browser.ask("location.hash") == "#s1"


def test_a_key_unfolds_and_what_was_folded_is_reached_next(browser: Browser, every: Path) -> None:
    browser.show()
    browser.open(every)
    browser.ask("document.querySelector('details:has(pre) > summary').focus()")
    browser.press("Enter")
    assert browser.ask("document.activeElement.parentElement.open")
    browser.press("Tab")
    assert browser.ask("document.activeElement.matches('details[open] > pre')")


@pytest.mark.needs("axe")
@each_row(
    "look", LOOKS[:4] if ALL else LOOKS[3:4], ids=lambda look: "-".join(map(str, look.values()))
)
def test_axe_finds_nothing_serious(browser: Browser, every: Path, look: dict[str, Any]) -> None:
    spec = find_spec("axe_core_python")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).with_name("axe.min.js").read_text()
    for page in (every, *(EXAMPLES if ALL else [])):
        browser.show(**look)
        browser.open(page)
        browser.ask("document.querySelectorAll('details').forEach(e => e.open = true)")
        browser.ask(source + "; true")
        found = browser.ask(
            "axe.run().then(r => r.violations.map(v => [v.impact, v.id, v.nodes[0].html]))"
        )
        assert [one for one in found if one[0] in ("serious", "critical")] == []


def test_cells_drawn_at_random_are_the_documents_numbers(browser: Browser, every: Path) -> None:
    chance = dice("cells")
    for page in (every, *EXAMPLES):
        browser.open(page)
        shown = browser.ask(
            "[...document.querySelectorAll('section')].map(s => [...s.querySelectorAll('table')]"
            ".map(t => [...t.rows].map(r => [...r.cells].map(c => c.textContent))))"
        )
        inside = browser.ask("document.documentElement.outerHTML")
        held = [json.loads(one) for one in embedded_documents(inside, source=page.name)]
        assert len(shown) == len(held)
        checked = 0
        for tables, document in zip(shown, held, strict=True):
            cells = [one for rows in tables for one in _expected(rows, document)]
            drawn = chance.sample(cells, min(len(cells), 40))
            for row, column, text, value in drawn:
                assert _says(text, value), (REPEAT, page.name, row, column, text, value)
            checked += len(drawn)
        assert checked >= 10


def _says(text: str, value: float | None) -> bool:
    """Whether a cell is this number, to the last digit that it shows."""
    found = CELL.fullmatch(text.replace("\xa0", " "))
    if found is None or value is None:
        return text == "–" and value is None
    number, unit = found[1].replace(",", ""), UNITS[found[2]]
    digits, _, power = number.partition("e")
    step = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(float(number) * unit - value) <= 0.5001 * step * unit


Cell = tuple[str, str, str, float | None]


def _expected(rows: list[list[str]], document: dict[str, Any]) -> Iterator[Cell]:
    """The cells of a table that are numbers of the document, each with that number."""
    head, *body = rows
    whole = document.get("result", document)
    verdict = whole.get("verdict", whole)
    if head[0] == "metric" and "metrics" in verdict:
        yield from _verdict_cells(head, body, verdict)
    if head[:2] == ["class", "intended"]:
        for row in body:
            part = whole["classes"][row[0]]
            latency = part["response_seconds"]
            values = [part[name] for name in ("intended", "requests", "requests_per_second")]
            values.append(sum(part["errors"].values()))
            values += [latency[name] for name in ("p50", "p90", "p99", "p999", "max")]
            yield from _cells(row[0], head[1:], row[1:], values)
    if head[0] == "depth":
        disk = whole["storage"]["disks"][0]["curve"]
        for row, point in zip(body, disk["points"], strict=True):
            names = ("depth", "reads_per_second", "deviation_ratio", "p50_seconds", "p99_seconds")
            values = [point[name] for name in names]
            kept = [n for n, name in enumerate(names) if name != "deviation_ratio"]
            yield from _cells(
                row[0], [head[n] for n in kept], [row[n] for n in kept], [values[n] for n in kept]
            )
    if head[0] == "worker":
        for row, worker in zip(body, whole["server"]["workers"], strict=True):
            seconds = whole["duration_seconds"]
            values = [worker["cpu_seconds"] / seconds, worker["loop_turns"]]
            yield from _cells(row[0], [head[1], head[7]], [row[1], row[7]], values)


def _verdict_cells(
    head: list[str], body: list[list[str]], verdict: dict[str, Any]
) -> Iterator[Cell]:
    metrics = {one["name"]: one for one in verdict["metrics"]}
    for row in body:
        metric = metrics[row[0].removesuffix(" (primary)")]
        both = [metric["baseline_middle"], metric["candidate_middle"]]
        if None in both:
            both = [metric["baseline"], metric["candidate"]]
        yield from _cells(row[0], head[1:4], row[1:4], [*both, metric["ratio"]])


def _cells(
    row: str, head: list[str], texts: list[str], values: list[float | None]
) -> Iterator[Cell]:
    for column, text, value in zip(head, texts, values, strict=True):
        yield row, column, text, value
