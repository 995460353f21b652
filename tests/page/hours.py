"""A long run as a load makes it: eight variants, four classes, an hour of blocks, every second
told.
"""

import math
import random

from pages import RATE

from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.measured_class import ClassMeasurement, Latency
from nginx_tune.documents.measured_server import ServerMeasurement, ServerSecond
from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.documents.run import KeptRun, RunSummary
from nginx_tune.documents.scenario import ScenarioRun, VariantText
from nginx_tune.measure.proof.latency import latency_of
from nginx_tune.measure.proof.verdict import judge

VARIANTS = ("baseline", "candidate", *(f"arm-{number}" for number in range(6)))
CLASSES = ("hot", "cold", "api", "large")
_LATENCIES = ("response_seconds", "ttfb_seconds", "service_seconds", "arrival_seconds")


def hour(
    *, rounds: int = 15, block_seconds: int = 30, samples: int = 6000, seed: int = 19
) -> KeptRun:
    """The run; each block has ``samples`` requests of each class, at times that no other has."""
    chance = random.Random(seed)
    measured = [
        _block(chance, variant, number * len(VARIANTS) + place, block_seconds, samples)
        for number in range(rounds)
        for place, variant in enumerate(VARIANTS)
    ]
    compared = [one for one in measured if one.variant in VARIANTS[:2]]
    pairs = [
        Measurement(variant=one.variant, number=number, classes=one.classes)
        for number, one in enumerate(compared)
    ]
    scenario = ScenarioRun(
        name="hour",
        prediction=Decisions(),
        predictions=[],
        claims=[],
        verdict=judge(pairs, primary_metric=RATE, metrics=["hot.p99"]),
        variants=[
            VariantText(variant=variant, nginx_conf=f"# {variant}\n") for variant in VARIANTS
        ],
        measurements=measured,
    )
    summary = RunSummary(
        id="0123456789", kind="scenario", name="hour", started_at="2026-01-02T03:04:05+00:00",
        outcome="better", primary_metric=RATE,
    )  # fmt: skip
    return KeptRun(summary=summary, result=scenario)


def _block(
    chance: random.Random, variant: str, number: int, seconds: int, samples: int
) -> Measurement:
    classes = {
        name: ClassMeasurement(
            requests=samples,
            requests_per_second=samples / seconds * (1 + chance.random() / 20),
            intended=samples,
            **{kind: _latency(chance, samples) for kind in _LATENCIES},
        )
        for name in CLASSES
    }
    series = [
        SeriesPoint(
            second=second,
            classes={
                name: ClassSecond(
                    requests=samples // seconds,
                    bytes=chance.randrange(1 << 30),
                    p50=round(chance.lognormvariate(-5, 0.2), 9),
                    p99=round(chance.lognormvariate(-3, 0.5), 9),
                    max=round(chance.lognormvariate(-2, 0.5), 9),
                )
                for name in CLASSES
            },
        )
        for second in range(seconds)
    ]
    server = [
        ServerSecond(
            second=second,
            requests=chance.randrange(900, 1100),
            cpu_seconds=round(chance.random(), 2),
            block_io_delay_seconds=chance.random(),
            disk_read_bytes=chance.randrange(1 << 28) & ~4095,
        )
        for second in range(seconds)
    ]
    return Measurement(
        variant=variant,
        number=number,
        duration_seconds=float(seconds),
        classes=classes,
        series=series,
        server=ServerMeasurement(series=server),
    )


def _latency(chance: random.Random, samples: int) -> Latency:
    """Of a lognormal distribution, its counts drawn value by value: much faster than by sample."""
    counts = {}
    for step in range(-300, 301):
        place = step / 100
        mean = samples / 100 * math.exp(-place * place / 2) / math.sqrt(2 * math.pi)
        count = round(chance.gauss(mean, math.sqrt(mean)))
        if count > 0:
            counts[round(1e9 * math.exp(-5 + 0.7 * place))] = count
    return latency_of(counts)
