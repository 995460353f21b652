"""In how many rounds a claim held."""

from collections.abc import Callable

from rows import each_row

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Claim, ClaimResult
from nginx_tune.measure.proof.gates import judge_claims, with_rounds

MakeRuns = Callable[..., list[Measurement]]


def result(runs: list[Measurement], expression: str, **more: str) -> ClaimResult:
    claims = [Claim(name="c", source_row="B6", expression=expression, **more)]  # type: ignore[arg-type]
    return with_rounds(judge_claims(claims, runs), claims, runs)[0]


@each_row(
    ("expression", "expect", "held", "rounds_held"),
    [
        ("total.truncated == 0", "holds", False, 3),  # one stray in one of four rounds
        ("total.truncated == 0", "fails", True, 1),
        ("baseline(total.truncated) >= 1", "holds", True, 4),
        ("ratio(total.truncated) <= 0.02", "holds", True, 4),
        ("ratio(total.truncated) <= 0.001", "holds", True, 3),
    ],
)
def test_a_claim_says_in_how_many_rounds_it_held(
    make_runs: MakeRuns, expression: str, expect: str, *, held: bool, rounds_held: int
) -> None:
    runs = make_runs([(350, 0), (341, 1), (432, 0), (390, 0)], "truncated")
    found = result(runs, expression, expect=expect)
    assert (found.held, found.rounds, found.rounds_held) == (held, 4, rounds_held)


def test_a_round_that_measured_nothing_does_not_count(make_runs: MakeRuns) -> None:
    runs = make_runs([(0, 0), (341, 1)], "truncated")
    found = result(runs, "ratio(total.truncated) <= 0.02")
    assert (found.rounds, found.rounds_held) == (1, 1)


@each_row(
    "expression",
    ["decision(accept) == keep", "predicted(ratio(hot.mean)) <= 1", "outcome(hot.mean) != better"],
)
def test_what_a_round_alone_cannot_answer_has_no_rounds(
    make_runs: MakeRuns, expression: str
) -> None:
    assert result(make_runs([(1.0, 1.0)] * 2), expression).rounds == 0
