"""One run: a fresh nginx in a known cache state under load, measured at client and server.

The page cache starts empty, full, or with all of the data. nginx may have written to the lab's
directories, so files there are opened without following links.
"""

import contextlib
import errno
import http.client
import os
import random
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from nginx_tune.documents.base import Unknown
from nginx_tune.documents.loadplan import LoadPlan, Target
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.progress import Progress
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.operations import RunRequest, may_come_from
from nginx_tune.experiment.scratch_server import kernel_settings, reloading, start_stand_in
from nginx_tune.experiment.survey import TargetConnection, check_memory
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.measure.proof.runs import with_limits
from nginx_tune.measure.proof.workers import (
    with_imbalance,
    with_interference,
    with_late_watch,
    with_worker_ids,
)
from nginx_tune.nginx.instance import RunningNginx, start_instance
from nginx_tune.nginx.lab.building import OpenLab
from nginx_tune.nginx.lab.cgroups import count_memory_kills
from nginx_tune.nginx.lab.disks import evict
from nginx_tune.nginx.lab.enclosure import STATE, Enclosure, own_file
from nginx_tune.nginx.place import Door
from nginx_tune.observe.connections import count_connections
from nginx_tune.observe.parse_counters import ErrorLogCounts, logged_messages, parse_error_log
from nginx_tune.observe.tracing import Means
from nginx_tune.observe.window.moment import Subjects, disk_names
from nginx_tune.observe.window.watch import ServerWatch
from nginx_tune.report.probing import share_step
from nginx_tune.sandbox.covers import open_below, open_files

_NAME = re.compile(r"[0-9a-f]{32}")
"""The name of a complete cache file: the MD5 of its key."""
_POLL_SECONDS = 0.05
_BARE_LOG = STATE / "connections.log"
"""Log of a bare server in nginx's place, which runs outside of the sandbox."""


def measure_run(request: RunRequest, lab: OpenLab, progress: Progress) -> Measurement:
    """Start a fresh nginx, load it, and stop it; ``progress`` is called every second of the load.

    Errors: UndecidedError if the cache state cannot be made or nginx ends under load.
    """
    if request.variant.conf_text is not None:
        conf = own_file(request.variant.conf_path)
        conf.parent.mkdir(parents=True, exist_ok=True)
        conf.write_text(request.variant.conf_text)
    disks = lab.disks.paths.values()
    lab.disks.restore()
    _fill_caches(request, lab)
    # A warm start reads all files anyway, and dropping many of them first would take seconds.
    is_warm = request.variant.conduct.starts == "warm"
    resident_before = None if is_warm else make_cold(disks)
    lab.disks.make_names_cold()
    if request.variant.conduct.warm_names:
        lab.disks.look_names_up()
    if is_warm:
        resident_before = make_warm(disks)
    elif request.variant.conduct.starts == "full" and request.memory_bytes is not None:
        make_full(
            disks,
            limit_bytes=request.memory_bytes,
            join_files=request.join_files,
            seed=request.plan.seed,
        )
        resident_before = resident_bytes(disks)
    kills = count_memory_kills(request.join_files)
    try:
        return _measure(request, lab, resident_before, progress)
    finally:
        check_memory(
            request.variant.name,
            request.join_files,
            kills,
            has_limit=request.memory_bytes is not None,
        )


def wait_for_cached(directories: Collection[Path], count: int, *, patience_seconds: float) -> None:
    """Wait until the caches hold ``count`` responses.

    nginx caches a response after the client has all of it, and with ``aio_write`` even later.
    Errors: UndecidedError if the responses do not appear in time.
    """
    deadline = time.monotonic() + patience_seconds
    while (held := _count_cached(directories)) < count:
        if time.monotonic() > deadline:
            raise UndecidedError(
                f"the caches hold {held} of the {count} responses requested to fill them",
                hint="the responses must be cacheable and fit on the disks (room_bytes)",
            )
        time.sleep(_POLL_SECONDS)


def _count_cached(directories: Collection[Path]) -> int:
    return sum(
        1
        for directory in directories
        for _, _, names in os.walk(directory)
        for name in names
        if _NAME.fullmatch(name) is not None
    )


