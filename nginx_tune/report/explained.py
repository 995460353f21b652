"""Pages of ``explain`` on metrics of gates, and on causes that ``observe`` finds.

Each page is a TOML file in the package. The page of a metric covers the metrics of its
patterns: ``CLASS`` is a class of requests, ``STATISTIC`` p50, p90, … and ``KIND`` a kind of
failure. Units and directions are in ``measure.proof.metrics``.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import TypeVar

import msgspec

from nginx_tune.documents.log_messages import LOG_MESSAGES
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.comparison import NO_SIDE
from nginx_tune.measure.proof.latency import STATISTICS
from nginx_tune.measure.proof.metrics import FAILURE_KINDS, find_metric
from nginx_tune.report.rule_page import WIDTH
from nginx_tune.report.text import align

P = TypeVar("P")


def read_pages(folder: str, kind: type[P]) -> dict[str, P]:
    """Every page in a folder of the package, by file name."""
    files = sorted((resources.files("nginx_tune") / folder).iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".toml"): msgspec.toml.decode(file.read_bytes(), type=kind)
        for file in files
        if file.name.endswith(".toml")
    }


def section(title: str, text: str) -> str:
    """A paragraph below its title."""
    return f"{title}\n{_filled(text, '  ', '  ')}\n"


def item(text: str) -> str:
    """An item of a list."""
    return _filled(text, "  - ", "    ") + "\n"


def _filled(text: str, first: str, then: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
    )


_STANDS_FOR = {
    "CLASS": r"[^.]+",
    "STATISTIC": "|".join(STATISTICS),
    "KIND": "|".join(FAILURE_KINDS),
}
_WILDCARD = re.compile(r"\b(CLASS|STATISTIC|KIND)\b")
_EXAMPLE = {"CLASS": "hot", "STATISTIC": "p99", "KIND": "reset"}


class MetricPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page of a metric, or of a family of them."""

    metrics: list[str]
    """Patterns of metric names."""
    also: list[str] = []
    """Other spellings of the metrics."""
    title: str
    what: str
    measured: str
    """The way in which the metrics are measured."""
    traps: list[str]
    gates: list[str]
    """Gate expressions with these metrics, to copy."""
    sources: list[str]


@cache
def metric_pages() -> dict[str, MetricPage]:
    """Every page, by file name."""
    return read_pages("metrics", MetricPage)


def find_metric_page(name: str) -> MetricPage | None:
    """The page for a metric, a pattern of metrics, or either without its statistic."""
    if "." not in name:
        return None
    for whole in (name, f"{name}.{_EXAMPLE['STATISTIC']}", f"{name}.{_EXAMPLE['KIND']}"):
        try:
            find_metric(example_of(whole))
        except UsageError:
            continue
        for pattern, page in _patterns():
            if _expression(pattern).fullmatch(example_of(whole)):
                return page
    return None


def example_of(pattern: str) -> str:
    """An example of a metric for a pattern."""
    return _WILDCARD.sub(lambda match: _EXAMPLE[match[1]], pattern)


def _patterns() -> Iterator[tuple[str, MetricPage]]:
    for page in metric_pages().values():
        for pattern in (*page.metrics, *page.also):
            yield pattern, page


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = _WILDCARD.split(pattern)
    text = [
        f"(?P<{part}>{_STANDS_FOR[part]})" if index % 2 else re.escape(part)
        for index, part in enumerate(parts)
    ]
    return re.compile("".join(text))


_WORDS = {
    "CLASS": "a class of requests of the load, such as hot, cold or memory",
    "total": "all classes together",
    "STATISTIC": ", ".join(STATISTICS),
    "KIND": ", ".join(FAILURE_KINDS),
}


