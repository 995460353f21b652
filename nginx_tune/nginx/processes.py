"""Running nginx processes: masters and their workers."""

import posixpath
from itertools import pairwise
from typing import NamedTuple

from nginx_tune.documents.facts import Instance, Running, Worker
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known, read_parsed, under
from nginx_tune.host.parse_network import parse_tls_stat
from nginx_tune.host.parse_nginx import COMMS, Title, parse_start_options, parse_title
from nginx_tune.host.parse_proc import (
    parse_capabilities,
    parse_cmdline,
    parse_integer,
    parse_mapped_files,
    parse_open_files,
    parse_parent_pid,
    parse_soft_limits,
    parse_start_seconds,
    parse_status,
    parse_uptime,
)


class Master(NamedTuple):
    """A master process, or the only process of an nginx with ``master_process off``."""

    pid: int
    binary: str | Missing
    arguments: list[str]
    workers: list[int]
    leaving: list[int]
    """Workers of an earlier generation that are shutting down."""


_SAME_START_SECONDS = 2.0
"""Workers that start within this time belong to the same start or reload."""


def find_masters(host: Host) -> list[Master]:
    """All visible nginx masters by ascending pid; processes without a title come last.

    Workers that are shutting down, cache managers and cache loaders do not count as workers.
    """
    pids = attempt(host.processes, *COMMS)
    if isinstance(pids, Missing):
        return []
    titles = {pid: _title(host, pid) for pid in pids}
    children: dict[tuple[int, str], list[int]] = {}
    for pid in pids:
        if titles[pid].role in {"worker", "leaving"}:
            parent = read_parsed(host, f"/proc/{pid}/stat", parse_parent_pid)
            if not isinstance(parent, Missing):
                children.setdefault((parent, titles[pid].role), []).append(pid)
    heads = [pid for pid in pids if titles[pid].role == "master"]
    heads += [pid for pid in pids if titles[pid].role == "single"]
    return [
        Master(
            pid=pid,
            binary=_binary(host, pid),
            arguments=titles[pid].arguments,
            workers=([pid] if titles[pid].role == "single" else children.get((pid, "worker"), [])),
            leaving=children.get((pid, "leaving"), []),
        )
        for pid in heads
    ]


def find_orphans(host: Host) -> list[int]:
    """Workers that still serve after their master has ended, as after ``kill -9``.

    Source: src/os/unix/ngx_process_cycle.c, ngx_channel_handler: a worker does not end when its
            channel to the master is closed.
    """
    pids = attempt(host.processes, *COMMS)
    found = []
    for pid in [] if isinstance(pids, Missing) else pids:
        parent = read_parsed(host, f"/proc/{pid}/stat", parse_parent_pid)
        if isinstance(parent, Missing) or _title(host, pid).role not in {"worker", "leaving"}:
            continue
        if _title(host, parent).role != "master":
            found.append(pid)
    return found


def find_host_masters(host: Host, *, pid: int | None = None) -> list[Master]:
    """The masters, except scratch servers of our labs; the one with ``pid`` is always included."""
    return [m for m in find_masters(host) if m.pid == pid or not host.is_in_lab(m.pid)]


