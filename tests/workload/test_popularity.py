"""The curve of popularity and the Zipf law, on objects whose law is known."""

import math
from collections import Counter

from rows import each_row

from nginx_tune.decide.workload.popularity import (
    CURVE_SHARES,
    Counted,
    counted_objects,
    curve_error,
    curve_of,
    fit_zipf,
)
from nginx_tune.documents.learning import ObjectPopularity


def law(exponent: float, ranks: int = 400, most: float = 1e6) -> list[Counted]:
    counts = [round(most / rank**exponent) for rank in range(1, ranks + 1)]
    return [Counted(requests, n, 1000 * n) for requests, n in Counter(counts).items()]


@each_row("exponent", [0.6, 0.8, 1.0, 1.2])
def test_the_exponent_of_a_law_is_found(exponent: float) -> None:
    fit = fit_zipf(law(exponent))
    assert fit is not None
    assert abs(fit.exponent - exponent) <= 2 * fit.error
    assert fit.objects == 400
    assert fit.distance < 0.01


def test_what_follows_no_law_is_far_from_the_fit() -> None:
    flat_with_one = [Counted(1_000_000, 1, 1), Counted(100, 400, 400)]
    fit, of_a_law = fit_zipf(flat_with_one), fit_zipf(law(0.8))
    assert fit is not None
    assert of_a_law is not None
    assert fit.distance > 10 * of_a_law.distance


def test_too_few_objects_or_requests_have_no_law() -> None:
    assert fit_zipf(law(1.0, ranks=9)) is None
    assert fit_zipf([Counted(29, 50, 50)]) is None
    assert fit_zipf([Counted(30, 50, 50)]) is not None
    assert fit_zipf([Counted(300, 9, 9), Counted(30, 50, 50)], known_from_requests=31) is None


def test_the_curve_tells_how_many_bytes_receive_which_share() -> None:
    counted = [Counted(90, 1, 1000), Counted(1, 10, 1000)]
    curve = {share.requests_ratio: share.bytes for share in curve_of(counted)}
    assert tuple(curve) == CURVE_SHARES
    assert curve[0.9] == 1000, "the hot object alone"
    assert curve[0.95] == 1500, "with half of those that are asked for equally often"
    assert curve[1.0] == 2000
    assert list(curve.values()) == sorted(curve.values())


def test_known_objects_stand_for_themselves_and_sampled_ones_for_all_others() -> None:
    """Of the 16 requests for others four are in the sample: each of its objects is four."""
    known, sampled = [(5, 1, 20), (3, 2, 30)], [(3, 1, 10), (1, 1, 20)]
    popularity = ObjectPopularity(
        known=known, sampled=sampled, other_requests=16, known_from_requests=4, size_quantiles=None
    )
    found = counted_objects(popularity)
    assert found == [
        Counted(5, 1, 20), Counted(3, 4, 40, 4.0), Counted(3, 2, 30), Counted(1, 4, 80, 4.0)
    ]  # fmt: skip
    assert sum(item.requests * item.objects for item in found) == 5 + 3 * 2 + 16
    total = 5 + 3 * 2 + 16
    assert curve_error(found) == math.sqrt(4 * (4 - 1) * (3**2 + 1**2)) / total
    assert curve_error(found[::2]) == 0.0
