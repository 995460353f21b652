"""The workers of nginx on this host: connections, descriptors, local ports, and their error logs.

All but the ports stand in the main and events contexts, so a part of a configuration says nothing
about them: they stand in the main file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import WHOLE_TREE, MissingFacts
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.logs import main_error_logs
from nginx_tune.conf.upstreams import host_of, is_loopback
from nginx_tune.conf.values import parse_count
from nginx_tune.conf.workers import files_a_connection, kept_open, single_process
from nginx_tune.decide.model.connections import (
    DEFAULT_CONNECTIONS,
    PORTS_FACT,
    PORTS_SYSCTL,
    RESERVE,
    held_at_start,
    limit_for,
    uses_up_ports,
)
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import ErrorLog

_THE_MAIN_FILE = MissingFacts((WHOLE_TREE,))


class KnownNumber(NamedTuple):
    """A number with where it comes from."""

    value: int
    evidence: Evidence
    place: Directive | None
    """The directive that gives it; null for nginx's default or a fact of the host."""


def worker_count(context: Context) -> KnownNumber | MissingFacts:
    """Workers that nginx starts."""
    if context.tree.is_part:
        return _THE_MAIN_FILE
    if (line := single_process(context.tree)) is not None:
        return _declared("master_process off", 1, line)
    place = context.tree.main.first("worker_processes")
    automatic = place.value == "auto" if place is not None else _is_tengine(context)
    if not automatic:
        value = 1 if place is None else parse_count(place.value)
        return _declared("worker_processes", value if value is not None else 1, place)
    cpu = context.facts.cpu
    value = cpu.auto_workers if cpu.auto_workers is not None else cpu.online
    if value is None:
        return MissingFacts(("cpu.online",))
    return KnownNumber(value, Evidence(fact="workers of worker_processes auto", value=value), place)


def fitting_workers(context: Context) -> KnownNumber | MissingFacts:
    """Workers that can run at once."""
    cpu = context.facts.cpu
    if cpu.effective is None:
        return MissingFacts(("cpu.effective",))
    value = max(1, ceil(cpu.effective - 0.001))
    return KnownNumber(
        value, Evidence(fact="cpu.effective", value=cpu.effective, unit="CPUs"), None
    )


def worker_connections(context: Context) -> KnownNumber | MissingFacts:
    """Connections that one worker takes."""
    if context.tree.is_part:
        return _THE_MAIN_FILE
    place = events_directive(context, "worker_connections")
    value = None if place is None else parse_count(place.value)
    return _declared("worker_connections", value or DEFAULT_CONNECTIONS, place)


def descriptor_limit(context: Context) -> KnownNumber | MissingFacts:
    """Descriptors that a worker may have open."""
    if context.tree.is_part:
        return _THE_MAIN_FILE
    place = context.tree.main.first("worker_rlimit_nofile")
    value = None if place is None else parse_count(place.value)
    if value is not None:
        return _declared("worker_rlimit_nofile", value, place)
    limits = context.facts.limits
    soft = limits.nofile_soft
    if soft is None or limits.nofile_of == "reader":  # a shell's says nothing about nginx
        return MissingFacts(("limits.nofile_soft",))
    return KnownNumber(soft, Evidence(fact="limits.nofile_soft", value=soft), None)


def descriptors_needed(context: Context, connections: int, open_files: int = 0) -> int:
    """Descriptors that a worker needs, logs and listeners included.

    Those with ``reuseport`` count once: how many workers there are may not be known.
    """
    at_start = held_at_start(*kept_open(context.tree), 1)
    return connections * (1 + files_a_connection(context.tree)) + at_start + open_files


def and_at_start(context: Context) -> str:
    """Logs and listeners, where they are many, as the end of what descriptors are needed for."""
    held = sum(kept_open(context.tree))
    return f" and {held} logs and listeners" if held > RESERVE else ""


