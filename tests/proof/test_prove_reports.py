"""Reports against golden files; ``NGINX_TUNE_WRITE_GOLDEN=1`` writes them anew."""

import os
import re
from pathlib import Path

import msgspec
from rows import each_row

from nginx_tune.documents.decisions import Decision, Decisions, Predicted
from nginx_tune.documents.observation import Cause
from nginx_tune.documents.scenario import ClaimResult, PredictionResult, ScenarioRun, VariantCause
from nginx_tune.documents.verdict import (
    Environment,
    GateResult,
    MetricVerdict,
    SecondsCheck,
    Verdict,
)
from nginx_tune.measure.proof.comparison import COST
from nginx_tune.report.quantities import value_text
from nginx_tune.report.scenario import scenario_screen
from nginx_tune.report.screen import markdown, plain_text
from nginx_tune.report.verdict import verdict_screen

GOLDEN = Path(__file__).parent / "golden"

RATE = MetricVerdict(
    name="hot.requests_per_second", baseline=4.25, candidate=981.4, ratio=230.6, low=228.1,
    high=240.3, level=0.96875, p_value=0.03125, pairs=6, better_when="higher", outcome="better",
)  # fmt: skip

BETTER = Verdict(
    outcome="better",
    primary_metric=RATE.name,
    metrics=[
        RATE,
        MetricVerdict(
            name="hot.mean", baseline=0.9213, candidate=0.00391, ratio=0.00424, low=0.0041,
            high=0.0044, level=0.96875, p_value=0.15625, pairs=6, outcome="inconclusive",
            pairs_needed=8,
            reason="significant alone, but not after the correction for 5 metrics tested together",
        ),
        MetricVerdict(
            name="hot.p99", baseline=None, candidate=0.0121, ratio=None, outcome="inconclusive",
            reason="6 of 6 pairs lack it: p99 not measured: 0 of 34 samples lie beyond it, "
            "10 are needed",
        ),
        MetricVerdict(
            name="total.bytes_per_second", baseline=1.0e9, candidate=1.02e9, ratio=1.02, low=0.99,
            high=1.04, level=0.96875, p_value=1.0, pairs=6, better_when="higher",
            outcome="no_difference", by_seconds=SecondsCheck(low=1.06, high=1.2, level=0.95,
            agrees=False),
        ),
        MetricVerdict(
            name="cold.truncated", baseline=0.0, candidate=0.0, ratio=None, pairs=6,
            outcome="no_difference", reason="the same in every pair",
        ),
    ],
    gates=[
        GateResult(expression="ratio(hot.requests_per_second) >= 10", measured=230.6, passed=True),
        GateResult(
            expression="hot.p99 <= 5ms", measured=0.0121, passed=False, reason=""
        ),
        GateResult(
            expression="server.listen_drops == 0", measured=None, passed=False, reason="no root"
        ),
    ],
    warnings=["memory: 60 of 400 arrivals waited (baseline: 6 of 6 runs)"],
    environment=Environment(
        nginx_version="1.22.1", kernel_release="6.18.5", lab="hdd", seed=7, pairs=6,
        discarded_pairs=1, differences=["listen 80 became 127.0.0.1:8080"],
    ),
)  # fmt: skip


def changed(metric: MetricVerdict, **fields: object) -> MetricVerdict:
    return msgspec.structs.replace(metric, **fields)


UNSETTLED = changed(
    RATE, candidate=4.4, ratio=1.04, low=0.9, high=1.2, outcome="inconclusive",
    reason="the interval includes 1", pairs_needed=40,
)  # fmt: skip

CPU = MetricVerdict(
    name=COST, baseline=48.2e-6, candidate=107e-6, ratio=2.22, low=1.97, high=3.27, level=0.96875,
    p_value=0.03125, pairs=6, better_when="lower", outcome="worse",
)  # fmt: skip

