"""What the regret benchmark prints: predictions beside measurements, and the tables."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

HERE = Path(__file__).resolve().parents[2] / "benchmarks" / "regret"
sys.path.insert(0, str(HERE))

import matrix  # noqa: E402
import predicted  # noqa: E402
import table  # noqa: E402

from nginx_tune.documents.decisions import Decision, Decisions, Predicted  # noqa: E402
from nginx_tune.documents.measured_class import ClassMeasurement, Latency  # noqa: E402
from nginx_tune.documents.measured_server import (  # noqa: E402
    ServerMeasurement,
    ServerSecond,
    WorkerUse,
)
from nginx_tune.documents.measurement import Measurement  # noqa: E402
from nginx_tune.documents.scenario import Scenario, ScenarioRun  # noqa: E402
from nginx_tune.documents.verdict import Verdict  # noqa: E402

CANDIDATES = matrix.read_candidates(msgspec.toml.decode((HERE / "candidates.toml").read_bytes()))
SECONDS = 4


def scenario(name: str) -> Scenario:
    tables = msgspec.toml.decode((HERE / "cells" / f"{name}.toml").read_bytes())
    return matrix.scenario_of(name, tables, CANDIDATES, rounds=4, seconds=SECONDS)


MIXED = scenario("07-mixed-hot-cold")
FILE = MIXED.lab.data[0].file_bytes


def block(
    variant: str, number: int, *, hot_mean: float, cold_misses: float = 0.5, blocked: float = 0.3
) -> Measurement:
    """Four seconds of 80 hot and 20 cold files each, then two in which the last are read."""
    read = round(20 * FILE * cold_misses)
    load = [
        ServerSecond(second=n, disk_read_bytes=read, state_d_ratio=blocked) for n in range(SECONDS)
    ]
    drain = [ServerSecond(second=n, disk_read_bytes=10**9, state_d_ratio=1.0) for n in (4, 5)]
    return Measurement(
        variant=variant,
        number=number,
        duration_seconds=SECONDS,
        classes={
            "hot": ClassMeasurement(
                requests=80 * SECONDS,
                bytes_per_second=80 * FILE,
                response_seconds=Latency(count=80 * SECONDS, mean=hot_mean),
            ),
            "cold": ClassMeasurement(requests=20 * SECONDS, bytes_per_second=20 * FILE),
        },
        server=ServerMeasurement(series=[*load, *drain], workers=[WorkerUse(pid=1)]),
    )


def run(blocks: list[Measurement]) -> ScenarioRun:
    expected = [
        Predicted(metric=predicted.HIT_RATIO, low=0.8, expected=0.85, high=0.95),
        Predicted(metric=predicted.BLOCKED_RATIO, low=0.2, expected=0.36, high=0.5),
    ]
    decisions = [Decision(id="thread-pools", verdict="enable", summary="", predicted=expected)]
    return ScenarioRun(
        name=MIXED.name,
        prediction=Decisions(decisions=decisions),
        verdict=Verdict(outcome="inconclusive", primary_metric=MIXED.primary_metric),
        measurements=blocks,
    )


def test_hits_and_blocking_are_of_the_load_and_of_variants_without_pools() -> None:
    """Half of 20 % miss; what is read after the load, or with pools, does not count."""
    blocks = [block("baseline", 0, hot_mean=1.0), block("threads", 1, hot_mean=1.0, blocked=0.0)]
    hits = predicted.compare_hits(run(blocks), MIXED)
    assert hits.measured == pytest.approx(0.9, abs=1e-6)
    assert hits.error == pytest.approx(0.85 / 0.9 - 1)
    blocked = predicted.compare_blocked(run(blocks), MIXED)
    assert blocked.measured == pytest.approx(0.3)
    assert blocked.error == pytest.approx(0.2)


def test_the_tables_have_every_candidate_and_name_what_is_missing() -> None:
    variants = ["baseline", "candidate", *(variant.name for variant in MIXED.variants)]
    blocks = [
        block(
            variant, round_ * len(variants) + place, hot_mean=2.0 if variant == "candidate" else 4.0
        )
        for round_ in range(4)
        for place, variant in enumerate(variants)
    ]
    text = table.render([table.Cell(MIXED.name, MIXED, run(blocks))], ["01-hdd-cold"])
    for variant in variants:
        assert f" {matrix.name_of_variant(variant)} " in text.replace("*", " ")
    assert "| 07-mixed-hot-cold | hot.mean | +0.0% |" in text
    assert "2.00 times stock" in text
    assert "| **recommended** | 2e+03 ms | 2.00 (2.00 to 2.00) |" in text
    assert "- 01-hdd-cold: not measured" in text