def read_running(host: Host, master: Master, masters: list[Master]) -> tuple[Running, Gaps]:
    """A running master and its workers."""
    gaps: Gaps = {}
    workers = []
    now = _read_uptime(host)
    for index, pid in enumerate(master.workers):
        worker, worker_gaps = _read_worker(host, pid, now)
        workers.append(worker)
        gaps |= under(f"/workers/{index}", worker_gaps)
    same = same_mounts(host, master.pid)
    same_network = _same_namespace(host, master.pid, "net")
    text = attempt(host.read_text, f"/proc/{master.pid}/status")
    mask = text if isinstance(text, Missing) else parse_status(text).get("Cpus_allowed_list")
    mapped = read_mapped_files(host, master.pid)
    age = _read_age(host, master.pid, now)
    ages = [worker.age_seconds for worker in workers if worker.age_seconds is not None]
    running = Running(
        pid=master.pid,
        binary=known(master.binary, gaps, "/binary"),
        workers=workers,
        other_masters=[other.pid for other in masters if other.pid != master.pid],
        other_mount_namespace=known(
            same if isinstance(same, Missing) else not same, gaps, "/other_mount_namespace"
        ),
        other_network_namespace=known(
            same_network if isinstance(same_network, Missing) else not same_network,
            gaps,
            "/other_network_namespace",
        ),
        cpus_allowed=known(
            Missing("not in /proc/PID/status") if mask is None else mask, gaps, "/cpus_allowed"
        ),
        age_seconds=known(age, gaps, "/age_seconds"),
        generations=known(_count_generations(host, master, ages, now), gaps, "/generations"),
        reloaded=known(_was_reloaded(age, ages), gaps, "/reloaded"),
        leaving_workers=len(master.leaving),
        modules=known(
            mapped if isinstance(mapped, Missing) else sorted(filter(_is_module, mapped)),
            gaps,
            "/modules",
        ),
        ktls_connections=known(_read_ktls(host, master.pid), gaps, "/ktls_connections"),
    )
    return running, gaps


def read_instance(host: Host, master: Master) -> tuple[Instance, Gaps]:
    """A short summary of a master."""
    gaps: Gaps = {}
    same = same_mounts(host, master.pid)
    conf_path = parse_start_options(master.arguments).conf_path
    instance = Instance(
        pid=master.pid,
        binary=known(master.binary, gaps, "/binary"),
        conf_path=known(
            Missing("not on its command line") if conf_path is None else conf_path,
            gaps,
            "/conf_path",
        ),
        workers=len(master.workers),
        other_mount_namespace=known(
            same if isinstance(same, Missing) else not same, gaps, "/other_mount_namespace"
        ),
    )
    return instance, gaps


def read_mapped_files(host: Host, pid: int) -> list[str] | Missing:
    """The libraries and modules of a process; reading them needs the right to trace it."""
    return read_parsed(host, f"/proc/{pid}/maps", parse_mapped_files)


def _is_module(path: str) -> bool:
    return posixpath.basename(path).endswith("_module.so")


def _read_uptime(host: Host) -> float | Missing:
    return read_parsed(host, "/proc/uptime", parse_uptime)


def _read_age(host: Host, pid: int, now: float | Missing) -> float | Missing:
    if isinstance(now, Missing):
        return now
    start = read_parsed(host, f"/proc/{pid}/stat", parse_start_seconds)
    return start if isinstance(start, Missing) else round(max(0.0, now - start), 2)


def _count_generations(
    host: Host, master: Master, ages: list[float], now: float | Missing
) -> int | Missing:
    """The number of groups of workers by start time; a replaced worker counts as one more group."""
    leaving = [_read_age(host, pid, now) for pid in master.leaving]
    found = sorted([*ages, *(age for age in leaving if not isinstance(age, Missing))])
    if not found:
        return Missing("no worker's age is known")
    return 1 + sum(later - earlier > _SAME_START_SECONDS for earlier, later in pairwise(found))


def _was_reloaded(age: float | Missing, ages: list[float]) -> bool | Missing:
    if isinstance(age, Missing):
        return age
    if not ages:
        return Missing("no worker's age is known")
    return age - max(ages) > _SAME_START_SECONDS


def _read_ktls(host: Host, pid: int) -> int | Missing:
    text = attempt(host.read_text, f"/proc/{pid}/net/tls_stat")
    if isinstance(text, Missing):
        return Missing(f"the kernel's TLS is not loaded: {text.reason}")
    stats = parse_tls_stat(text)
    if "TlsCurrTxSw" not in stats:
        return Missing("tls_stat has no TlsCurrTxSw")
    return stats["TlsCurrTxSw"] + stats.get("TlsCurrTxDevice", 0)


