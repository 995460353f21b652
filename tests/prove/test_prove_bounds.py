"""Numbers of which some requests were cut off: lower bounds, that decide upwards alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measurement import Measurement
from nginx_tune.prove.blocks import pair_blocks
from nginx_tune.prove.gates import judge_gates
from nginx_tune.prove.verdict import judge
from nginx_tune.report.verdict import render_verdict

MakeBlocks = Callable[..., list[Measurement]]
MakeLatency = Callable[[Sequence[float]], Latency]

CUT = 100
AGE = 1.0


@pytest.fixture
def cut(latency: MakeLatency) -> Callable[..., Latency]:
    """1,000 requests of so many seconds; with ``count`` of them cut off at a second."""

    def make(seconds: float, count: int = 0) -> Latency:
        made = latency([seconds] * (1000 - count) + [AGE] * count)
        known = {"p50", "p99", "max"} if count > 10 else {"max"}
        return msgspec.structs.replace(
            made,
            censored=count,
            censored_from_seconds=AGE if count else None,
            at_least=sorted(name for name in known if count and getattr(made, name) >= AGE),
        )

    return make


@pytest.mark.parametrize(
    ("expression", "measured", "passed"),
    [
        # 900 requests of 10 ms, 100 of at least 1 s: a mean of at least 109 ms, a p99 of 1 s.
        ("hot.mean <= 100ms", True, False),
        ("hot.mean <= 200ms", False, False),
        ("hot.mean > 100ms", True, True),
        ("hot.mean > 200ms", False, False),
        ("hot.max <= 900ms", True, False),
        ("hot.max <= 2s", False, False),
        ("hot.max >= 1s", True, True),
        ("hot.p99 <= 900ms", True, False),
        ("hot.p99 <= 2s", False, False),
        ("hot.p50 <= 20ms", True, True),
        ("hot.mean == 0", False, False),
    ],
)
def test_a_gate_on_a_bound(
    make_blocks: MakeBlocks,
    cut: Callable[..., Latency],
    expression: str,
    measured: bool,
    passed: bool,
) -> None:
    whole, short = cut(0.01), cut(0.01, CUT)
    blocks = make_blocks([(whole, short)] * 6, "response_seconds")
    [gate] = judge_gates([expression], pair_blocks(blocks))
    assert (gate.measured is not None, gate.passed) == (measured, passed)
    # Where nothing was cut off it is a number like any other.
    [gate] = judge_gates([expression.replace("hot", "baseline(hot", 1).replace(" ", ") ", 1)],
                         pair_blocks(blocks))  # fmt: skip
    assert gate.measured is not None


@pytest.mark.parametrize(
    ("expression", "measured", "passed"),
    [
        ("ratio(hot.p99) >= 50", True, True),
        ("ratio(hot.p99) <= 50", True, False),
        ("ratio(hot.p99) >= 500", False, False),
        ("ratio(hot.p99) <= 500", False, False),
    ],
)
def test_a_ratio_to_a_bound(
    make_blocks: MakeBlocks,
    cut: Callable[..., Latency],
    expression: str,
    measured: bool,
    passed: bool,
) -> None:
    """The candidate's p99 is at least 100 times the baseline's; turned round, at most 1/100."""
    pair = (cut(0.01), cut(0.01, CUT))
    [gate] = judge_gates([expression], pair_blocks(make_blocks([pair] * 6, "response_seconds")))
    assert (gate.measured is not None, gate.passed) == (measured, passed)
    metric, operator, limit = expression.split(" ")
    other = {">=": "<=", "<=": ">="}[operator]
    turned = pair_blocks(make_blocks([pair[::-1]] * 6, "response_seconds"))
    [gate] = judge_gates([f"{metric} {other} {1 / float(limit)}"], turned)
    assert (gate.measured is not None, gate.passed) == (measured, passed)


@pytest.mark.parametrize("metric", ["hot.p99", "hot.mean"])
def test_an_outcome_of_bounds_holds_upwards_alone(
    make_blocks: MakeBlocks, cut: Callable[..., Latency], metric: str
) -> None:
    whole, short, fast = cut(0.01), cut(0.01, CUT), cut(0.0001, 11)

    def judged(before: Latency, after: Latency) -> tuple[str, str, list[str]]:
        blocks = make_blocks([(before, after)] * 8, "response_seconds")
        verdict = judge(blocks, primary_metric=metric, metrics=[metric])
        [one] = [one for one in verdict.metrics if one.name == metric]
        assert one.pairs == 8
        return one.outcome, one.reason, list(one.at_least)

    assert judged(whole, short) == ("worse", "", ["candidate"])
    assert judged(short, whole) == ("better", "", ["baseline"])
    assert judged(whole, whole)[::2] == ("no_difference", [])
    outcome, reason, arms = judged(short, short)
    assert (outcome, arms) == ("inconclusive", ["baseline", "candidate"])
    assert reason == "baseline and candidate: lower bounds, for requests were cut off"
    if metric == "hot.mean":
        slow = cut(0.5)
        assert judged(slow, fast) == (
            "inconclusive", "candidate: lower bounds, for requests were cut off", ["candidate"]
        )  # fmt: skip


def test_the_table_marks_bounds(make_blocks: MakeBlocks, cut: Callable[..., Latency]) -> None:
    blocks = make_blocks([(cut(0.01), cut(0.01, CUT))] * 8, "response_seconds")
    text = render_verdict(judge(blocks, primary_metric="hot.p99", metrics=["hot.p99"]))
    [row] = [line for line in text.splitlines() if "(primary)" in line]
    assert "≥ 1.00 s" in row
    assert "≥ 100×" in row
    assert row.count("≥") == 2
