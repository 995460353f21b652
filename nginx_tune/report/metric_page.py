"""The page of a metric, and the list of all: what it is, how it is measured, what misleads."""

from __future__ import annotations

from collections.abc import Iterable

from nginx_tune.measure.proof.comparison import NO_SIDE
from nginx_tune.measure.proof.latency import STATISTICS
from nginx_tune.measure.proof.metrics import FAILURE_KINDS, find_metric
from nginx_tune.report.metric_pages import MetricPage, example_of
from nginx_tune.report.package_pages import item, section
from nginx_tune.report.text import align

_WORDS = {
    "CLASS": "a class of requests of the load, such as hot, cold or memory; total is all of them",
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
    """Every metric with the title of its page."""
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
    names = " ".join(page.metrics)
    return rows + [(word, said) for word, said in _WORDS.items() if word in names]


def _unit(pattern: str) -> str:
    metric = find_metric(example_of(pattern))
    side = NO_SIDE if metric.better_when == "neither" else f"{metric.better_when} is better"
    return f"{metric.unit.replace('_', ' ')}; {side}"
