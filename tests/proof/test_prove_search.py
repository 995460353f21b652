"""The strategy of a search: what is measured next, and who is worth a proof."""

import math

from rows import each_row

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.search import (
    RECOMMENDED,
    TODAY,
    Gains,
    Rung,
    challenger,
    gains_of,
    next_rung,
    rank,
)

NAMES = [TODAY, RECOMMENDED, *(f"c{n}" for n in range(8))]


def search_true(values: dict[str, float], names: list[str]) -> tuple[list[Rung], list[Gains]]:
    """The steps where a measurement is the truth."""
    rungs: list[Rung] = []
    steps: list[Gains] = []
    while (rung := next_rung(names, RECOMMENDED, steps)) is not None:
        rungs.append(rung)
        steps.append(
            {n: [values.get(n, 0.0)] * rung.rounds for n in rung.names if n != RECOMMENDED}
        )
    return rungs, steps


def test_each_step_keeps_the_better_half_and_the_recommendation() -> None:
    rungs, steps = search_true({"c5": 0.3, "c2": 0.2, "c7": 0.1, TODAY: -0.5}, NAMES)
    assert [(len(one.names), one.rounds) for one in rungs] == [(10, 1), (5, 1), (3, 2), (2, 2)]
    assert all(RECOMMENDED in one.names for one in rungs)
    assert rungs[1].names == (RECOMMENDED, "c0", "c2", "c5", "c7")
    assert rungs[-1].names == (RECOMMENDED, "c5")
    assert challenger(NAMES, RECOMMENDED, steps) == "c5"
    assert [one.name for one in rank(NAMES, RECOMMENDED, steps)][:2] == ["c5", "c2"]


@each_row(
    "what, values, expected",
    [
        ("all worse", dict.fromkeys(NAMES, -0.2), None),
        ("less better than is worth having", {"c1": 0.04}, None),
        ("today's is better", {TODAY: 0.5, "c1": 0.1}, TODAY),
    ],
)
def test_who_is_measured_anew(what: str, values: dict[str, float], expected: str | None) -> None:
    _, steps = search_true(values, NAMES)
    assert challenger(NAMES, RECOMMENDED, steps) == expected, what


def test_a_variant_that_could_not_be_measured_comes_last_and_goes_first() -> None:
    steps = [{TODAY: [0.0], "c0": [], "c1": [-0.9]}]
    names = [TODAY, RECOMMENDED, "c0", "c1"]
    assert rank(names, RECOMMENDED, steps)[-1].name == "c0"
    following = next_rung(names, RECOMMENDED, steps)
    assert following is not None
    assert "c0" not in following.names


def test_gains_compare_within_a_round_and_know_which_way_is_better() -> None:
    """The host becomes four times as slow between the rounds; no ratio sees it."""
    names = (TODAY, RECOMMENDED, "c0")
    values = {TODAY: 2.0, RECOMMENDED: 1.0, "c0": 0.5}
    runs = [
        Measurement(
            variant=name,
            number=3 * number + place,
            classes={"hot": ClassMeasurement(requests_per_second=values[name] / slower)},
            flags=flags,
        )
        for number, (slower, flags) in enumerate(
            [(1.0, []), (4.0, []), (1.0, ["probe_limited: x"])]
        )
        for place, name in enumerate(names)
    ]
    found = gains_of(runs, names, RECOMMENDED, "hot.requests_per_second")
    assert {name: [round(math.exp(one), 6) for one in gains] for name, gains in found.items()} == {
        TODAY: [2.0, 2.0],
        "c0": [0.5, 0.5],
    }
    lower = gains_of(runs, names, RECOMMENDED, "server.cpu_seconds_per_request")
    assert lower == {TODAY: [], "c0": []}
