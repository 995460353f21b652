"""Random-read curves of disks as tables for people."""

from __future__ import annotations

from nginx_tune.documents.curve import Curve, CurvePoint, Sweep
from nginx_tune.documents.facts import Storage
from nginx_tune.report.quantities import one_line
from nginx_tune.report.screen import Block, Line, Part, Table
from nginx_tune.report.text import bytes_text, number_text, percent_text, seconds_text

_HEAD = ("depth", "reads/s", "±", "p50", "p99", "p99.9", "max", "outliers")
_NUMBERS = range(len(_HEAD))


def named_curves(storage: Storage) -> list[tuple[str, Curve]]:
    """Every curve with the disk, or the disks, that it is of."""
    curves = [(one_line(disk.name), disk.curve) for disk in storage.disks if disk.curve is not None]
    return curves + [(one_line("+".join(one.disks)), one.curve) for one in storage.shared_curves]


def curve_blocks(storage: Storage) -> list[Block]:
    """A block for every curve; none when no disk was measured."""
    blocks = [_curve(name, curve) for name, curve in named_curves(storage)]
    cells = [
        cell
        for block in blocks
        for part in block
        if isinstance(part, Table)
        for row in part.rows
        for cell in row
    ]
    if "–" in cells:
        blocks.append([Line("–: fewer than 10 reads lie beyond it", indent=2)])
    return blocks


def _curve(name: str, curve: Curve) -> Block:
    source = f" ({one_line(curve.target)})" if curve.target else ""
    parts: list[Part] = [Line(f"reads     {name}, {curve.provenance}{source}", "heading")]
    if curve.sequential_bytes_per_second is not None:
        speed = bytes_text(curve.sequential_bytes_per_second)
        parts.append(Line(f"one stream reads on at {speed}/s", indent=2))
    parts += _sweep(curve)
    if curve.small_reads is not None:
        parts += _sweep(curve.small_reads)
    return [*parts, *(Line(one_line(note), indent=2) for note in curve.notes)]


def _sweep(sweep: Sweep) -> Block:
    knee = f"knee at depth {sweep.knee_depth}: " if sweep.knee_depth is not None else ""
    reason = one_line(f"{knee}{sweep.knee_reason}")
    said = f"random reads of {bytes_text(sweep.read_bytes)}" + (f": {reason}" if reason else "")
    table = Table([_HEAD, *map(_point, sweep.points)], right=_NUMBERS, indent=4)
    return [Line(said, indent=2), table]


def _point(point: CurvePoint) -> tuple[str, ...]:
    spread = "" if point.deviation_ratio is None else percent_text(point.deviation_ratio, 2)
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
