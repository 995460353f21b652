"""The observation of a running nginx: choose one, find its files and disks, and watch it.

Other running nginx are reported with the CPU time that they used meanwhile.
"""

import posixpath
import re
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.paths import written_paths
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import status_locations
from nginx_tune.conf.logs import error_logs, hidden_counts
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.base import Unknown
from nginx_tune.documents.facts import Facts, Nginx, Running
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.observation import Observation, OtherNginx, busier_other
from nginx_tune.documents.progress import Step
from nginx_tune.documents.units import seconds_text
from nginx_tune.errors import UndecidedError
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.mounts import View, view_of
from nginx_tune.host.network import ask_listening, read_listeners
from nginx_tune.host.storage import read_storage
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.overwriting import refuse_in_tree
from nginx_tune.nginx.processes import Master, find_host_masters, find_masters
from nginx_tune.nginx.subject import MOST_BYTES
from nginx_tune.observe.accounting import read_cpu_seconds
from nginx_tune.observe.causes.naming import find_causes
from nginx_tune.observe.causes.parts import ALLOWED_SECONDS
from nginx_tune.observe.tracing import Means
from nginx_tune.observe.window.moment import StatusPage, Subjects
from nginx_tune.observe.window.watch import ServerWatch
from nginx_tune.observe.window.window import difference, sum_known

MOST_PATHS = 256
_ENDED = "ended: nginx ended in the window"
_MOST_LATE_SECONDS = 0.5
_MOST_LINKS = 40
_STREAM = re.compile(r"/dev/(?P<name>stdout|stderr)|/(?:dev|proc/self)/fd/(?P<number>[0-9]{1,9})")
"""Paths of logs in containers, which lead each process to its own stream."""
_NUMBERS = {"stdout": "1", "stderr": "2"}


class WatchRequest(NamedTuple):
    """The options of an observation."""

    duration_seconds: float = 30.0
    pid: int | None = None
    """The process id of the master; None to find one."""
    means: Means = "auto"
    queue_wait: bool = False
    stub_status: bool = True
    objective_seconds: float | None = None
    """The allowed time of a request; None without an objective."""
    results: Sequence[str] = ()
    """Files that the results will be written to."""


class Observed(NamedTuple):
    """An observation, perhaps cut short by Ctrl-C or by the end of nginx."""

    observation: Observation
    interrupted: bool
    has_ended: bool


def observe(
    host: Host,
    request: WatchRequest,
    *,
    progress: Callable[[str], None],
    tell_choice: Callable[[Nginx], None] = lambda _: None,
) -> Observed:
    """Watch a running nginx under its own traffic.

    ``tell_choice`` gets the nginx that was chosen before the window begins, unless a pid was named.

    Errors: UndecidedError when no nginx is running, UsageError for a pid that is not a master.
    Side effects: asks stub_status once a second; attaches tracers, which end with this process.
    """
    nginx, _ = read_nginx(host, pid=request.pid)
    running = nginx.running
    if running is None:
        raise UndecidedError(
            "no nginx master process can be seen",
            hint="start nginx, or run this where its processes are visible",
        )
    if request.pid is None:
        tell_choice(nginx)
    subjects = _subjects(host, nginx, running, request)
    whole = request.duration_seconds

    def tell(second: int) -> None:
        text = f"watching nginx {running.pid}: {second} of {whole:.0f} s"
        progress(Step(text, done=second, total=whole, unit="s"))

    interrupted = False
    progress(f"attaching to nginx {running.pid}")
    with ServerWatch(
        host, subjects, means=request.means, queue_wait=request.queue_wait, every_second=tell
    ) as watch:
        others = Others(host, nginx, running.pid) if request.pid is None else None
        watch.start()
        try:
            time.sleep(whole)
        except KeyboardInterrupt:
            interrupted = True
        server, gaps = watch.finish()
        lasted = watch.seconds
    unknown = [Unknown(path=f"/server{at}", reason=reason) for at, reason in sorted(gaps.items())]
    flags = _flags(host, running, subjects)
    observation = Observation(
        duration_seconds=lasted,
        pid=running.pid,
        nginx_version=nginx.version,
        nginx_choice=nginx.choice,
        others=others.finish() if others else [],
        worker_processes=len(subjects.workers),
        server=server,
        objective_seconds=request.objective_seconds,
        causes=find_causes(
            server,
            duration_seconds=lasted,
            unknown=unknown,
            allowed_seconds=request.objective_seconds or ALLOWED_SECONDS,
            has_ended=_ENDED in flags,
        ),
        flags=[*flags, *_late(server)],
        unknown=unknown,
    )
    observation = with_pointer(observation)
    return Observed(observation, interrupted=interrupted, has_ended=_ENDED in flags)