VERDICTS = {
    "verdict-better": BETTER,
    "verdict-inconclusive": Verdict(
        outcome="inconclusive", primary_metric=RATE.name, metrics=[UNSETTLED],
        reason=UNSETTLED.reason, environment=Environment(pairs=6),
    ),
    "verdict-no-difference": Verdict(
        outcome="no_difference", primary_metric=RATE.name,
        metrics=[changed(RATE, ratio=1.0, low=0.98, high=1.02, outcome="no_difference")],
        gates=BETTER.gates[:1], environment=Environment(pairs=6),
    ),
    "verdict-invalid": Verdict(
        outcome="invalid", primary_metric=RATE.name,
        reason="4 of 6 pairs discarded; run 0 (baseline): the probe was late",
        environment=Environment(pairs=2, discarded_pairs=4),
    ),
    "verdict-dear": Verdict(
        outcome="worse", primary_metric=RATE.name, reason=f"{COST}: 2.22 × the baseline's",
        metrics=[
            changed(RATE, candidate=4.26, ratio=1.0, low=0.98, high=1.02, outcome="no_difference"),
            CPU,
        ],
        environment=Environment(pairs=6),
    ),
    "verdict-accepted": Verdict(
        outcome="better", primary_metric=RATE.name, metrics=[RATE, CPU], accept_worse=[COST],
        environment=Environment(pairs=6),
    ),
    "verdict-cheap": Verdict(
        outcome="better", primary_metric=RATE.name, reason=f"{COST}: 0.45 × the baseline's",
        metrics=[
            changed(RATE, candidate=4.26, ratio=1.0, low=0.98, high=1.02, outcome="no_difference"),
            changed(CPU, candidate=21.8e-6, ratio=0.45, low=0.4, high=0.5, outcome="better"),
        ],
        environment=Environment(pairs=6),
    ),
    "verdict-cost-open": Verdict(
        outcome="inconclusive", primary_metric=RATE.name, reason=f"{COST}: the interval includes 1",
        metrics=[
            changed(RATE, candidate=4.26, ratio=1.0, low=0.98, high=1.02, outcome="no_difference"),
            changed(CPU, ratio=1.1, low=0.9, high=1.3, outcome="inconclusive", pairs_needed=30,
                    reason="the interval includes 1"),
        ],
        environment=Environment(pairs=6),
    ),
    "verdict-zero": Verdict(
        outcome="inconclusive", primary_metric="total.errors",
        reason="no ratio: zero in 2 of 4 runs",
        metrics=[
            MetricVerdict(name="total.errors", baseline=341.0, candidate=0.0, ratio=None, pairs=2,
                          outcome="inconclusive", reason="no ratio: zero in 2 of 4 runs"),
        ],
        environment=Environment(pairs=2),
    ),
    "verdict-few": Verdict(
        outcome="inconclusive", primary_metric=RATE.name, reason="3 pairs; at least 6 are needed",
        metrics=[
            changed(RATE, pairs=3, outcome="inconclusive", pairs_needed=6, level=0.75,
                    reason="3 pairs; at least 6 are needed"),
            changed(RATE, name="hot.truncated", baseline=0.0, candidate=0.0, ratio=None, low=None,
                    high=None, pairs=3, outcome="inconclusive",
                    reason="3 pairs; at least 6 are needed"),
            changed(RATE, name="hot.bytes_per_second", pairs=3, outcome="inconclusive",
                    pairs_needed=8, level=0.75, reason="3 pairs; at least 6 are needed",
                    baseline_middle=5.0, candidate_middle=1153.0),
        ],
        environment=Environment(pairs=3),
    ),
    "verdict-failing": Verdict(
        outcome="worse", primary_metric=RATE.name, metrics=[RATE],
        reason="hot: at least 10.0 % of the candidate's requests failed in every run",
        environment=Environment(pairs=6),
    ),
}  # fmt: skip

