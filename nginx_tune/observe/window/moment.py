"""The counters of a running server at a moment: processes, disks, memory, sockets, stub_status."""

import contextlib
import http.client
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from nginx_tune.documents.facts_machine import Listening
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.mounts import read_group
from nginx_tune.host.namespaces import in_network_of
from nginx_tune.host.parse_proc import HostCpu, Throttling, parse_host_cpu, parse_throttling
from nginx_tune.observe.accounting import (
    BlockDelayMeter,
    DelayReading,
    read_children,
    read_cpu_seconds,
    read_listen_counters,
)
from nginx_tune.observe.connections import WaitingLook, look_at_waiting
from nginx_tune.observe.parse_counters import (
    DiskCounters,
    Scheduling,
    StatusCounters,
    ThreadCpu,
    parse_diskstats,
    parse_load_average,
    parse_refaults,
    parse_schedstat,
    parse_stub_status,
    parse_swapped_in,
    parse_switches,
    parse_thread_cpu,
    parse_virtual_bytes,
)
from nginx_tune.observe.parse_sock_diag import TurnTaking

T = TypeVar("T")
NOT_ASKED = Missing("not asked")


class StatusPage(NamedTuple):
    """The address of a stub_status page."""

    address: str
    port: int
    path: str
    host: str
    """The Host header, which selects the server."""
    tls: bool = False


class Subjects(NamedTuple):
    """The parts of a host to watch."""

    master: int
    workers: list[int]
    error_logs: tuple[str, ...] = ()
    unread: str = ""
    """The reason why the configuration, which names the logs, was not read; otherwise empty."""
    disks: tuple[str, ...] = ()
    """Names of the disks as in /proc/diskstats."""
    status_page: StatusPage | Missing = NOT_ASKED
    ports: frozenset[int] = frozenset()
    """The ports that nginx listens on."""
    below: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """For each lower disk, the disks of ``disks`` on top of it."""
    access_logs: frozenset[str] = frozenset()
    """Paths of access logs, as this process reaches them."""
    worker_connections: int | None = None
    has_resolver: bool | None = None
    has_ipv6: bool = True
    """True when nginx's network has an IPv6 address."""
    hidden_counts: Mapping[str, str] = MappingProxyType({})
    """For each counter whose lines a log hides, the reason."""


@dataclass(frozen=True)
class Moment:
    """All counters at a moment; unreadable ones are left out or null."""

    at: float
    """Time by the monotonic clock."""
    delays: DelayReading
    children: frozenset[int] | None = None
    """The children of the master."""
    cpu_seconds: dict[int, float] = field(default_factory=dict)
    """CPU time of all threads, by process; the master is included."""
    scheduling: dict[int, Scheduling] = field(default_factory=dict)
    """Scheduling figures by main thread."""
    switches: dict[int, tuple[int, int]] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    virtual_bytes: dict[int, int] = field(default_factory=dict)
    disks: dict[str, DiskCounters] = field(default_factory=dict)
    refaults: int | None = None
    listen_overflows: int | None = None
    listen_drops: int | None = None
    listening: Listening | Missing = NOT_ASKED
    status: StatusCounters | Missing = NOT_ASKED
    thread_cpu: dict[int, ThreadCpu] = field(default_factory=dict)
    """CPU time by main thread."""
    throttling: dict[str, Throttling] = field(default_factory=dict)
    """The workers' control groups with a quota, by directory."""
    host_cpu: HostCpu | None = None
    load_average: float | None = None
    """The host's load average of the last minute."""
    swapped_in: int | None = None
    waiting: WaitingLook | Missing = NOT_ASKED