def _flags(host: Host, running: Running, subjects: Subjects) -> list[str]:
    """The flags of a window from which nothing can be concluded."""
    now = next((m for m in find_masters(host) if m.pid == running.pid), None)
    if now is None:
        return [_ENDED]
    fresh = set(now.workers) - set(subjects.workers)
    if fresh or not set(subjects.workers) <= set(now.workers):
        return [f"reloaded: {len(fresh)} workers are new since the window began"]
    return []


def _late(server: ServerMeasurement) -> list[str]:
    """The flag of a window in which the watch itself had to wait for a CPU."""
    late = server.observer_late_seconds or 0.0
    if late < _MOST_LATE_SECONDS:
        return []
    text = (
        f"late: a reading began {seconds_text(late)} after it was due, since no CPU was free: "
        "samples are too few, and single seconds are not exact"
    )
    return [text]


def _subjects(host: Host, nginx: Nginx, running: Running, request: WatchRequest) -> Subjects:
    view = view_of(host, running.pid) if running.other_mount_namespace else None
    files = _Files(host, running.pid, view if isinstance(view, View) else None)
    tree = read_tree(running.conf_path or "", files, prefix=running.prefix)
    logs = error_logs(tree, nginx.error_log_path) if tree.files else []
    unread = "; ".join(f"{part.file}: {part.reason}" for part in tree.unparsed) if not logs else ""
    if view is None:
        written = [tree.full_path(line.value) for line in tree.main.walk() if _is_log(line)]
        refuse_in_tree(request.results, [*tree.files, *logs, *filter(None, written)], tree.asked)
    listening, _ = read_listeners(host, ask_listening(host, running.pid), running.pid)
    disks, below = _disks(host, nginx, running, tree)
    return Subjects(
        master=running.pid,
        workers=[worker.pid for worker in running.workers],
        error_logs=tuple(files.log(path) for path in logs),
        unread=unread,
        disks=disks,
        below=below,
        access_logs=frozenset(
            files.log(path)
            for line in tree.main.walk()
            if _is_log(line)
            if (path := tree.full_path(line.value)) is not None
        ),
        worker_connections=_worker_connections(tree) if tree.files else None,
        has_resolver=any(line.name == "resolver" for line in tree.main.walk())
        if tree.files
        else None,
        has_ipv6=attempt(host.read_text, f"/proc/{running.pid}/net/if_inet6") != "",
        hidden_counts=hidden_counts(tree) if tree.files else {},
        status_page=Missing(unread) if unread else _status_page(tree, wanted=request.stub_status),
        ports=frozenset(listener.port for listener in listening if listener.of_nginx),
    )