def _title(host: Host, pid: int) -> Title:
    data = attempt(host.read_bytes, f"/proc/{pid}/cmdline")
    return parse_title([] if isinstance(data, Missing) else parse_cmdline(data))


def _binary(host: Host, pid: int) -> str | Missing:
    link = attempt(host.read_link, f"/proc/{pid}/exe")
    return link if isinstance(link, Missing) else link.removesuffix(" (deleted)")


def same_mounts(host: Host, pid: int) -> bool | Missing:
    """True if a process sees the same files as this one, not those of another container or chroot.

    A separate mount namespace (``unshare -m``) with the same mounts shows the same files. /proc
    shows the root of a process as a path from our root, so equal links mean the same root. Older
    captures lack this link.
    Source: proc_pid_root(5), proc_pid_mountinfo(5).
    """
    same = _same_namespace(host, pid, "mnt")
    if isinstance(same, Missing):
        return same
    if not same and not _same_tree(host, pid):
        return False
    theirs = attempt(host.read_link, f"/proc/{pid}/root")
    ours = attempt(host.read_link, "/proc/self/root")
    return isinstance(theirs, Missing) or isinstance(ours, Missing) or theirs == ours


def _same_tree(host: Host, pid: int) -> bool:
    """True if the other mount namespace has the same mounts of the same directories."""
    theirs, ours = (attempt(host.read_text, f"/proc/{who}/mountinfo") for who in (pid, "self"))
    if isinstance(theirs, Missing) or isinstance(ours, Missing):
        return False
    return bool(ours) and _mounts(theirs) == _mounts(ours)


def _mounts(text: str) -> list[tuple[list[str], list[str]]]:
    """Device, root and mount point of each mount and of its parent, which orders stacked mounts.

    Mount ids and the order of lines differ between namespaces, so they are not compared.
    """
    lines = [line.split(" ", 5) for line in text.splitlines()]
    places = {words[0]: words[2:5] for words in lines}
    return sorted((words[2:5], places.get(words[1], [])) for words in lines if len(words) > 1)


def _same_namespace(host: Host, pid: int, kind: str) -> bool | Missing:
    theirs = attempt(host.read_link, f"/proc/{pid}/ns/{kind}")
    ours = attempt(host.read_link, f"/proc/self/ns/{kind}")
    if isinstance(theirs, Missing):
        return theirs
    return ours if isinstance(ours, Missing) else theirs == ours


def _read_worker(host: Host, pid: int, now: float | Missing) -> tuple[Worker, Gaps]:
    gaps: Gaps = {}
    limits = attempt(host.read_text, f"/proc/{pid}/limits")
    files = limits if isinstance(limits, Missing) else parse_open_files(limits)
    text = attempt(host.read_text, f"/proc/{pid}/status")
    status = {} if isinstance(text, Missing) else parse_status(text)
    gone = text if isinstance(text, Missing) else Missing("not in /proc/PID/status")
    threads = status.get("Threads")
    users = status.get("Uid", "").split()
    mask = status.get("CapEff")
    worker = Worker(
        pid=pid,
        nofile_soft=known(
            files if isinstance(files, Missing) else files.soft, gaps, "/nofile_soft"
        ),
        nofile_hard=known(
            files if isinstance(files, Missing) else files.hard, gaps, "/nofile_hard"
        ),
        threads=known(gone if threads is None else parse_integer(threads), gaps, "/threads"),
        cpus_allowed=known(status.get("Cpus_allowed_list", gone), gaps, "/cpus_allowed"),
        age_seconds=known(_read_age(host, pid, now), gaps, "/age_seconds"),
        user_id=known(parse_integer(users[1]) if len(users) > 1 else gone, gaps, "/user_id"),
        capabilities=known(
            gone if mask is None else parse_capabilities(mask), gaps, "/capabilities"
        ),
        limits={} if isinstance(limits, Missing) else parse_soft_limits(limits),
    )
    return worker, gaps
