"""A page for every metric that a gate can name, and no page for one that there is not."""

from collections import Counter
from collections.abc import Iterator
from itertools import product

from rows import each_row

from nginx_tune.measure.proof.expression import parse_expression
from nginx_tune.measure.proof.gates import check_expressions
from nginx_tune.measure.proof.latency import STATISTICS
from nginx_tune.measure.proof.metrics import (
    FAILURE_KINDS,
    PARTS,
    find_metric,
    metric_names,
    nearest_metrics,
)
from nginx_tune.report.explained import (
    MetricPage,
    find_metric_page,
    metric_pages,
    render_metric_markdown,
    render_metric_text,
)

VALUES = {"CLASS": ["hot"], "STATISTIC": STATISTICS, "KIND": FAILURE_KINDS}


def expanded(pattern: str) -> Iterator[str]:
    """Every metric that a pattern stands for."""
    words = [word for word in VALUES if word in pattern.split(".")]
    for values in product(*(VALUES[word] for word in words)):
        chosen = dict(zip(words, values, strict=True))
        yield ".".join(chosen.get(part, part) for part in pattern.split("."))


def test_every_metric_has_one_page_and_every_page_is_of_metrics() -> None:
    described = Counter(
        name
        for page in metric_pages().values()
        for pattern in page.metrics
        for name in expanded(pattern)
    )
    assert set(described) == set(metric_names(["hot"]))
    assert described.most_common(1)[0][1] == 1


@each_row("page", metric_pages().values(), ids=list(metric_pages()))
def test_a_page_is_found_by_its_metrics_and_says_all(page: MetricPage) -> None:
    for pattern in (*page.metrics, *page.also):
        assert find_metric_page(pattern) is page
        for name in expanded(pattern):
            assert find_metric_page(name) is page, name
            assert find_metric(name).unit == find_metric(next(expanded(pattern))).unit
    assert page.traps
    assert page.sources
    text, markdown = render_metric_text(page), render_metric_markdown(page)
    for said in (page.title, *page.metrics, *page.gates, *page.sources):
        assert said in text
        assert said in markdown
    assert max(map(len, text.splitlines())) <= 220


@each_row("page", metric_pages().values(), ids=list(metric_pages()))
def test_the_gates_of_a_page_are_its_own_and_can_be_asked(page: MetricPage) -> None:
    check_expressions(page.gates, ["hot", "cold", "memory"])
    for gate in page.gates:
        name = parse_expression(gate).name.removeprefix("ratio(").removesuffix(")")
        assert find_metric_page(name) is page, gate


def test_a_number_of_another_part_is_named_with_its_own() -> None:
    """``total.p99`` is of a class, ``hot.lateness.p90`` of the generator."""
    names = metric_names(["hot"])
    for tail in {name.partition(".")[2] for name in names}:
        for part in ("hot", *PARTS):
            if f"{part}.{tail}" not in names:
                near = nearest_metrics(f"{part}.{tail}", names)[0]
                assert near.partition(".")[2].endswith(tail), f"{part}.{tail}: {near}"


@each_row("name", ["hot", "hot.p98", "hot.ttbf.p99", "server.", ".p99", "hot.errors.none", "x\n.p"])
def test_what_is_no_metric_has_no_page(name: str) -> None:
    assert find_metric_page(name) is None
