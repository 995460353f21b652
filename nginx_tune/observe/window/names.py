"""What main threads did with names over a window; pure."""

from __future__ import annotations

import msgspec

from nginx_tune.documents.measured_class import Latency
from nginx_tune.host.door import Gaps
from nginx_tune.measure.proof.tally import latency_of
from nginx_tune.observe.parse_opens import NameCalls
from nginx_tune.observe.window.window import Window


class NamesTouched(msgspec.Struct, frozen=True):
    """What main threads did with names."""

    opens: Latency | None = None
    renames: Latency | None = None
    open_reads: dict[str, int] = {}
    """Calls of open() by the disk reads that they asked for."""


def plan_names(window: Window, gaps: Gaps) -> NamesTouched:
    """Calls of open() and rename(), or why they are not known."""
    calls = window.opens
    if isinstance(calls, NameCalls):
        reads = {} if calls.open_reads is None else calls.open_reads
        return NamesTouched(
            latency_of(calls.opens),
            latency_of(calls.renames),
            {str(number): reads[number] for number in sorted(reads)},
        )
    reason = calls.reason if calls else "not asked for"
    gaps["/open_seconds"] = gaps["/rename_seconds"] = reason
    return NamesTouched()
