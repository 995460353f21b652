from collections.abc import Callable, Sequence

import msgspec
import pytest
from rows import each_row

from nginx_tune.documents.measured_class import ClassMeasurement, Latency, TlsSessions
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import MetricVerdict, Verdict
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.measure.proof.verdict import judge, measure_noise_floor, verdict_status
from nginx_tune.report.screen import plain_text
from nginx_tune.report.verdict import verdict_screen

MakeRuns = Callable[..., list[Measurement]]
MakeLatency = Callable[[Sequence[float]], Latency]
RATE = "hot.requests_per_second"


def of(verdict: Verdict, name: str) -> MetricVerdict:
    return next(metric for metric in verdict.metrics if metric.name == name)


def test_better_worse_and_no_difference(make_runs: MakeRuns) -> None:
    wobble = [0.99, 1.01, 1.0, 1.005, 0.995, 1.002]
    for factor, rate, errors_like in ((2.0, "better", "worse"), (0.5, "worse", "better")):
        pairs = [(100.0, 100.0 * factor * w) for w in wobble]
        verdict = judge(make_runs(pairs), primary_metric=RATE)
        assert verdict.outcome == rate
        assert of(verdict, RATE).ratio == pytest.approx(factor, rel=0.01)
        lower_is_better = judge(make_runs(pairs, "max_pending"), primary_metric="hot.max_pending")
        assert lower_is_better.outcome == errors_like
    same = judge(make_runs([(100.0, 100.0 * w) for w in wobble]), primary_metric=RATE)
    assert same.outcome == "no_difference"
    assert same.reason == ""


def test_what_others_say_decides_where_the_primary_metric_sees_no_difference(
    make_runs: MakeRuns,
) -> None:
    """A cache in front of pages: nothing for a static file, and much for who asks for pages."""

    def outcome(pages: float, hot: float) -> tuple[str, str]:
        runs = []
        for index, run in enumerate(make_runs([(100.0, 100.0 * hot)] * 8)):
            factor = pages if run.variant == "candidate" else 1.0
            item = msgspec.structs.replace(
                run.classes["hot"], requests_per_second=factor * (50 + index / 100)
            )
            runs.append(msgspec.structs.replace(run, classes={**run.classes, "app": item}))
        verdict = judge(runs, primary_metric=RATE)
        return verdict.outcome, verdict.reason

    assert outcome(3.0, 1.0)[0] == "better"
    assert outcome(3.0, 1.0)[1].startswith("app.requests_per_second: 3")
    assert outcome(1.0, 1.0)[0] == "no_difference"
    assert outcome(1 / 3, 1.0)[0] == "worse"
    assert outcome(3.0, 0.5)[0] == "worse"


def test_what_tls_the_variants_spoke_is_said(make_runs: MakeRuns) -> None:
    def spoken(versions: dict[str, str]) -> str:
        runs = []
        for run in make_runs([(100.0, 100.0)] * 2):
            sessions = [TlsSessions(version=versions[run.variant], cipher="X", connections=2)]
            item = msgspec.structs.replace(run.classes["hot"], tls_sessions=sessions)
            runs.append(msgspec.structs.replace(run, classes={"hot": item}))
        verdict = judge(runs, primary_metric=RATE)
        assert {
            one.connections for variant in verdict.environment.tls.values() for one in variant
        } == {4}
        return plain_text(verdict_screen(verdict))

    assert "\n  TLS 1.3 X\n" in spoken({"baseline": "1.3", "candidate": "1.3"})
    apart = spoken({"baseline": "1.3", "candidate": "1.2"})
    assert "\n  baseline: TLS 1.3 X; candidate: TLS 1.2 X\n" in apart
    assert "TLS" not in plain_text(
        verdict_screen(judge(make_runs([(1.0, 1.0)] * 2), primary_metric=RATE))
    )


def test_the_interval_is_the_exact_one(make_runs: MakeRuns) -> None:
    ratios = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    metric = of(judge(make_runs([(10.0, 10.0 * r) for r in ratios]), primary_metric=RATE), RATE)
    assert metric.low == pytest.approx(1.1)
    assert metric.high == pytest.approx(1.6)
    assert metric.level == pytest.approx(0.96875)
    assert metric.p_value == pytest.approx(2 / 64)
    assert (metric.baseline, metric.pairs, metric.better_when) == (10.0, 6, "higher")


@each_row("pairs", range(1, 6))
def test_fewer_than_six_pairs_decide_nothing(make_runs: MakeRuns, pairs: int) -> None:
    for factor in (1.0, 230.0):
        verdict = judge(make_runs([(100.0, 100.0 * factor)] * pairs), primary_metric=RATE)
        assert verdict.outcome == "inconclusive"
        assert "6 are needed" in verdict.reason
        assert of(verdict, RATE).pairs_needed == 6