RUN = ScenarioRun(
    name="thread-pools",
    prediction=Decisions(
        decisions=[
            Decision(
                id="thread-pools",
                verdict="enable",
                summary="the hot volume does not fit in memory",
                predicted=[
                    Predicted(
                        metric=f"ratio({RATE.name})", low=20.0, expected=120.0, high=400.0
                    ),
                    Predicted(metric="ratio(hot.mean)", low=0.01, expected=0.02, high=0.04),
                    Predicted(
                        metric="server.loop_blocked_ratio without pools",
                        low=0.3,
                        expected=0.5,
                        high=0.9,
                    ),
                    Predicted(
                        metric="wait behind cold reads", low=0.1, expected=0.2, high=0.4, unit="s"
                    ),
                ],
            ),
            Decision(id="reuseport", verdict="keep", summary="one worker"),
        ]
    ),
    predictions=[
        PredictionResult(
            decision="thread-pools", metric=f"ratio({RATE.name})", low=20.0, expected=120.0,
            high=400.0, source_figure="31×", measured=230.6, measured_low=228.1,
            measured_high=240.3, inside=True,
        ),
        PredictionResult(
            decision="thread-pools", metric="ratio(hot.mean)", low=0.01, expected=0.02, high=0.04,
            variant="recommended", measured=0.00424, inside=False,
        ),
        PredictionResult(
            decision="thread-pools", metric="server.loop_blocked_ratio without pools", low=0.3,
            expected=0.5, high=0.9, reason="the loop turns were not traced",
        ),
    ],
    claims=[
        ClaimResult(
            name="constant load's rate", source_row="A7", source_figure="31×", measured=230.6,
            expected="ratio(hot.requests_per_second) >= 10", held=True, rounds=6, rounds_held=6,
        ),
        ClaimResult(
            name="none is lost", source_row="B6", source_figure="", measured=1.0,
            expected="total.errors == 0", held=False, rounds=4, rounds_held=3,
        ),
        ClaimResult(
            name="the model said so", source_row="A8", source_figure="", measured=None,
            expected="decision(thread-pools) == enable", held=True, reason="it was enable",
        ),
        ClaimResult(
            name="tail of the memory location", source_row="A1", source_figure="", measured=None,
            expected="ratio(memory.p99) <= 0.1", held=False, reason="baseline: no samples",
        ),
    ],
    causes=[
        VariantCause(
            variant="baseline", runs=6, of_runs=6,
            cause=Cause(
                id="loop-blocked-on-disk", confidence="high",
                summary="the worker's main thread waited for disks 61.2 % of the window",
            ),
        ),
        VariantCause(
            variant="candidate", runs=6, of_runs=6,
            cause=Cause(id="nothing-found", confidence="high", summary="nothing holds it up"),
        ),
        VariantCause(
            variant="another", runs=6, of_runs=6,
            cause=Cause(id="nothing-found", confidence="high", summary="nothing holds it up"),
        ),
        VariantCause(
            variant="candidate", runs=4, of_runs=6,
            cause=Cause(id="not-enough-evidence", confidence="low", summary="nothing was traced"),
        ),
    ],
    verdict=BETTER,
)  # fmt: skip