def _fill_caches(request: RunRequest, lab: OpenLab) -> None:
    """Fill the variant's caches, at the speed of unlimited disks."""
    if not request.variant.conduct.cached:
        return
    stderr_path = STATE / f"{request.variant.name}.stderr"
    instance = _start(request, stderr_path, lab)
    try:
        with _with_doors(request, instance.pid) as reached:
            _prime(reached.plan.target, request.variant.conduct.cached)
        wait_for_cached(
            lab.disks.paths.values(),
            len(request.variant.conduct.cached),
            patience_seconds=_PRIME_SECONDS,
        )
        instance.check()
    finally:
        instance.stop()


def _load_cache_index(request: RunRequest, lab: OpenLab) -> None:
    """Have nginx load the index of its caches; a cold page cache is emptied again.

    The cache loader starts a minute after nginx. Until then, if a page's first two requests
    overlap, the second fetches and writes it again.
    Source: ngx_http_file_cache_exists: the node is there, but ``exists`` is set only once the first
            request has read the header.
    """
    _prime(request.plan.target, request.variant.conduct.cached)
    if request.variant.conduct.starts == "cold":
        make_cold(lab.disks.paths.values())


def _measure(
    request: RunRequest, lab: OpenLab, resident_before: int | None, progress: Progress
) -> Measurement:
    stderr_path = STATE / f"{request.variant.name}.stderr"
    log = request.variant.error_log or str(stderr_path)
    log_start = lab.enclosure.written_bytes(log) if request.variant.error_log else 0
    with kernel_settings(request.variant.conduct.sysctls), contextlib.ExitStack() as doors:
        instance = _start(request, stderr_path, lab)
        try:
            request = doors.enter_context(_with_doors(request, instance.pid))
            if request.variant.conduct.cached and not lab.disks.has_cold_names:
                _load_cache_index(request, lab)
            _prime(request.plan.target, request.variant.prime)
            conduct = request.variant.conduct
            reloads = reloading(
                instance.pid,
                request.variant.conf_path,
                conduct.reload_texts,
                conduct.reload_seconds,
            )
            with reloads, lab.disks.under_load():
                measurement, server = _run_load(request, instance, lab, progress)
            instance.check()
        finally:
            instance.stop()
    try:
        with _open_log(log, stderr_path, lab.enclosure) as file:
            file.seek(log_start)
            lines = iter(lambda: file.readline(_MOST_LINE_BYTES), b"")
            server = _with_log(server, parse_error_log(lines))
    except _NothingKeptError:
        reason = f"the error log {log} is a device, which keeps nothing"
        gaps = [Unknown(path=f"/server/{name}", reason=reason) for name in _FROM_THE_LOG]
        measurement = msgspec.structs.replace(measurement, unknown=[*measurement.unknown, *gaps])
    server = msgspec.structs.replace(
        server,
        disk_read_errors=lab.disks.read_errors,
        resident_bytes_before=resident_before,
        resident_bytes_after=resident_bytes(lab.disks.paths.values()),
        refused_calls=instance.refused_calls(),
    )
    return msgspec.structs.replace(
        measurement, variant=request.variant.name, number=request.number, server=server
    )


def _with_log(server: ServerMeasurement, counts: ErrorLogCounts) -> ServerMeasurement:
    return msgspec.structs.replace(
        server,
        pool_overflow_by_pool=counts.by_name("pool_overflow"),
        error_lines=dict(counts.levels),
        log_messages=logged_messages(counts),
        **{name: counts.count(name) for name in _FROM_THE_LOG},
    )


class _NothingKeptError(Exception):
    """The error log is a device, which keeps nothing to read."""