def render_metric_text(page: MetricPage) -> str:
    """The page for a terminal."""
    parts = [
        f"{page.title}\n",
        align(_table(page), indent=2),
        section("What it is", page.what),
        section("How it is measured", page.measured),
        "Traps\n" + "".join(item(trap) for trap in page.traps),
        "In gates\n" + "".join(f"  --require '{gate}'\n" for gate in page.gates),
        "Sources\n" + "".join(f"  - {source}\n" for source in page.sources),
    ]
    return "\n".join(parts)


def render_metric_markdown(page: MetricPage) -> str:
    """The page as Markdown."""
    rows = "\n".join(f"| `{name}` | {unit} |" for name, unit in _table(page))
    parts = [
        f"# {page.title}",
        f"| metric | unit |\n|---|---|\n{rows}",
        page.what,
        "## How it is measured",
        page.measured,
        "## Traps",
        "\n".join(f"- {trap}" for trap in page.traps),
        "## In gates",
        "\n".join(f"    --require '{gate}'" for gate in page.gates),
        "## Sources",
        "\n".join(f"- {source}" for source in page.sources),
    ]
    return "\n\n".join(parts) + "\n"


def render_metric_list(pages: Iterable[MetricPage]) -> str:
    """A line for every metric, with the title of its page."""
    return align(
        [
            (name, "the same page" if number else page.title)
            for page in pages
            for number, name in enumerate(page.metrics)
        ]
    )


def _table(page: MetricPage) -> list[tuple[str, str]]:
    rows = [(name, _unit(name)) for name in page.metrics]
    rows += [(name, "the same") for name in page.also]
    words = {word for name in page.metrics for word in name.split(".")}
    return rows + [(word, said) for word, said in _WORDS.items() if word in words]


def _unit(pattern: str) -> str:
    metric = find_metric(example_of(pattern))
    side = NO_SIDE if metric.better_when == "neither" else f"{metric.better_when} is better"
    return f"{metric.unit.replace('_', ' ')}; {side}"


class CausePage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page of a cause."""

    title: str
    what: str
    shown_by: str
    """The figures that show the cause."""
    steps: list[str]
    """Steps to take, in order."""
    beside: list[str]
    """Pitfalls: similar causes, and wrong conclusions from the cause."""
    sources: list[str]


@cache
def cause_pages() -> dict[str, CausePage]:
    """Every page by the cause's id."""
    return read_pages("observe/causes", CausePage)


def _messages(name: str) -> list[str]:
    """Lines on the error log messages of a cause: level, source, meaning, remedy."""
    return [
        f"{row.id} ({row.level}{f', {row.older}' if row.older else ''}; {row.source}; nginx "
        f"{row.since} and later): {row.tells}; to change: {row.change}"
        for row in LOG_MESSAGES
        if row.cause == name
    ]


def render_cause_text(name: str, page: CausePage) -> str:
    """The page for a terminal."""
    parts = [
        f"{name}: {page.title}\n",
        section("What it is", page.what),
        section("Evidence", page.shown_by),
        "What to do\n" + "".join(map(item, page.steps)),
        "Traps\n" + "".join(map(item, page.beside)),
        *(["Messages\n" + "".join(map(item, messages))] if (messages := _messages(name)) else []),
        "Sources\n" + "".join(f"  - {source}\n" for source in page.sources),
    ]
    return "\n".join(parts)


def render_cause_markdown(name: str, page: CausePage) -> str:
    """The page as Markdown."""
    parts = [
        f"# {name}: {page.title}",
        page.what,
        "## Evidence",
        page.shown_by,
        "## What to do",
        "\n".join(f"- {step}" for step in page.steps),
        "## Traps",
        "\n".join(f"- {text}" for text in page.beside),
        *(
            ["## Messages", "\n".join(f"- {message}" for message in _messages(name))]
            * bool(_messages(name))
        ),
        "## Sources",
        "\n".join(f"- {source}" for source in page.sources),
    ]
    return "\n\n".join(parts) + "\n"


def render_cause_list() -> str:
    """A line for every cause, with the title of its page."""
    return align([(name, page.title) for name, page in cause_pages().items()])