@each_row("variant", ["baseline", "candidate"])
@each_row(
    ("server", "said"),
    [
        (
            ServerMeasurement(disk_read_errors={"disk1": 1200}, read_errors=7),
            "1,200 of disk1, 7 in",
        ),
        (ServerMeasurement(disk_read_errors={"disk1": 1}), "1 of disk1, in 1 of 6 runs"),
        (ServerMeasurement(read_errors=3), "3 in nginx's error log, in 1 of 6 runs"),
    ],
)
def test_disks_that_fail_reads_make_a_comparison_invalid(
    make_runs: MakeRuns, variant: str, server: ServerMeasurement, said: str
) -> None:
    runs = make_runs([(100.0, 200.0)] * 6)
    place = next(i for i, run in enumerate(runs) if run.variant == variant)
    runs[place] = msgspec.structs.replace(runs[place], server=server)
    verdict = judge(runs, primary_metric=RATE)
    assert verdict.outcome == "invalid"
    assert verdict.reason.startswith(f"disks failed reads (EIO): {variant}: ")
    assert said in verdict.reason
    assert verdict_status(verdict) == ExitStatus.UNDECIDED
    runs[place] = msgspec.structs.replace(
        runs[place], server=ServerMeasurement(read_errors=0, error_lines={"error": 9})
    )
    assert judge(runs, primary_metric=RATE).outcome == "better"


def test_a_small_effect_is_not_worth_having(make_runs: MakeRuns) -> None:
    pairs = [(100.0, 100.0 * r) for r in (1.02, 1.04, 1.03, 1.09, 1.03, 1.04)]
    assert judge(make_runs(pairs), primary_metric=RATE).outcome == "inconclusive"
    assert judge(make_runs(pairs), primary_metric=RATE, margin=0.01).outcome == "better"
    assert judge(make_runs(pairs), primary_metric=RATE, margin=0.2).outcome == "no_difference"


def test_nothing_within_the_noise_floor_is_claimed(make_runs: MakeRuns) -> None:
    runs = make_runs([(100.0, 120.0 + i) for i in range(6)])
    assert judge(runs, primary_metric=RATE).outcome == "better"
    noisy = judge(runs, primary_metric=RATE, noise_floor=0.3)
    assert (noisy.outcome, noisy.reason) == ("inconclusive", "within the noise of this host, 30 %")
    assert of(noisy, RATE).pairs_needed is None
    assert judge(runs, primary_metric=RATE, noise_floor={"hot.p99": 9.0}).outcome == "better"
    assert judge(runs, primary_metric=RATE, noise_floor={RATE: 9.0}).outcome == "inconclusive"


def test_the_noise_floor_is_the_far_end_of_the_interval(make_runs: MakeRuns) -> None:
    floors = measure_noise_floor(
        make_runs([(100.0, 100.0 * r) for r in (0.8, 0.9, 1.0, 1.1, 1.05, 1.02)])
    )
    assert floors[RATE] == pytest.approx(0.25)  # 1 / 0.8 - 1
    assert "hot.truncated" not in floors


def test_secondary_metrics_are_tested_together_and_one_that_is_worse_decides(
    make_runs: MakeRuns,
) -> None:
    def verdict(pairs: int, accept_worse: Sequence[str] = ()) -> Verdict:
        runs = make_runs([(100.0, 230.0 + i) for i in range(pairs)], "requests_per_second")
        doubled = [
            msgspec.structs.replace(
                run,
                classes={
                    "hot": msgspec.structs.replace(
                        run.classes["hot"],
                        **dict.fromkeys(
                            ("bytes_per_second", "max_pending", "at_cap"),
                            run.classes["hot"].requests_per_second,
                        ),
                    )
                },
            )
            for run in runs
        ]
        metrics = ["hot.bytes_per_second", "hot.max_pending", "hot.at_cap"]
        return judge(doubled, primary_metric=RATE, metrics=metrics, accept_worse=accept_worse)

    six = verdict(6)
    # They move together, so six pairs are enough for all of them.
    assert [m.p_value for m in six.metrics] == pytest.approx([2 / 64] * 4)
    assert [m.outcome for m in six.metrics] == ["better", "better", "worse", "worse"]
    assert six.outcome == "worse"
    assert six.reason.startswith("hot.max_pending: 2.3")
    assert "hot.at_cap" in six.reason
    assert verdict_status(six) == ExitStatus.FOUND
    accepted = verdict(6, accept_worse=["hot.max_pending", "hot.at_cap"])
    assert (accepted.outcome, verdict_status(accepted)) == ("better", ExitStatus.OK)
    assert [m.outcome for m in accepted.metrics] == [m.outcome for m in six.metrics]
    with pytest.raises(UsageError, match="primary metric"):
        verdict(6, accept_worse=[RATE])


