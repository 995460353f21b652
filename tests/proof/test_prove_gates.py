from collections.abc import Callable

import msgspec
import pytest
from rows import each_row

from nginx_tune.documents.base import decode
from nginx_tune.documents.decisions import Decision, Decisions, Predicted
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Claim, ScenarioRun
from nginx_tune.documents.verdict import Verdict
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.measure.proof.gates import check_expressions, judge_claims, judge_gates
from nginx_tune.measure.proof.metrics import find_metric, metric_names
from nginx_tune.measure.proof.runs import pair_runs
from nginx_tune.measure.proof.verdict import judge, scenario_status, verdict_status

MakeRuns = Callable[..., list[Measurement]]
RATE = "hot.requests_per_second"


def test_gates(make_runs: MakeRuns) -> None:
    runs = make_runs([(100.0, 200.0)] * 6)
    verdict = judge(
        runs,
        primary_metric=RATE,
        requires=[
            "ratio(hot.requests_per_second) >= 2x",
            "hot.requests_per_second > 200",
            "baseline(hot.requests_per_second) == 100",
            "hot.p99 <= 10s",
            "server.pool_overflow >= 0",
            "decision(thread-pools) != enable",
        ],
    )
    assert [gate.passed for gate in verdict.gates] == [True, False, True, False, False, False]
    assert verdict.gates[0].measured == pytest.approx(2.0)
    assert verdict.gates[3].measured is None
    assert verdict.gates[3].reason == "no samples"
    assert verdict.gates[5].reason == "no decisions were made before the first run"
    assert verdict_status(verdict) == ExitStatus.FOUND


@each_row("operator", ["<=", "<", ">=", ">", "==", "!="])
def test_what_was_not_measured_never_passes(make_runs: MakeRuns, operator: str) -> None:
    runs = make_runs([(float("nan"), float("nan"))] * 6)
    for quantity in ("server.listen_drops", f"ratio({RATE})", RATE, "baseline(hot.p99)"):
        verdict = judge(runs, primary_metric=RATE, requires=[f"{quantity} {operator} 0"])
        assert not verdict.gates[0].passed
        assert verdict.gates[0].reason


def test_gates_are_checked_before_the_run() -> None:
    check_expressions(["hot.p99 <= 5ms", "decision(sendfile) == keep"], ["hot"])
    for wrong in ("hott.p99 <= 5ms", "hot.p99 <= 5MB", "ratio(hot.p99) <= 5ms", "hot.p99"):
        with pytest.raises(UsageError):
            check_expressions([wrong], ["hot"])


@each_row(
    ("expression", "said", "hint"),
    [
        ("hot.p99 <= 50", "50 ms or s?", "'hot.p99 <= 50ms' or 'hot.p99 <= 50s'"),
        ("hot.ttfb.p50 < 0.05", "0.05 ms or s?", "'hot.ttfb.p50 < 0.05s'"),
        ("baseline(memory.mean) >= 2", "2 ms or s?", "'baseline(memory.mean) >= 2s'"),
        ("predicted(hot.p99) <= 50", "50 ms or s?", "'predicted(hot.p99) <= 50ms'"),
        ("server.loop_turn_seconds.max <= 1e2", "100 ms or s?", "<= 1e2ms'"),
        ("generator.lateness.p99 != 3", "3 ms or s?", "!= 3s'"),
        ("hot.bytes > 100", "100 MB or B?", "'hot.bytes > 100MB' or 'hot.bytes > 100B'"),
        ("server.resident_bytes_after > 7", "7 MB or B?", "7B'"),
        ("total.bytes_per_second >= 80", "80 MB/s or B/s?", "'total.bytes_per_second >= 80MB/s'"),
        ("hot.truncated <= 0.5", "a count, and 0.5 is not a whole number", "'hot.truncated == 0'"),
        ("total.errors == 1e-3", "a count, and 0.001 is not a whole number", "'total.errors == 0'"),
        ("predicted(ratio(hot.p99)) <= 5ms", "a ratio has no unit but % and x", ""),
        ("server.state_d_ratio <= 5ms", "a ratio has no unit but % and x", ""),
    ],
)
def test_a_number_that_can_be_meant_in_two_ways_is_refused(
    make_runs: MakeRuns, expression: str, said: str, hint: str
) -> None:
    """Before the run, and where a stored run is judged by another gate."""
    classes = ["hot", "memory"]
    with pytest.raises(UsageError) as before:
        check_expressions([expression], classes)
    with pytest.raises(UsageError) as after:
        judge_gates([expression], pair_runs(make_runs([(1.0, 1.0)])), DECISIONS, classes)
    units = {"ms or s?": "units: ns, us, µs, ms, s", "B/s?": "KiB/s, MiB/s", "or B?": "MB, GB"}
    wanted = next((units[end] for end in units if said.endswith(end)), "")
    for caught in (before, after):
        assert wanted in (caught.value.hint or "")
        assert said in caught.value.message
        assert hint in (caught.value.hint or "")
        assert "\n" not in caught.value.message


