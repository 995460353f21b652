"""``--histogram``: latencies by powers of two, on the screen and as formats of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from nginx_tune.documents.measurement import Measurement

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("histogram-json", "histogram-markdown")


def histogram_option(function: F) -> F:
    """Add ``--histogram LATENCY``."""
    return click.option(
        "--histogram",
        "histograms",
        multiple=True,
        metavar="LATENCY",
        help="Show this latency by powers of two, with min, mean, median, max, stdev and count: a "
        "class (hot), hot.ttfb, server.loop_turn_seconds, all; may repeat. Alone as -f "
        "histogram-json and histogram-markdown (without it: of each class).",
    )(function)


def histogram_text(
    measurements: Sequence[Measurement], names: Sequence[str], *, discard: bool = False
) -> str:
    """What stands below a report on the screen; empty where none was asked for.

    ``discard`` is for the blocks of a run: what its verdict discards is left out.
    """
    if not names:
        return ""
    from nginx_tune.measure.proof.power_of_two import histograms_of  # noqa: PLC0415  # heavy
    from nginx_tune.report.power_of_two import render_histograms  # noqa: PLC0415

    return "\n" + render_histograms(histograms_of(measurements, names, discard=discard))


def histogram_renderers(
    measurements: Sequence[Measurement], names: Sequence[str], *, discard: bool = False
) -> Mapping[str, Callable[[], bytes]]:
    """The two formats that hold histograms alone."""

    def as_json() -> bytes:
        from nginx_tune.documents.base import encode  # noqa: PLC0415  # heavy imports stay here
        from nginx_tune.measure.proof.power_of_two import histograms_of  # noqa: PLC0415

        return encode(histograms_of(measurements, names, discard=discard))

    def as_markdown() -> bytes:
        from nginx_tune.measure.proof.power_of_two import histograms_of  # noqa: PLC0415
        from nginx_tune.report.power_of_two import render_histograms_markdown  # noqa: PLC0415

        found = histograms_of(measurements, names, discard=discard)
        return render_histograms_markdown(found).encode()

    return {"histogram-json": as_json, "histogram-markdown": as_markdown}
