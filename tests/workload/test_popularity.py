"""The curve of popularity and the Zipf law, on objects whose law is known."""

from __future__ import annotations

from rows import each_row

from nginx_tune.decide.workload.popularity import (
    CURVE_SHARES,
    Counted,
    counted_objects,
    curve_error,
    curve_of,
    fewest_requests,
    fit_zipf,
)
from nginx_tune.documents.learning import LineSample, ObjectSample


def objects(*rows: tuple[int, int, int], level: int = 0) -> ObjectSample:
    """Of hash, requests and size."""
    keys, requests, sizes = map(list, zip(*rows, strict=True))
    gaps = [key - before for key, before in zip(keys, [0, *keys], strict=False)]
    return ObjectSample(level=level, gaps=gaps, requests=requests, sizes=sizes)


def lines(*rows: tuple[int, int, int], level: int = 0) -> LineSample:
    """Of object, times and size."""
    keys, times, sizes = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    return LineSample(level=level, gaps=[1] * len(rows), times=times, objects=keys, sizes=sizes)


def law(exponent: float, ranks: int = 400, most: float = 1e6) -> list[Counted]:
    return [Counted(round(most / rank**exponent), 1000, 1.0) for rank in range(1, ranks + 1)]


@each_row("exponent", [0.6, 0.8, 1.0, 1.2])
def test_the_exponent_of_a_law_is_found(exponent: float) -> None:
    fit = fit_zipf(law(exponent))
    assert fit is not None
    assert abs(fit.exponent - exponent) <= 2 * fit.error
    assert fit.objects == 400
    assert fit.distance < 0.01


def test_what_follows_no_law_is_far_from_the_fit() -> None:
    flat_with_one = [Counted(1e6, 1, 1.0), *[Counted(100.0, 1, 1.0)] * 400]
    fit, of_a_law = fit_zipf(flat_with_one), fit_zipf(law(0.8))
    assert fit is not None
    assert of_a_law is not None
    assert fit.distance > 10 * of_a_law.distance


def test_too_few_objects_or_requests_have_no_law() -> None:
    assert fit_zipf(law(1.0, ranks=9)) is None
    assert fit_zipf([Counted(29.0, 1, 1.0)] * 50) is None
    assert fit_zipf([Counted(30.0, 1, 1.0)] * 50) is not None


def test_the_curve_tells_how_many_bytes_receive_which_share() -> None:
    counted = [Counted(90.0, 1000, 1.0), *[Counted(1.0, 100, 1.0)] * 10]
    curve = {share.requests_ratio: share.bytes for share in curve_of(counted)}
    assert tuple(curve) == CURVE_SHARES
    assert curve[0.9] == 1000, "the hot object alone"
    assert curve[0.95] == 1500, "with half of those that are asked for equally often"
    assert curve[1.0] == 2000
    assert list(curve.values()) == sorted(curve.values())


def test_all_objects_are_counted_until_the_readers_bound() -> None:
    found = counted_objects(objects((7, 3, 10), (8, 5, 20)), None, 8)
    assert found == [Counted(5, 20, 1.0), Counted(3, 10, 1.0)]
    assert curve_error(found) == 0.0


def test_past_it_the_sample_stands_for_the_rest() -> None:
    """Sixteen requests, four of them in the sample: each of its objects is four."""
    found = counted_objects(objects((7, 3, 10), (8, 1, 20), level=2), lines(), 16)
    assert found == [Counted(3, 10, 4.0), Counted(1, 20, 4.0)]
    assert sum(item.requests * item.objects for item in found) == 16
    assert curve_error(found) > 0


def test_an_object_with_enough_sampled_lines_stands_for_itself() -> None:
    sampled = objects((7, 300, 10), (8, 10, 20), level=2)
    known, unknown, rare = (7, 1, 9), (99, 1, 30), (98, 1, 30)
    seen = lines(*[known] * 40, *[unknown] * 16, *[rare] * 15, level=3)
    found = counted_objects(sampled, seen, 468)
    assert found == [Counted(300, 10, 1.0), Counted(16 << 3, 30, 1.0), Counted(10, 20, 4.0)]
    assert sum(item.requests * item.objects for item in found) == 468


def test_lines_that_are_alike_are_no_more_lines() -> None:
    """A log without a time has few different ones: a few of them tell little of all."""
    found = counted_objects(objects((8, 10, 20), level=2), lines((99, 1000, 30), level=3), 40)
    assert found == [Counted(10, 20, 4.0)]


def test_the_fit_takes_what_is_known_by_name() -> None:
    assert fewest_requests(objects((7, 3, 10)), None) == 30
    assert fewest_requests(objects((7, 3, 10), level=2), lines(level=3)) == 32 << 3