def check(name: str, text: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("NGINX_TUNE_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@each_row("name", VERDICTS)
def test_verdicts(name: str) -> None:
    check(name, plain_text(verdict_screen(VERDICTS[name])))


def test_too_few_pairs_in_the_time_are_one_number_and_a_command() -> None:
    few = VERDICTS["verdict-few"]
    first = msgspec.structs.replace(few.metrics[0], pairs_needed=688)
    verdict = msgspec.structs.replace(few, stopped="time", metrics=[first], seconds_per_pair=27.1)
    said, way, *_ = plain_text(verdict_screen(verdict)).splitlines()
    assert said.endswith("too few for an outcome, 7 are needed.")
    accept = "Next (--accept-inconclusive accepts it as it is): nginx-tune validate"
    assert way == f"{accept} … --max-time 4min"
    typed = plain_text(verdict_screen(verdict, "nginx-tune validate --plan plan.json"))
    assert f"{accept} --plan plan.json --max-time 4min\n" in typed


def test_scenario_run() -> None:
    check("scenario-run", plain_text(scenario_screen(RUN)))


def test_nothing_from_outside_steers_the_terminal() -> None:
    evil = "a\x1b[2J\nb\u202e"
    metric = changed(RATE, name=evil, reason=evil, outcome="inconclusive")
    verdict = Verdict(
        outcome="inconclusive", primary_metric=evil, reason=evil, metrics=[metric],
        gates=[GateResult(expression=evil, measured=1.0, passed=False, reason=evil)],
        environment=Environment(lab=evil, nginx_version=evil, differences=[evil]),
    )  # fmt: skip
    claim = ClaimResult(
        name=evil, source_row=evil, source_figure=evil, expected=evil, measured=None, held=False,
        reason=evil,
    )  # fmt: skip
    cause = VariantCause(variant=evil, runs=1, of_runs=1, cause=Cause(
        id="nothing-found", confidence="high", summary=evil,
    ))  # fmt: skip
    run = msgspec.structs.replace(RUN, name=evil, claims=[claim], causes=[cause], verdict=verdict)
    for text in (plain_text(verdict_screen(verdict)), plain_text(scenario_screen(run))):
        assert not {"\x1b", "\u202e"} & set(text)
        assert "\nb" not in text


@each_row(
    ("metric", "value", "text"),
    [
        ("hot.p99", 0.0121, "12.1 ms"),
        ("hot.requests_per_second", 981.4, "981/s"),
        ("hot.bytes_per_second", 80 * 2**20, "80.0 MiB/s"),
        ("server.pool_overflow", 101172.0, "101,172"),
        ("generator.cpu_ratio", 0.25, "25 %"),
        ("hot.p99", None, "–"),
        ("of another version", 3.0, "3"),
    ],
)
def test_values_have_their_units(metric: str, value: float | None, text: str) -> None:
    assert value_text(metric, value) == text


def test_rows_that_decide_nothing_are_named_without_their_figures() -> None:
    alike = [
        changed(RATE, name=f"c{n}.mean", ratio=1.0, low=0.9, high=1.1, outcome="no_difference")
        for n in range(30)
    ]
    unmeasured = changed(RATE, name="hot.p99", baseline=None, candidate=None, ratio=None)
    verdict = msgspec.structs.replace(BETTER, metrics=[RATE, CPU, *alike, unmeasured], gates=[])
    shown = plain_text(verdict_screen(verdict), details=False)
    rows = [line for line in shown.splitlines() if re.match(r"(c\d+|hot|server)\.", line)]
    assert [row.split()[0] for row in rows] == [RATE.name, CPU.name]
    assert all(one.name in shown for one in verdict.metrics)
    assert len(plain_text(verdict_screen(verdict)).splitlines()) > len(verdict.metrics)


def test_a_console_counts_usual_notes_and_doubts_and_keeps_what_limits_the_answer() -> None:
    host = "processes other than the probe and the server used 40 % of the host's CPU time"
    runs = "(baseline: 2 of 6 runs, candidate: 1 of 6 runs)"
    verdict = msgspec.structs.replace(
        BETTER,
        warnings=[f"hot: {n} of 99 arrivals waited {runs}" for n in range(4)] + [f"{host} {runs}"],
        environment=Environment(
            differences=[*(f"usual {n}" for n in range(5)), "load: hot requests 4 files of /srv",
                         "not loaded: a.test /x: answers 404"],
        ),
    )  # fmt: skip
    screen = verdict_screen(verdict)
    shown, whole = (plain_text(screen, details=details) for details in (False, True))
    assert shown.splitlines()[1] == whole.splitlines()[1] == "load: hot requests 4 files of /srv"
    for text in ("usual", "arrivals waited"):
        assert (text in shown, text in whole, text in markdown(screen)) == (False, True, True)
    for text in ("  4 more warnings: -v\n", "  5 more notes: -v\n"):
        assert (text in shown, text in whole) == (True, False)
    for text in (f"warning: {host}", "note: not loaded: a.test /x"):
        assert text in shown