def _disks(
    host: Host, nginx: Nginx, running: Running, tree: ConfTree
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The block devices under the paths that nginx reads and writes, and how they are stacked."""
    paths = [served.path for served in served_paths(tree)]
    paths += written_paths(Context(tree, Facts(nginx=nginx)))
    wanted = [path for path in dict.fromkeys(paths) if path != "/"][:MOST_PATHS]
    foreign = running.pid if running.other_mount_namespace else None
    return watched_disks(host, wanted, nginx_pid=foreign)


def watched_disks(
    host: Host, paths: Sequence[str], *, nginx_pid: int | None = None
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The block devices that hold the paths, and the devices stacked directly on each.

    A loop device is watched as a separate disk. It shows the waits of its file system even if the
    disk that holds its image does not. Its reads also count as reads of that disk. ``nginx_pid``
    names an nginx in another mount namespace, to which the paths belong.

    Shape: names in order; {disk: disks on it}, only for disks with some.
    """
    if not paths:
        return (), {}
    tops, bottoms = (
        read_storage(
            host, paths, loop_is_leaf=leaf, nginx_pid=nginx_pid, nginx_first=nginx_pid is not None
        )[0].paths[: len(paths)]
        for leaf in (True, False)
    )
    watched = {name for path in tops for name in path.leaf_disks}
    on: dict[str, set[str]] = {}
    for path in bottoms:
        # Members of an array are neighbours, all at the bottom.
        upper = [n for n in path.stack if n in watched and n not in path.leaf_disks]
        for above, name in pairwise(upper):
            on.setdefault(name, set()).add(above)
        for name in watched.intersection(path.leaf_disks) if upper else ():
            on.setdefault(name, set()).add(upper[-1])
    return tuple(sorted(watched)), {name: tuple(sorted(above)) for name, above in on.items()}


def _is_log(line: Directive) -> bool:
    return line.name == "access_log" and bool(line.args) and "$" not in line.value


def _worker_connections(tree: ConfTree) -> int:
    """The last value, else nginx's default of 512 (DEFAULT_CONNECTIONS)."""
    lines = [line for line in tree.main.walk() if line.name == "worker_connections" and line.args]
    value = lines[-1].value if lines else ""
    return int(value) if value.isdecimal() else 512


def _status_page(tree: ConfTree, *, wanted: bool) -> StatusPage | Missing:
    if not wanted:
        return Missing("not requested (--no-stub-status)")
    found = status_locations(tree)
    if not found:
        return Missing("no location with stub_status in the configuration")
    page = found[0]
    return StatusPage(page.address, page.port, page.path, page.host, page.tls)


class _Files(NamedTuple):
    """Reads files by nginx's paths, which may be in another mount namespace."""

    host: Host
    master: int
    view: View | None

    def log(self, path: str) -> str:
        """The path by which this process opens a log of nginx, even one of its standard streams."""
        name = path
        for _ in range(_MOST_LINKS):
            if stream := _STREAM.fullmatch(name):
                number = _NUMBERS.get(stream["name"]) or stream["number"]
                return f"/proc/{self.master}/fd/{number}"
            target = attempt(self.host.read_link, self.outside_as_it_is(name))
            if isinstance(target, Missing):
                break
            name = posixpath.join(posixpath.dirname(name), target)
        return self.outside(path)

    def outside_as_it_is(self, path: str) -> str:
        """Like ``outside``, but without following a link at the end of the path."""
        parent = self.outside(posixpath.dirname(path))
        return posixpath.join(parent, posixpath.basename(path))

    def outside(self, path: str) -> str:
        """The path by which this process reaches one of nginx's paths."""
        if self.view is None:
            return path
        real = self.view.real_path(path)
        if isinstance(real, str):
            return self.view.outside(real)
        parent = self.view.nearest(posixpath.dirname(path))
        if not isinstance(parent, Missing):
            path = posixpath.join(parent, posixpath.basename(path))
        return self.view.outside(path)

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file."""
        return self.host.read_bytes(self.outside(path), limit_bytes=MOST_BYTES)

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory."""
        return self.host.list_dir(self.outside(path))


class Others:
    """Measures the CPU time of the other running nginx, from now on."""

    def __init__(self, host: Host, nginx: Nginx, watched: int) -> None:
        self._masters = [m for m in find_host_masters(host) if m.pid != watched]
        self._reasons = {found.pid: found.reason for found in nginx.candidates if found.pid}
        self._before = {master.pid: _cpu_seconds(master) for master in self._masters}

    def finish(self) -> list[OtherNginx]:
        """Each other nginx with its CPU time; null if workers started or ended."""
        return [
            OtherNginx(
                pid=master.pid,
                binary=None if isinstance(master.binary, Missing) else master.binary,
                reason=self._reasons.get(master.pid, "another nginx was chosen"),
                cpu_seconds=difference(self._before[master.pid], _cpu_seconds(master)),
            )
            for master in self._masters
        ]


def _cpu_seconds(master: Master) -> float | None:
    return sum_known([read_cpu_seconds(pid) for pid in {master.pid, *master.workers}])


def with_pointer(observation: Observation) -> Observation:
    """The observation, with a pointer to a busier nginx if it lacks evidence."""
    busier = busier_other(observation)
    causes = [
        replace(cause, next_command=f"nginx-tune observe --pid {busier.pid}")
        if busier is not None and cause.id == "not-enough-evidence"
        else cause
        for cause in observation.causes
    ]
    return replace(observation, causes=causes)
