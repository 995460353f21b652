"""Tracing of loop turns by the best means that works here, with the reason where none does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from nginx_tune.host.door import Missing
from nginx_tune.host.global_ids import read_global_ids
from nginx_tune.observe.bpftrace import BpftraceTurns, missing_bpftrace
from nginx_tune.observe.trace_pipe import TracefsTurns
from nginx_tune.observe.tracefs import TraceFs, open_tracefs
from nginx_tune.observe.turn_counts import TurnCounts

Means = Literal["auto", "bpftrace", "tracefs", "off"]


class TurnTracer(Protocol):
    """Something that traces turns from its making to ``finish`` or ``kill``."""

    method: str

    @property
    def pid(self) -> int | None:
        """Of a process of its own, whose CPU time is part of the cost."""

    def mark(self) -> None:
        """End a stretch of time; the first mark begins the first one."""

    def finish(self) -> list[TurnCounts]:
        """The stretches between marks; turns open at the last one stand at their age."""

    def kill(self) -> None:
        """End it at once; nothing was seen."""


class Tracing(NamedTuple):
    """A tracer with what its ids mean, or why there is none."""

    tracer: TurnTracer | None
    global_ids: dict[int, int]
    """The kernel's own id by the id that we see."""
    reasons: list[str]
    """Why each better means was not taken."""

    @property
    def reason(self) -> str:
        """All reasons in one line."""
        return "; ".join(self.reasons)


def start_tracing(pids: Sequence[int], means: Means = "auto") -> Tracing:
    """Trace the main threads of these processes: by bpftrace, else by tracefs.

    The caller's thread must live as long as the tracer, which dies with it.
    """
    if means == "off":
        return Tracing(None, {}, ["tracing was turned off"])
    ids = read_global_ids(pids)
    if isinstance(ids, Missing):
        return Tracing(None, {}, [ids.reason])
    if not ids:
        return Tracing(None, {}, ["no worker to trace"])
    tracefs = open_tracefs()
    if isinstance(tracefs, Missing):
        return Tracing(None, ids, [tracefs.reason])
    reasons: list[str] = []
    tracer = None
    if means != "tracefs":
        tracer = _try_bpftrace(ids, tracefs, reasons)
    if tracer is None and means != "bpftrace":
        tracer = _try_tracefs(ids, tracefs, reasons)
    if tracer is None or isinstance(tracer, BpftraceTurns):
        tracefs.close()
    return Tracing(tracer, ids, reasons)


def _try_bpftrace(
    threads: Mapping[int, int], tracefs: TraceFs, reasons: list[str]
) -> TurnTracer | None:
    missing = missing_bpftrace()
    if missing is not None:
        reasons.append(missing.reason)
        return None
    try:
        return BpftraceTurns(threads, tracefs)
    except OSError as error:
        reasons.append(str(error))
        return None


def _try_tracefs(
    threads: Mapping[int, int], tracefs: TraceFs, reasons: list[str]
) -> TurnTracer | None:
    try:
        return TracefsTurns(threads, tracefs)
    except OSError as error:
        reasons.append(f"tracefs: {error.strerror or error}")
        return None
