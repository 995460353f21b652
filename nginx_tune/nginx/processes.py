"""Running nginx processes: masters and their workers."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.documents.facts import Running, Worker
from nginx_tune.host.door import Host
from nginx_tune.host.gaps import Gaps, Missing, attempt, known, under
from nginx_tune.host.parse_nginx import Title, parse_title
from nginx_tune.host.parse_process import (
    parse_cmdline,
    parse_open_files,
    parse_parent_pid,
    parse_status,
)
from nginx_tune.host.parse_values import parse_integer

COMMS = ("nginx", "angie", "openresty", "freenginx", "tengine")
"""Names of nginx processes in ``/proc/PID/comm``."""


class Master(NamedTuple):
    """A master process, or the only process of an nginx with ``master_process off``."""

    pid: int
    binary: str | Missing
    arguments: list[str]
    workers: list[int]


def find_masters(host: Host) -> list[Master]:
    """Every nginx master that can be seen, by ascending pid; processes without a title last.

    Workers on their way out, cache managers and cache loaders are no workers.
    """
    pids = attempt(host.processes, *COMMS)
    if isinstance(pids, Missing):
        return []
    titles = {pid: _title(host, pid) for pid in pids}
    workers: dict[int, list[int]] = {}
    for pid in pids:
        if titles[pid].role == "worker":
            stat = attempt(host.read_text, f"/proc/{pid}/stat")
            parent = stat if isinstance(stat, Missing) else parse_parent_pid(stat)
            if not isinstance(parent, Missing):
                workers.setdefault(parent, []).append(pid)
    heads = [pid for pid in pids if titles[pid].role == "master"]
    heads += [pid for pid in pids if titles[pid].role == "single"]
    return [
        Master(
            pid=pid,
            binary=_binary(host, pid),
            arguments=titles[pid].arguments,
            workers=[pid] if titles[pid].role == "single" else workers.get(pid, []),
        )
        for pid in heads
    ]


def read_running(host: Host, master: Master, masters: list[Master]) -> tuple[Running, Gaps]:
    """A running master and its workers."""
    gaps: Gaps = {}
    workers = []
    for index, pid in enumerate(master.workers):
        worker, worker_gaps = _read_worker(host, pid)
        workers.append(worker)
        gaps |= under(f"/workers/{index}", worker_gaps)
    same = same_mounts(host, master.pid)
    running = Running(
        pid=master.pid,
        binary=known(master.binary, gaps, "/binary"),
        workers=workers,
        other_masters=[other.pid for other in masters if other.pid != master.pid],
        other_mount_namespace=known(
            same if isinstance(same, Missing) else not same, gaps, "/other_mount_namespace"
        ),
    )
    return running, gaps


def is_trusted(host: Host, master: Master) -> bool:
    """Whether the master's executable may be run to ask its version.

    Any process can give itself nginx's title. Its file is run only when that gains nobody any
    rights: root's or our own process, and not out of a container.
    """
    if same_mounts(host, master.pid) is not True:
        return False
    theirs, ours = _user(host, str(master.pid)), _user(host, "self")
    return theirs is not None and theirs in {"0", ours}


def _user(host: Host, process: str) -> str | None:
    status = attempt(host.read_text, f"/proc/{process}/status")
    words = [] if isinstance(status, Missing) else parse_status(status).get("Uid", "").split()
    # Real, effective, saved and file system: all the same, or who it is remains unclear.
    return words[0] if len(set(words)) == 1 else None


def _title(host: Host, pid: int) -> Title:
    data = attempt(host.read_bytes, f"/proc/{pid}/cmdline")
    return parse_title([] if isinstance(data, Missing) else parse_cmdline(data))


def _binary(host: Host, pid: int) -> str | Missing:
    link = attempt(host.read_link, f"/proc/{pid}/exe")
    return link if isinstance(link, Missing) else link.removesuffix(" (deleted)")


def same_mounts(host: Host, pid: int) -> bool | Missing:
    """Whether a process sees the mounts that this one sees: it lives in no container."""
    theirs = attempt(host.read_link, f"/proc/{pid}/ns/mnt")
    ours = attempt(host.read_link, "/proc/self/ns/mnt")
    if isinstance(theirs, Missing):
        return theirs
    return ours if isinstance(ours, Missing) else theirs == ours


def _read_worker(host: Host, pid: int) -> tuple[Worker, Gaps]:
    gaps: Gaps = {}
    limits = attempt(host.read_text, f"/proc/{pid}/limits")
    files = limits if isinstance(limits, Missing) else parse_open_files(limits)
    text = attempt(host.read_text, f"/proc/{pid}/status")
    status = {} if isinstance(text, Missing) else parse_status(text)
    gone = text if isinstance(text, Missing) else Missing("not in /proc/PID/status")
    threads = status.get("Threads")
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
    )
    return worker, gaps
