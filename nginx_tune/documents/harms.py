"""What of a server's counters is harm: the one place that observations and comparisons read.

A new counter of lost or failed requests is a field of ``ServerMeasurement`` and a row here: then
the screen shows it, ``compare`` judges it, and a log that hides it makes it null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from nginx_tune.documents.measured_server import ServerMeasurement

Weight = Literal["never", "seldom", "sign"]
"""``never``: one is too many. ``seldom``: it happens now and then, so more of them than chance
makes is worse. ``sign``: more of it than before hints at harm, and is none by itself."""

_WORSE_LEVELS = ("error", "crit", "alert", "emerg")


class Harm(NamedTuple):
    """One counter that should stay at zero."""

    name: str
    """Below ``server.``, as comparisons name it."""
    words: str
    """Beside its number: ``12 pool overflows``."""
    weight: Weight
    is_logged: bool = True
    """A field of that name, counted in error logs: null where they hide it."""
    is_kind: bool = True
    """A kind of lines of its own; False for what is part of another row, or all lines together."""
    read: Callable[[ServerMeasurement], int | None] | None = None
    """Null for the field of that name."""

    def counted(self, server: ServerMeasurement) -> int | None:
        """How many there were; null when that is not known."""
        if self.read is not None:
            return self.read(server)
        found: int | None = getattr(server, self.name)
        return found


def error_line_count(server: ServerMeasurement) -> int | None:
    """Lines of level error or worse; null where no log was read."""
    if server.pool_overflow is None and not server.error_lines:
        return None
    return sum(n for level, n in server.error_lines.items() if level in _WORSE_LEVELS)


def _dropped(server: ServerMeasurement) -> int | None:
    return None if server.stub_status is None else server.stub_status.dropped


def _listener_drops(server: ServerMeasurement) -> int | None:
    drops = [one.drops for one in server.listeners]
    return None if not drops or None in drops else sum(n or 0 for n in drops)


HARMS = (
    Harm("pool_overflow", "pool overflows", "never"),
    Harm("operations_too_slow", "slow operations", "never"),
    Harm("connections_exhausted", "connections closed for want of worker_connections", "never"),
    Harm("read_errors", "read errors", "never"),
    Harm("descriptors_exhausted", "calls without a descriptor", "never"),
    Harm("zones_exhausted", "entries without room in a shared zone", "never"),
    Harm("ports_exhausted", "connections without a local port", "never"),
    Harm("space_exhausted", "writes without space", "never"),
    Harm("memory_exhausted", "calls without memory", "never"),
    Harm("workers_crashed", "processes that crashed", "never"),
    Harm("upstream_failures", "upstream failures", "seldom"),
    Harm("upstream_timeouts", "upstream timeouts", "seldom", is_kind=False),
    Harm("resolver_failures", "names not resolved", "seldom"),
    Harm("refused_by_limit", "requests refused by a limit", "seldom"),
    Harm("spilled_to_disk", "answers or bodies in temporary files", "sign", is_kind=False),
    Harm("connections_reused", "idle connections closed to make room", "sign", is_kind=False),
    Harm("stub_status.dropped", "dropped", "never", is_logged=False, is_kind=False, read=_dropped),
    Harm("listeners.drops", "drops", "seldom", is_logged=False, is_kind=False,
         read=_listener_drops),
    Harm("error_lines", "lines of level error or worse", "sign", is_logged=False, is_kind=False,
         read=error_line_count),
)  # fmt: skip
LOGGED = tuple(harm.name for harm in HARMS if harm.is_logged)
"""Fields of ``ServerMeasurement`` that error logs are counted for."""