def _open_log(log: str, stderr_path: Path, enclosure: Enclosure) -> BinaryIO:
    """The error log, or standard error if nginx never opened its log.

    Errors: UndecidedError if nginx, or code that it loaded, replaced the log with something else;
            _NothingKeptError for a device such as /dev/null.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            return enclosure.open_written(log)
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise _NothingKeptError from None
            if error.errno not in {errno.ELOOP, errno.EINVAL}:
                raise
            raise UndecidedError(
                f"{log} is now a link, a pipe or a directory, so the error log of this run cannot "
                "be read",
                hint="name another error_log in the main context",
            ) from None
    return stderr_path.open("rb")


def _start(request: RunRequest, stderr_path: Path, lab: OpenLab) -> RunningNginx:
    target = request.plan.target
    lab.enclosure.make_room(filter(None, (target.unix for target in _targets(request.plan))))
    if request.variant.conduct.stand_in != "none":
        return start_stand_in(
            request.variant.conduct.stand_in,
            port=target.port,
            workers=request.variant.conduct.workers,
            log=_BARE_LOG if request.variant.conduct.connections_log else Path(os.devnull),
            stderr_path=stderr_path,
            cpus=request.nginx_cpus,
        )
    return start_instance(
        request.binary,
        Path(request.variant.conf_path),
        stderr_path=stderr_path,
        address=target.unix or (target.address, target.port),
        prefix=request.variant.prefix,
        join_files=[Path(file) for file in request.join_files],
        cpus=request.nginx_cpus,
        ahead=request.variant.conduct.ahead,
        sandbox=lab.enclosure.prepare([request.binary]),
    )


def _run_load(
    request: RunRequest, instance: RunningNginx, lab: OpenLab, progress: Progress
) -> tuple[Measurement, ServerMeasurement]:
    subjects = Subjects(
        master=instance.pid,
        workers=instance.workers(),
        disks=disk_names(list(lab.disks.device_numbers.values())),
        ports=frozenset(_ports(request.plan)),
    )
    before: dict[str, int] = {}
    conduct = request.variant.conduct
    connections = conduct.connections_log
    if connections is not None and conduct.stand_in != "none":
        connections = str(_BARE_LOG)  # it runs outside of the sandbox
    means: Means = "auto" if conduct.traces else "off"
    ids = instance.inner_ids()
    with ServerWatch(LiveHost(), subjects, means=means, opens=conduct.counts_opens) as watch:

        def start_measuring() -> None:
            seen = lab.enclosure.written_bytes(connections) if connections else 0
            before["connections"] = seen
            watch.start()

        # The probe cuts its own warm-up; the server's counters start after it.
        timer = threading.Timer(request.plan.warmup_seconds, start_measuring)
        started = time.monotonic()
        timer.start()
        try:
            measurement = lab.topology.from_clients(
                lambda: run_probe(
                    request.plan,
                    on_progress=lambda line: progress(
                        share_step(line, request.plan, request.variant.name)
                    ),
                )
            )
        finally:
            timer.cancel()
            timer.join()
        if not before:
            raise UndecidedError(
                f"the load run ended after {time.monotonic() - started:.1f} s, in its warm-up"
            )
        server, gaps = watch.finish()
    ids |= instance.inner_ids()  # workers that a reload started
    measurement = with_worker_ids(measurement, ids)
    measurement = with_limits(measurement, request.variant.limited)
    requests = sum(item.requests + item.limited for item in measurement.classes.values())
    used = server.cpu_seconds
    server = msgspec.structs.replace(
        server,
        cpu_seconds_per_request=used / requests if used is not None and requests else None,
        served_connections=_connections(connections, before["connections"], ids, lab.enclosure),
    )
    unknown = [
        Unknown(path=f"/server{pointer}", reason=reason)
        for pointer, reason in gaps.items()
        if pointer.removeprefix("/") not in _FROM_THE_LOG
    ]
    measurement = msgspec.structs.replace(measurement, unknown=[*measurement.unknown, *unknown])
    measurement = with_interference(measurement, server.cpu_seconds)
    measurement = with_late_watch(measurement, watch.seconds)
    return with_imbalance(measurement, subjects.workers), server


def _ports(plan: LoadPlan) -> set[int]:
    """The TCP ports of all targets."""
    return {target.port for target in _targets(plan) if target.unix is None}


def _targets(plan: LoadPlan) -> list[Target]:
    return [plan.target, *(item.target for item in plan.classes if item.target is not None)]


@contextlib.contextmanager
def _with_doors(request: RunRequest, pid: int) -> Iterator[RunRequest]:
    """The request, with unix sockets at paths that are reachable from outside of nginx's root."""
    plan = request.plan
    paths = dict.fromkeys(t.unix for t in _targets(plan) if t.unix is not None)
    with contextlib.ExitStack() as stack:
        doors = {path: stack.enter_context(contextlib.closing(Door(path, pid))) for path in paths}

        def reached(target: Target) -> Target:
            door = doors.get(target.unix or "")
            return target if door is None else msgspec.structs.replace(target, unix=door.path)

        classes = [
            item
            if item.target is None
            else msgspec.structs.replace(item, target=reached(item.target))
            for item in plan.classes
        ]
        sockets = sorted(door.path for door in doors.values())
        permit = msgspec.structs.replace(plan.permit, sockets=sockets)
        plan = msgspec.structs.replace(
            plan, target=reached(plan.target), classes=classes, permit=permit
        )
        yield msgspec.structs.replace(request, plan=plan)


