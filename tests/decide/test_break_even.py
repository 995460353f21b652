import pytest
from rows import each_row

from nginx_tune.decide.sensitivity import find_flip


@each_row("now", [1.0, 41.9, 42.1, 3000.0])
def test_the_flip_is_found_from_both_sides(now: float) -> None:
    assert find_flip(lambda value: value > 42, now) == pytest.approx(42, rel=1e-5)


def test_a_verdict_that_never_changes_has_no_flip() -> None:
    assert find_flip(lambda _: True, 5.0) is None


def test_from_where_the_verdict_is_another_nothing_is_looked_for() -> None:
    asked: list[float] = []

    def verdict(value: float) -> str:
        asked.append(value)
        return "enable" if value > 42 else "disable"

    assert find_flip(verdict, 50.0, "disable") is None
    assert asked == [50.0]
    assert find_flip(verdict, 50.0, "enable") == pytest.approx(42, rel=1e-5)


@each_row("now", [0.0, -1.0, float("inf"), float("nan")])
def test_from_nowhere_there_is_no_way(now: float) -> None:
    assert find_flip(lambda value: value > 1, now) is None


def test_the_smallest_number_there_is_ends_too() -> None:
    assert find_flip(lambda value: value > 5e-324, 5e-324) is not None