@each_row("name", metric_names(["hot"]))
def test_bare_numbers_by_the_unit_of_every_metric(name: str) -> None:
    """Times and sizes need a unit, unless the number is 0; all else stands bare, and any ratio."""
    unit = find_metric(name).unit
    check_expressions([f"{name} == 0", f"{name} > 0.0", f"ratio({name}) <= 1.25"], ["hot"])
    check_expressions([f"predicted(ratio({name})) >= 10", f"outcome({name}) != worse"], ["hot"])
    if unit in ("seconds", "bytes", "bytes_per_second"):
        with pytest.raises(UsageError, match="needs its unit"):
            check_expressions([f"{name} <= 50"], ["hot"])
        check_expressions([f"{name} <= 50{'ms' if unit == 'seconds' else 'MB'}"], ["hot"])
    else:
        check_expressions([f"{name} <= 50"], ["hot"])
    if unit == "count":
        check_expressions([f"{name} <= 1.5k"], ["hot"])
        with pytest.raises(UsageError, match="not a whole number"):
            check_expressions([f"{name} <= 50.5"], ["hot"])


DECISIONS = Decisions(
    decisions=[
        Decision(
            id="thread-pools",
            verdict="enable",
            summary="",
            predicted=[Predicted(metric=f"ratio({RATE})", low=20.0, expected=100.0, high=400.0)],
        )
    ]
)


@each_row(
    ("expression", "measured", "held", "reason"),
    [
        (f"ratio({RATE}) >= 10", 2.0, False, ""),
        (f"ratio({RATE}) <= 10", 2.0, True, ""),
        ("decision(thread-pools) == enable", None, True, "it was enable"),
        ("decision(thread-pools) == disable", None, False, "it was enable"),
        ("decision(thread-pools) != disable", None, True, "it was enable"),
        ("decision(reuseport) == keep", None, False, "no decision 'reuseport' was made"),
        (f"predicted(ratio({RATE})) >= 10", 100.0, True, "thread-pools: 20 to 400"),
        (f"predicted( ratio( {RATE} ) ) > 100", 100.0, False, "thread-pools: 20 to 400"),
        ("predicted(hot.p99) >= 0", None, False, "nothing was predicted for hot.p99"),
    ],
)
def test_claims(
    make_runs: MakeRuns, expression: str, measured: float | None, held: bool, reason: str
) -> None:
    claim = Claim(name="n", source_row="A7", expression=expression, source_figure="31×")
    [result] = judge_claims([claim], make_runs([(100.0, 200.0)] * 2), DECISIONS)
    assert result.measured == (None if measured is None else pytest.approx(measured))
    assert (result.held, result.reason) == (held, reason)
    assert (result.expected, result.source_figure) == (expression, "31×")


@each_row(
    ("outcome", "passed", "status", "accepted"),
    [
        ("better", True, 0, 0),
        ("no_difference", True, 0, 0),
        ("better", False, 1, 1),
        ("worse", True, 1, 1),
        ("inconclusive", True, 4, 0),
        ("inconclusive", False, 4, 1),
        ("invalid", True, 4, 4),
    ],
)
def test_exit_statuses(outcome: str, passed: bool, status: int, accepted: int) -> None:
    verdict = decode(
        Verdict,
        msgspec.json.encode(
            {
                "schema": "nginx-tune/verdict/1",
                "outcome": outcome,
                "primary_metric": RATE,
                "gates": [{"expression": "x", "measured": None, "passed": passed}],
            }
        ),
    )
    assert verdict_status(verdict) == status
    assert verdict_status(verdict, accept_inconclusive=True) == accepted


def test_claims_decide_the_status_of_a_scenario(make_runs: MakeRuns) -> None:
    runs = make_runs([(100.0, 200.0)] * 2)
    claims = judge_claims(
        [Claim(name="n", source_row="A7", expression=f"ratio({RATE}) >= 2")], runs
    )
    run = ScenarioRun(
        name="s", prediction=Decisions(), claims=claims, verdict=judge(runs, primary_metric=RATE)
    )
    assert scenario_status(run) == ExitStatus.OK
    failed = [msgspec.structs.replace(claims[0], held=False)]
    assert scenario_status(msgspec.structs.replace(run, claims=failed)) == ExitStatus.FOUND
    invalid = judge([], primary_metric=RATE)
    assert scenario_status(msgspec.structs.replace(run, verdict=invalid)) == ExitStatus.UNDECIDED


def test_a_gate_on_degraded_runs_says_so(make_runs: MakeRuns) -> None:
    runs = make_runs([(100.0, 200.0)] * 6)
    for index in (0, 5):
        flags = ["steal: the hypervisor took 3.0 % of the CPUs' time", "clock: hpet"][: index + 1]
        runs[index] = msgspec.structs.replace(runs[index], flags=flags)
    [gate] = judge_gates(["hot.requests_per_second > 1"], pair_runs(runs))
    assert gate.passed
    assert gate.reason == "degraded by clock (1 of 12 runs), steal (2 of 12 runs)"