_FROM_THE_LOG = ("pool_overflow", "operations_too_slow", "connections_exhausted", "read_errors")
"""Counters of the error log, which cover the whole run and not only the watch."""


def _connections(
    log: str | None, start: int, ids: Mapping[str, str], enclosure: Enclosure
) -> dict[str, int]:
    if log is None:
        return {}
    try:
        with enclosure.open_written(log) as file:
            counts = count_connections(file, start=start)
    except OSError:  # nothing was served yet
        return {}
    return {ids.get(pid, pid): count for pid, count in counts.items()}


_PRIME_SECONDS = 60.0
_MOST_LINE_BYTES = 1 << 16
"""Bound on a line of the log. nginx writes up to 2048 (NGX_MAX_ERROR_STR), modules any number."""


def _prime(target: Target, urls: list[str]) -> None:
    for url in urls:
        connection = TargetConnection(target, timeout=_PRIME_SECONDS)
        try:
            response = connection.get(url)
            while response.read(_PIECE_BYTES):
                pass
            if response.status != http.client.OK:
                cause = may_come_from(response.status)
                raise UndecidedError(
                    f"GET {url} answers {response.status}, not 200, before any load",
                    hint=f"it may come from {cause}"
                    if cause
                    else "check the root directive of the configuration under test, and the "
                    "permissions of its files",
                )
        except (OSError, http.client.HTTPException) as error:
            raise UndecidedError(f"GET {url} fails before any load: {error}") from None
        finally:
            connection.finish()


_PIECE_BYTES = 1 << 20
OVERFILLED = 1.25
"""Bytes to read, as a multiple of the memory limit: enough to fill it in any case."""


def make_cold(directories: Iterable[Path]) -> int | None:
    """Drop the lab's files from the page cache; returns the bytes still resident."""
    directories = list(directories)
    for directory in directories:
        evict(directory)
    return resident_bytes(directories)


def make_warm(directories: Iterable[Path]) -> int | None:
    """Read the lab's files into the page cache; returns the bytes resident."""
    directories = list(directories)
    if any(_resident(directory)[0] != 1.0 for directory in directories):
        for directory in directories:
            for _, file in open_files(directory):
                _read(file)
    return resident_bytes(directories)


def make_full(
    directories: Iterable[Path], *, limit_bytes: int, join_files: Sequence[str], seed: int
) -> None:
    """Read random files until the memory limit is reached, inside nginx's cgroup.

    An LRU cache reaches this state by itself if all files are equally popular, but on a hard disk
    only after minutes. Pages are charged to the cgroup that reads them first.

    Errors: UndecidedError if the files cannot be read.
    """
    files = [
        (directory, name, os.fstat(file).st_size)
        for directory in directories
        for name, file in open_files(directory)
    ]
    random.Random(seed).shuffle(files)  # noqa: S311  # a load, no secret
    reader = os.fork()
    if not reader:
        try:
            for group in join_files:
                Path(group).write_text("0")
            left = OVERFILLED * limit_bytes
            for directory, name, size in files:
                if left <= 0:
                    break
                left -= size
                file = open_below(directory, name)
                _read(file)
                os.close(file)
        except OSError as error:
            os._exit(error.errno or 1)
        except BaseException:  # noqa: BLE001  # a fork must not return into the caller
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1])
    if status:
        reason = os.strerror(status) if status > 0 else f"the reader was killed by signal {-status}"
        raise UndecidedError(f"the page cache cannot be filled: {reason}")


def _read(file: int) -> None:
    while os.read(file, _PIECE_BYTES):
        pass


def resident_bytes(directories: Iterable[Path]) -> int | None:
    """Bytes of the lab's files in the page cache; None if the kernel does not report them."""
    total = 0.0
    directories = list(directories)
    for directory in directories:
        share, size = _resident(directory)
        if share is None or size is None:
            return None
        total += share * size
    return int(total) if directories else None


def _resident(directory: Path) -> tuple[float | None, int | None]:
    """The share of a directory's bytes that is in the page cache, and the directory's bytes."""
    dataset = LiveHost().scan_dataset(str(directory), budget_seconds=5.0)
    return dataset.residency.ratio, dataset.bytes