def raise_descriptors(context: Context, needed: int) -> str:
    """The way to give workers that many descriptors, within the limits of the host."""
    limits = context.facts.limits
    wanted = limit_for(needed)
    line = f"worker_rlimit_nofile {wanted}; in the main context."
    if limits.nr_open is not None and wanted > limits.nr_open:
        return f"First a higher fs.nr_open (it is {limits.nr_open}), then {line}"
    hard = limits.nofile_hard
    if hard is None or wanted <= hard or limits.can_raise:
        return line
    if limits.can_raise is None:
        return f"{line} Above {hard} the hard limit must be raised first, unless workers may."
    return (
        f"First a higher hard limit, which is {hard} and which workers cannot raise (LimitNOFILE="
        f"{wanted} of the unit, ulimits of the container), then {line}"
    )


def events_directive(context: Context, name: str) -> Directive | None:
    """The directive of that name in the events block."""
    for events in context.tree.main.all("events"):
        if events.block is not None and (found := events.block.first(name)) is not None:
            return found
    return None


def main_place(context: Context, *names: str) -> Directive | None:
    """The line to speak of what the main context lacks: one of those names, else its first."""
    for name in names:
        if (found := context.tree.main.first(name)) is not None:
            return found
    return next(iter(context.tree.main), None)


def _declared(name: str, value: int, place: Directive | None) -> KnownNumber:
    fact = name if place is not None else f"{name} (default)"
    return KnownNumber(value, Evidence(fact=fact, value=value, provenance="declared"), place)


def _is_tengine(context: Context) -> bool:
    """Tengine starts as many workers as there are CPUs when nothing is said."""
    return context.facts.nginx.product == "tengine"


def lacking(*numbers: KnownNumber | MissingFacts) -> Iterator[MissingFacts]:
    """The facts that those of the numbers lack which are not known."""
    facts = {fact: None for one in numbers if isinstance(one, MissingFacts) for fact in one.facts}
    if facts:
        yield MissingFacts(tuple(facts))


def main_logs(context: Context) -> list[ErrorLog] | MissingFacts:
    """The error logs of the main context, which get everything outside of requests."""
    compiled_in = context.facts.nginx.error_log_path
    if not context.tree.main.all("error_log") and compiled_in is None:
        return MissingFacts(("nginx.error_log_path",))
    wanted = main_error_logs(context.tree, compiled_in)
    logs = [log for log in context.facts.error_logs if log.path in wanted]
    if logs:
        return logs
    return MissingFacts(tuple(f"error_logs[{path}]" for path in wanted) or ("error_logs",))


def lines_seen(log: ErrorLog, what: str, count: int) -> Evidence:
    """Lines in which a log says something; of a long log only the end was read."""
    part = ""
    if not log.complete:
        size = "" if log.bytes_read is None else f"{log.bytes_read >> 20} MiB of "
        part = f"the last {size}" if size else "the end of "
    return Evidence(fact=f"{what} lines in {part}{log.path}", value=count, unit="lines")


_LINES = frozenset({"ports-used-up", "ports-used-up-ipv6"})
_HTTP_PORT = "80"


def lacking_ports(context: Context, servers: Sequence[str]) -> list[Evidence]:
    """Evidence that connections to servers of this host use up its local ports; empty for none."""
    wanted = {_port(one) for one in servers}
    found = []
    for log in context.facts.error_logs:
        lines = sum(
            one.lines
            for one in log.messages
            if one.id in _LINES and is_loopback(host_of(one.name)) and _port(one.name) in wanted
        )
        if lines:
            found.append(lines_seen(log, "'Cannot assign requested address'", lines))
    if uses_up_ports(context.facts, servers=len(wanted)):
        waiting = context.facts.network.tcp.time_wait
        found += [
            Evidence(fact="network.tcp.time_wait", value=waiting, unit="connections"),
            Evidence(fact=PORTS_FACT, value=context.facts.kernel.sysctls[PORTS_SYSCTL]),
        ]
    return found


def _port(address: str) -> str:
    tail = address.rpartition(":")[2]
    return tail if tail.isdecimal() and tail != address else _HTTP_PORT
