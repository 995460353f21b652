"""Random-read curves of disks as tables for people."""

from __future__ import annotations

from nginx_tune.documents.curve import Curve, CurvePoint, Sweep
from nginx_tune.documents.facts import Storage
from nginx_tune.report.columns import align
from nginx_tune.report.text import bytes_text, number_text, plain, seconds_text

_HEAD = ("depth", "reads/s", "±", "p50", "p99", "p99.9", "max", "outliers")
_NUMBERS = range(len(_HEAD))


def render_curves(storage: Storage) -> list[str]:
    """Lines for every curve; none when no disk was measured."""
    curves = [(disk.name, disk.curve) for disk in storage.disks if disk.curve is not None]
    curves += [("+".join(shared.disks), shared.curve) for shared in storage.shared_curves]
    lines = [line for name, curve in curves for line in _curve(name, curve)]
    if any("–" in line for line in lines):
        lines += ["", "  –: fewer than 10 reads lie beyond it"]
    return lines


def _curve(name: str, curve: Curve) -> list[str]:
    source = f" ({curve.target})" if curve.target else ""
    lines = ["", plain(f"reads     {name}, {curve.provenance}{source}")]
    if curve.sequential_bytes_per_second is not None:
        lines.append(f"  one stream reads on at {bytes_text(curve.sequential_bytes_per_second)}/s")
    lines += _sweep(curve)
    if curve.small_reads is not None:
        lines += _sweep(curve.small_reads)
    return [*lines, *(f"  {plain(note)}" for note in curve.notes)]


def _sweep(sweep: Sweep) -> list[str]:
    table = align([_HEAD, *map(_point, sweep.points)], right=_NUMBERS, indent=4).splitlines()
    knee = f"knee at depth {sweep.knee_depth}: " if sweep.knee_depth is not None else ""
    reason = plain(f"{knee}{sweep.knee_reason}")
    return [
        f"  random reads of {bytes_text(sweep.read_bytes)}" + (f": {reason}" if reason else ""),
        *table,
    ]


def _point(point: CurvePoint) -> tuple[str, ...]:
    spread = "" if point.deviation_ratio is None else f"{100 * point.deviation_ratio:.0f} %"
    return (
        str(point.depth),
        number_text(point.reads_per_second),
        spread,
        *map(_seconds, (point.p50_seconds, point.p99_seconds, point.p999_seconds)),
        _seconds(point.max_seconds),
        "" if point.outliers is None else str(point.outliers),
    )


def _seconds(value: float | None) -> str:
    return "–" if value is None else seconds_text(value)
