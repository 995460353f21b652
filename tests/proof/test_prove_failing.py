"""Requests that fail in both variants, and what is said of a candidate whose requests fail."""

from collections.abc import Callable
from typing import Any

import msgspec
from rows import each_row

from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import ExitStatus
from nginx_tune.measure.proof.runs import unjudged_classes, with_limits
from nginx_tune.measure.proof.verdict import judge, verdict_status
from nginx_tune.report.verdict import verdict_sentence

RATE = "hot.requests_per_second"
FAILS = "hot: at least 98 % of the candidate's requests failed in every run"
MakeRuns = Callable[..., list[Measurement]]


def failing(runs: list[Measurement], *failed: int) -> list[Measurement]:
    """The runs with so many of a hundred requests failed, by turns of baseline and candidate."""

    def changed(run: Measurement, count: int) -> Measurement:
        part: Any = msgspec.structs.replace(
            run.classes["hot"], requests=100 - count, errors={"status": count} if count else {}
        )
        return msgspec.structs.replace(run, classes={"hot": part})

    return [changed(run, failed[index % len(failed)]) for index, run in enumerate(runs)]


@each_row("primary", [RATE, "server.cpu_seconds_per_request"])
def test_nothing_is_said_of_what_failed_in_both(make_runs: MakeRuns, primary: str) -> None:
    runs = make_runs([(100.0, 200.0)] * 6)
    verdict = judge(failing(runs, 98, 97), primary_metric=primary)
    assert verdict.outcome == "invalid"
    assert verdict_status(verdict) is ExitStatus.UNDECIDED
    sentence = verdict_sentence(verdict)
    assert "failed in every run, so it cannot be judged" in sentence
    assert "98" in sentence
    assert "97" in sentence


@each_row("failed", [(0, 0), (98, 0), (0, 98), (20, 20), (98, 98, 98, 30), (49, 98, 98, 98)])
def test_what_one_run_answered_is_judged(make_runs: MakeRuns, failed: tuple[int, ...]) -> None:
    runs = make_runs([(100.0, 200.0)] * 6)
    verdict = judge(failing(runs, *failed), primary_metric=RATE)
    assert "in both" not in verdict.reason
    assert verdict.outcome != "invalid"


def test_what_is_lost_stays_worse(make_runs: MakeRuns) -> None:
    runs = failing(make_runs([(100.0, 200.0)] * 6), 98, 97)
    assert judge(runs, primary_metric=RATE, lost=["a"]).outcome == "worse"


@each_row(
    ("pairs", "candidate", "said"),
    [
        (1, 1.0, f"The candidate is worse: {FAILS}; hot requests/s is 0.01× the baseline's"),
        (6, 200.0, "With the candidate, hot requests/s is 2.00×"),
    ],
)  # fmt: skip
def test_a_candidate_that_fails_is_called_so(
    make_runs: MakeRuns, pairs: int, candidate: float, said: str
) -> None:
    """``but`` stands only where what decides is no worse."""
    runs = failing(make_runs([(100.0, candidate)] * pairs), 0, 98)
    sentence = verdict_sentence(judge(runs, primary_metric=RATE))
    assert sentence.startswith(said)
    assert (", but it is worse: hot: at least 98 %" in sentence) is (pairs == 6)


def limited(runs: list[Measurement], *refused: int, **others: int) -> list[Measurement]:
    """The runs with so many requests refused beside a hundred good ones, by turns."""

    def changed(run: Measurement, count: int) -> Measurement:
        part: Any = msgspec.structs.replace(
            run.classes["hot"],
            requests=100,
            errors={"status": count + others.get("status", 0), "reset": 1},
            statuses={"200": 100, "429": count},
        )
        run = msgspec.structs.replace(run, classes={"hot": part})
        return with_limits(run, {"hot": [429], "gone": [503]})

    return [changed(run, refused[index % len(refused)]) for index, run in enumerate(runs)]


def test_a_faster_candidate_that_meets_a_limit_more_often_is_better(make_runs: MakeRuns) -> None:
    runs = limited(make_runs([(100.0, 600.0)] * 6), 10, 800)
    gates = ["hot.limited <= 100", "hot.errors <= 6"]
    verdict = judge(runs, primary_metric=RATE, requires=gates)
    assert verdict.outcome == "better"
    assert [gate.passed for gate in verdict.gates] == [False, True]
    (said,) = [one for one in verdict.warnings if "limit" in one]
    assert said.startswith("hot: 60 of 666 (baseline) and 4,800 of 5,406 (candidate) requests")
    assert "hot.limited" not in [one.name for one in verdict.metrics]


def test_what_no_limit_answers_stays_a_failure(make_runs: MakeRuns) -> None:
    (run, _) = limited(make_runs([(100.0, 100.0)]), 5, status=3)
    assert run.classes["hot"].errors == {"reset": 1, "status": 3}
    assert run.classes["hot"].limited == 5


@each_row(
    ("variant", "errors", "requests", "said"),
    [
        ("baseline", {"length": 3}, 900, "3 responses differ in length from the file"),
        ("candidate", {"range": 1}, 900, "1 responses contain another part"),
        ("baseline", {"status": 900}, 100, "900 of 1,000 requests failed"),
        ("candidate", {"status": 900}, 100, ""),
        ("baseline", {"status": 90}, 910, ""),
    ],
)
def test_a_run_that_tells_nothing_of_a_class_is_known_at_once(
    make_runs: MakeRuns, variant: str, errors: dict[str, int], requests: int, said: str
) -> None:
    (run, _) = make_runs([(100.0, 100.0)])
    part = msgspec.structs.replace(run.classes["hot"], errors=errors, requests=requests)
    run = msgspec.structs.replace(run, variant=variant, classes={"hot": part})
    found = unjudged_classes(run)
    assert [text.startswith(said) for text in found.values()] == ([True] if said else [])
