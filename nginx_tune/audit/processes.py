"""Numbers of the nginx on this host: workers, connections, descriptors, local ports, error logs.

All but the ports come from the main and events contexts. If the main file is not read, only the
ports are known.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import WHOLE_TREE, MissingFacts
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.logs import main_error_logs
from nginx_tune.conf.upstreams import host_of, is_loopback
from nginx_tune.conf.values import parse_count
from nginx_tune.conf.workers import (
    kept_open,
    open_file_caches,
    open_files_share,
    single_process,
)
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
    """A number and its source."""

    value: int
    evidence: Evidence
    place: Directive | None
    """The directive that sets the number; None for nginx's default or a fact of the host."""


def worker_count(context: Context) -> KnownNumber | MissingFacts:
    """The number of workers that nginx starts."""
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
    """The number of workers that can run concurrently on the effective CPUs."""
    cpu = context.facts.cpu
    if cpu.effective is None:
        return MissingFacts(("cpu.effective",))
    value = max(1, ceil(cpu.effective - 0.001))
    return KnownNumber(
        value, Evidence(fact="cpu.effective", value=cpu.effective, unit="CPUs"), None
    )


def usable_cpus(context: Context) -> str:
    """The effective CPUs in words; a quota may be a part of a CPU."""
    number = f"{context.facts.cpu.effective:.3g}"
    return f"{number} CPU{'' if number == '1' else 's'}"


def worker_connections(context: Context) -> KnownNumber | MissingFacts:
    """The connections of one worker."""
    if context.tree.is_part:
        return _THE_MAIN_FILE
    place = events_directive(context, "worker_connections")
    value = None if place is None else parse_count(place.value)
    return _declared("worker_connections", value or DEFAULT_CONNECTIONS, place)


def descriptor_limit(context: Context) -> KnownNumber | MissingFacts:
    """The descriptors that a worker may open."""
    if context.tree.is_part:
        return _THE_MAIN_FILE
    place = context.tree.main.first("worker_rlimit_nofile")
    value = None if place is None else parse_count(place.value)
    if value is not None:
        return _declared("worker_rlimit_nofile", value, place)
    limits = context.facts.limits
    soft = limits.nofile_soft
    if soft is None or limits.nofile_of == "reader":  # the shell's limit
        return MissingFacts(("limits.nofile_soft",))
    return KnownNumber(soft, Evidence(fact="limits.nofile_soft", value=soft), None)


def descriptors_needed(context: Context, connections: int, open_files: int = 0) -> int:
    """Descriptors that a worker needs, including logs and listeners.

    Listeners with ``reuseport`` count once, because the number of workers may not be known.
    """
    at_start = held_at_start(*kept_open(context.tree), 1)
    files = ceil(connections * open_files_share(context.tree))
    return connections + files + at_start + open_files


def and_at_start(context: Context) -> str:
    """A phrase for logs and listeners, if they need many descriptors; otherwise empty."""
    descriptors = sum(kept_open(context.tree))
    return f" and {descriptors} logs and listeners" if descriptors > RESERVE else ""


def raise_descriptors(context: Context, connections: int) -> str:
    """The fix: how to let a worker open enough descriptors, given the host's limits.

    They include those of open_file_cache, so that all rules name one value.
    """
    limits = context.facts.limits
    needed = descriptors_needed(context, connections, sum(open_file_caches(context.tree).values()))
    limit = limit_for(needed)
    line = f"set worker_rlimit_nofile {limit}; in the main context."
    if limits.nr_open is not None and limit > limits.nr_open:
        return f"First raise fs.nr_open (now {limits.nr_open}), then {line}"
    hard = limits.nofile_hard
    if hard is None or limit <= hard or limits.can_raise:
        return line.capitalize()
    if limits.can_raise is None:
        return (
            f"{line.capitalize()} Unless workers may exceed it, first raise the hard limit of "
            f"{hard}."
        )
    return (
        f"First raise the hard limit of {hard}, which workers cannot exceed (LimitNOFILE={limit} "
        "in "
        f"the unit, ulimits of the container), then {line}"
    )


def events_directive(context: Context, name: str) -> Directive | None:
    """The first directive of a name in an events block."""
    for events in context.tree.main.all("events"):
        if events.block is not None and (found := events.block.first(name)) is not None:
            return found
    return None


def main_place(context: Context, *names: str) -> Directive | None:
    """The line to point at if a main directive is absent: one of ``names``, else the first line."""
    for name in names:
        if (found := context.tree.main.first(name)) is not None:
            return found
    return next(iter(context.tree.main), None)


def _declared(name: str, value: int, place: Directive | None) -> KnownNumber:
    fact = name if place is not None else f"{name} (default)"
    return KnownNumber(value, Evidence(fact=fact, value=value, provenance="declared"), place)


def _is_tengine(context: Context) -> bool:
    """True for Tengine, which starts a worker per CPU by default."""
    return context.facts.nginx.product == "tengine"


def lacking(*numbers: KnownNumber | MissingFacts) -> Iterator[MissingFacts]:
    """The missing facts of all numbers that are not known, as one result."""
    facts = {
        fact: None
        for number in numbers
        if isinstance(number, MissingFacts)
        for fact in number.facts
    }
    if facts:
        yield MissingFacts(tuple(facts))


def main_logs(context: Context) -> list[ErrorLog] | MissingFacts:
    """The error logs of the main context, which get everything outside of requests."""
    compiled_in = context.facts.nginx.error_log_path
    if not context.tree.main.all("error_log") and compiled_in is None:
        return MissingFacts(("nginx.error_log_path",))
    paths = main_error_logs(context.tree, compiled_in)
    logs = [log for log in context.facts.error_logs if log.path in paths]
    if logs:
        return logs
    return MissingFacts(tuple(f"error_logs[{path}]" for path in paths) or ("error_logs",))


def lines_seen(log: ErrorLog, what: str, count: int) -> Evidence:
    """Evidence of matching lines in a log, with a remark if only the log's end was read."""
    part = ""
    if not log.complete:
        size = "" if log.bytes_read is None else f"{log.bytes_read >> 20} MiB of "
        part = f"the last {size}" if size else "the end of "
    return Evidence(fact=f"{what} lines in {part}{log.path}", value=count, unit="lines")


_PORT_MESSAGES = frozenset({"ports-used-up", "ports-used-up-ipv6"})
_HTTP_PORT = "80"


def lacking_ports(context: Context, servers: Sequence[str]) -> list[Evidence]:
    """Evidence that connections to servers on this host use up its local ports; empty if none."""
    ports = {_port(server) for server in servers}
    evidence = []
    for log in context.facts.error_logs:
        lines = sum(
            message.lines
            for message in log.messages
            if message.id in _PORT_MESSAGES
            and is_loopback(host_of(message.name))
            and _port(message.name) in ports
        )
        if lines:
            evidence.append(lines_seen(log, "'Cannot assign requested address'", lines))
    if uses_up_ports(context.facts, servers=len(ports)):
        waiting = context.facts.network.tcp.time_wait
        evidence += [
            Evidence(fact="network.tcp.time_wait", value=waiting, unit="connections"),
            Evidence(fact=PORTS_FACT, value=context.facts.kernel.sysctls[PORTS_SYSCTL]),
        ]
    return evidence


def _port(address: str) -> str:
    tail = address.rpartition(":")[2]
    return tail if tail.isdecimal() and tail != address else _HTTP_PORT