def test_a_mean_against_the_rate_of_the_same_users_is_not_judged(
    make_runs: MakeRuns, latency: MakeLatency
) -> None:
    """In a closed loop more of a slow variant's requests still wait when a run ends."""

    def judged(rate: float) -> Verdict:
        runs = make_runs([(latency([0.7] * 40), latency([0.8] * 40))] * 6, "response_seconds")
        faster = [
            msgspec.structs.replace(
                run,
                classes={
                    "hot": msgspec.structs.replace(run.classes["hot"], requests_per_second=20.0),
                    "memory": ClassMeasurement(requests_per_second=100.0),
                },
            )
            if run.variant == "baseline"
            else msgspec.structs.replace(
                run,
                classes={
                    "hot": msgspec.structs.replace(run.classes["hot"], requests_per_second=rate),
                    "memory": ClassMeasurement(requests_per_second=300.0),
                },
            )
            for run in runs
        ]
        return judge(faster, primary_metric="memory.requests_per_second")

    mean = of(judged(24.0), "hot.mean")
    assert (mean.judged, mean.outcome) == (False, "inconclusive")
    assert "same users" in mean.reason
    assert judged(24.0).outcome == "better"
    assert of(judged(20.0), "hot.mean").outcome == "worse"
    assert judged(20.0).outcome == "worse"


def test_zeros_have_no_ratio_and_are_judged_by_differences(make_runs: MakeRuns) -> None:
    overflowing = judge(
        make_runs([(0, 40 + i) for i in range(6)], "truncated"), primary_metric="hot.truncated"
    )
    metric = of(overflowing, "hot.truncated")
    assert (metric.outcome, metric.ratio) == ("worse", None)
    assert metric.reason == "no ratio: zero in 6 of 12 runs"
    once = judge(make_runs([(0, 0)] * 5 + [(0, 9)], "truncated"), primary_metric="hot.truncated")
    assert once.outcome == "inconclusive"
    never = judge(make_runs([(0, 0)] * 6, "truncated"), primary_metric="hot.truncated")
    assert never.outcome == "no_difference"
    few = judge(make_runs([(0, 0)] * 5, "truncated"), primary_metric="hot.truncated")
    assert few.outcome == "inconclusive"


def test_an_unmeasured_primary_metric_is_no_verdict(
    make_runs: MakeRuns, latency: MakeLatency
) -> None:
    few, many = latency([0.01] * 30), latency([0.01] * 2000)
    verdict = judge(make_runs([(few, many)] * 6, "response_seconds"), primary_metric="hot.p99")
    assert verdict.outcome == "invalid"
    assert "0 of 30 samples lie beyond it, 10 are needed" in verdict.reason


def test_a_tail_too_thin_for_pairs_is_compared_whole(
    make_runs: MakeRuns, latency: MakeLatency
) -> None:
    slow, fast = latency([0.5] * 400), latency([0.01] * 400)
    runs = make_runs([(slow, fast)] * 6, "response_seconds", requests_per_second=5.0)
    verdict = judge(
        runs, primary_metric=RATE, metrics=["hot.p99"], requires=["ratio(hot.p99) <= 0.1"]
    )
    tail = of(verdict, "hot.p99")
    assert tail.ratio == pytest.approx(0.02, rel=2e-3)
    assert (tail.low, tail.pairs, tail.outcome) == (None, 0, "inconclusive")
    assert verdict.gates[0].passed


def test_a_run_that_lacks_a_metric_is_not_left_out(
    make_runs: MakeRuns, latency: MakeLatency
) -> None:
    enough, thin = latency([0.01] * 2000), latency([0.01] * 500)
    pairs = [(enough, enough)] * 7 + [(enough, thin)]
    verdict = judge(make_runs(pairs, "response_seconds"), primary_metric="hot.p99")
    assert of(verdict, "hot.p99").reason.startswith("1 of 8 pairs lack it")


def test_too_little_left_is_invalid(make_runs: MakeRuns) -> None:
    runs = make_runs([(100.0, 200.0)] * 7)
    for index in range(0, 8, 2):
        runs[index] = msgspec.structs.replace(runs[index], flags=["lateness: hot: late"])
    verdict = judge(runs, primary_metric=RATE)
    assert verdict.outcome == "invalid"
    assert verdict.reason == "4 of 7 pairs discarded; run 0 (baseline): lateness: hot: late"
    assert judge([], primary_metric=RATE).outcome == "invalid"


def test_faster_but_failing_is_worse(make_runs: MakeRuns) -> None:
    runs = make_runs([(100.0, 900.0)] * 6)
    failing = [
        msgspec.structs.replace(
            run,
            classes={
                "hot": ClassMeasurement(
                    requests=900,
                    requests_per_second=900.0,
                    errors={"truncated": 100},
                    truncated=100,
                )
            },
        )
        if run.variant == "candidate"
        else run
        for run in runs
    ]
    verdict = judge(failing, primary_metric=RATE)
    assert of(verdict, RATE).outcome == "better"
    assert verdict.outcome == "worse"
    assert "at least 10 % of the candidate's requests failed" in verdict.reason


def test_server_metrics_are_judged_too(make_runs: MakeRuns) -> None:
    runs = [
        msgspec.structs.replace(
            run, server=ServerMeasurement(cpu_seconds_per_request=1e-5 * (1 + run.number % 2))
        )
        for run in make_runs([(100.0, 100.0)] * 6)
    ]
    verdict = judge(runs, primary_metric="server.cpu_seconds_per_request")
    assert verdict.outcome == "worse"
    assert of(verdict, "server.cpu_seconds_per_request").ratio == pytest.approx(2.0)