class MomentReader:
    """Reads the counters of a server at a moment."""

    def __init__(self, host: Host, subjects: Subjects, meter: BlockDelayMeter) -> None:
        self._host = host
        self._subjects = subjects
        self._meter = meter
        self._refaults, self.refault_source = _find_refaults(host, subjects)
        self._quotas = _find_quotas(host, subjects)
        self._turns = TurnTaking()

    def read(self) -> Moment:
        """The present counters; reading takes about a millisecond plus the time of stub_status."""
        subjects = self._subjects
        status = subjects.status_page
        overflows, drops = read_listen_counters(subjects.master)
        main = {pid: Path(f"/proc/{pid}/task/{pid}") for pid in subjects.workers}

        def of_each(name: str, parse: Callable[[str], T | None]) -> dict[int, T]:
            return _known({pid: _parsed(task / name, parse) for pid, task in main.items()})

        return Moment(
            at=time.monotonic(),
            delays=self._meter.read(),
            children=read_children(subjects.master),
            cpu_seconds=_known(
                {pid: read_cpu_seconds(pid) for pid in (subjects.master, *subjects.workers)}
            ),
            scheduling=of_each("schedstat", parse_schedstat),
            switches=of_each("status", parse_switches),
            threads=_known({pid: _count_threads(pid) for pid in subjects.workers}),
            virtual_bytes=of_each("status", parse_virtual_bytes),
            disks=self._read_disks(),
            refaults=None if self._refaults is None else _parsed(self._refaults, parse_refaults),
            listen_overflows=overflows,
            listen_drops=drops,
            listening=attempt(self._host.listening, subjects.master),
            status=status if isinstance(status, Missing) else _ask_status(subjects.master, status),
            thread_cpu=of_each("stat", parse_thread_cpu),
            throttling={
                str(path): found
                for path in self._quotas
                if (found := _parsed(path / "cpu.stat", parse_throttling)) is not None
            },
            host_cpu=_parsed(Path("/proc/stat"), parse_host_cpu),
            load_average=_parsed(Path("/proc/loadavg"), parse_load_average),
            swapped_in=_parsed(Path("/proc/vmstat"), parse_swapped_in),
            waiting=look_at_waiting(subjects.master, subjects.workers, subjects.ports, self._turns),
        )

    def _read_disks(self) -> dict[str, DiskCounters]:
        if not self._subjects.disks:
            return {}
        found = _parsed(Path("/proc/diskstats"), parse_diskstats) or {}
        return {name: found[name] for name in self._subjects.disks if name in found}


def _ask_status(master: int, page: StatusPage) -> StatusCounters | Missing:
    """Read the page in nginx's network namespace: outside, a container's port may differ."""
    try:
        return in_network_of(master, lambda: _read_status(page))
    except OSError as error:
        return Missing(f"stub_status: the network of process {master}: {error.strerror}")


_SECONDS = 2.0
_MOST_BYTES = 4096


def _read_status(page: StatusPage) -> StatusCounters | Missing:
    """The present counters, read within two seconds, since a blocked worker may never answer."""
    connection: http.client.HTTPConnection
    if page.tls:
        # It is this host's own address, whose certificate may not match.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            page.address, page.port, timeout=_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(page.address, page.port, timeout=_SECONDS)
    where = f"{page.path} at {page.address}:{page.port}"
    try:
        connection.request("GET", page.path, headers={"Host": page.host, "Connection": "close"})
        response = connection.getresponse()
        text = response.read(_MOST_BYTES).decode("ascii", "replace")
    except TimeoutError:
        return Missing(f"stub_status {where}: no answer within {_SECONDS:g} s")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Missing(f"stub_status {where}: {getattr(error, 'strerror', None) or error}")
    finally:
        connection.close()
    if response.status != http.client.OK:
        return Missing(f"stub_status {where}: answers {response.status}")
    counters = parse_stub_status(text)
    return Missing(f"stub_status {where}: a different page") if counters is None else counters


def _find_refaults(host: Host, subjects: Subjects) -> tuple[Path | None, str]:
    """The file with the refaults of the workers' cgroup, or else of the host; and its kind."""
    process = str(next(iter(subjects.workers), subjects.master))
    group = read_group(host, "memory", process)
    if not isinstance(group, Missing):
        path = Path(group.directories[0]) / "memory.stat"
        if _parsed(path, parse_refaults) is not None:
            return path, "cgroup"
    path = Path("/proc/vmstat")
    return (path, "host") if _parsed(path, parse_refaults) is not None else (None, "")


def _find_quotas(host: Host, subjects: Subjects) -> list[Path]:
    """The workers' CPU control group and its ancestors, each of which may have a quota."""
    process = str(next(iter(subjects.workers), subjects.master))
    group = read_group(host, "cpu", process)
    return [] if isinstance(group, Missing) else list(map(Path, group.directories))


def _count_threads(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  # only how many
    except OSError:
        return None


def _parsed(path: Path, parse: Callable[[str], T]) -> T | None:
    try:
        return parse(path.read_text(errors="replace"))
    except OSError:
        return None


def _known(values: dict[int, T | None]) -> dict[int, T]:
    return {key: value for key, value in values.items() if value is not None}


def disk_names(device_numbers: Sequence[str]) -> tuple[str, ...]:
    """Names of block devices by ``MAJOR:MINOR``; devices that are gone are left out."""
    names = []
    for number in device_numbers:
        with contextlib.suppress(OSError):
            names.append(
                os.path.realpath(f"/sys/dev/block/{number}", strict=True).rpartition("/")[2]
            )
    return tuple(names)
