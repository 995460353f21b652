"""A load run that also watches the server, if it runs on this host.

The CPU time that the server used is then not counted as interference. If responses do not name
their worker, the kernel shows the worker of each connection.
"""

import socket
import threading
import time

import msgspec

from nginx_tune.documents.loadplan import LoadPlan, Target
from nginx_tune.documents.measured_server import WorkerUse
from nginx_tune.documents.measurement import Measurement
from nginx_tune.host.door import Host
from nginx_tune.measure.load.probe import ProbeInterrupted, ProbeProgress, run_probe
from nginx_tune.measure.load.target import find_listening_pids, find_socket_pids, find_workers
from nginx_tune.measure.proof.workers import few_connections, with_imbalance, with_interference
from nginx_tune.observe.accounting import read_cpu_seconds
from nginx_tune.observe.connections import count_held


def run_watched_probe(
    plan: LoadPlan, host: Host, *, on_progress: ProbeProgress | None = None
) -> Measurement:
    """Run a load plan; returns its measurement with the server's use of this host.

    Errors: as for ``run_probe``.
    """
    watch = _Watch(plan, host)
    with watch:
        try:
            measurement = run_probe(plan, on_progress=on_progress)
        except ProbeInterrupted as interrupted:
            seen = interrupted.measurement
            raise ProbeInterrupted(None if seen is None else watch.complete(seen)) from None
    return watch.complete(measurement)


class _Watch:
    """Reads the server's processes at the start and the end of the measured time."""

    def __init__(self, plan: LoadPlan, host: Host) -> None:
        target = plan.target
        self._is_here = target.unix is not None or _is_here(target.address)
        self._port = target.port
        self._is_open = any(item.arrivals.kind != "closed" for item in plan.classes)
        self._pids = _listening_pids(host, target) if self._is_here else []
        self._workers = find_workers(host, self._pids)
        self._before: list[float | None] = []
        self._after: list[float | None] = []
        self._held: dict[int, int] = {}
        due = plan.start_at_unix_seconds
        start = plan.warmup_seconds + (max(due - time.time(), 0.0) if due is not None else 0.0)
        end = start + plan.duration_seconds
        self._timers = [
            threading.Timer(start, self._start),
            # Before the connections are closed.
            threading.Timer(max(end - min(0.2, plan.duration_seconds / 2), 0.0), self._look),
            threading.Timer(end, self._end),
        ]

    def __enter__(self) -> None:
        for timer in self._timers if self._pids else []:
            timer.daemon = True
            timer.start()

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    def _start(self) -> None:
        self._before = self._read()

    def _end(self) -> None:
        self._after = self._read()

    def _read(self) -> list[float | None]:
        return [read_cpu_seconds(pid) for pid in self._pids]

    def _look(self) -> None:
        # The kernel does not show the peer of a unix socket's connection.
        held = (count_held(self._pids, {self._port}) or {}) if self._port else {}
        # The master listens too, and accepts none.
        self._held = {pid: count for pid, count in held.items() if count or len(held) == 1}

    def complete(self, measurement: Measurement) -> Measurement:
        """The measurement with the server's CPU time and connections."""
        used = self._cpu_seconds()
        if used is not None:
            measurement = with_interference(measurement, used)
        workers = [WorkerUse(pid=pid, connections=count) for pid, count in self._held.items()]
        if workers and not measurement.server.workers:
            server = msgspec.structs.replace(measurement.server, workers=workers)
            measurement = msgspec.structs.replace(measurement, server=server)
        named = {name for part in measurement.classes.values() for name in part.workers}
        # Idle workers count where responses name workers by process.
        known = {str(pid) for pid in self._workers}
        measurement = with_imbalance(measurement, self._workers if named <= known else ())
        if named or not self._is_open:
            return measurement
        # The kernel's counts are of all classes together.
        few = few_connections("all classes", sum(self._held.values()), len(self._held))
        return msgspec.structs.replace(measurement, flags=[*measurement.flags, *few])

    def _cpu_seconds(self) -> float | None:
        """The server's CPU time in the run; 0 for a server elsewhere, None when unknown."""
        if not self._is_here:
            return 0.0
        before, after = self._before, self._after or self._read()
        if not before or None in before or None in after:
            return None
        return sum((b or 0.0) - (a or 0.0) for a, b in zip(before, after, strict=True))


def _listening_pids(host: Host, target: Target) -> list[int]:
    if target.unix is not None:
        return find_socket_pids(host, target.unix)
    return find_listening_pids(host, target.address, target.port)


def _is_here(address: str) -> bool:
    """True for an address of this host: only such an address can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as attempt:
        try:
            attempt.bind((address, 0))
        except OSError:
            return False
    return True
