"""The facts of this host for a configuration: its served files, error logs and access logs."""

import contextlib
import os
import posixpath
import stat
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.paths import written_paths
from nginx_tune.audit.storage import outermost
from nginx_tune.conf.logs import error_logs, main_error_logs
from nginx_tune.conf.scopes import http_directives
from nginx_tune.conf.served import served_directories
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.decide.defaults import log_of_build
from nginx_tune.documents.facts import AccessLog, Dataset, ErrorLog, Facts, Nginx
from nginx_tune.host.door import Host, HostReadError, Missing, attempt
from nginx_tune.host.paths import absolute_path
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.subject import ConfigurationFiles
from nginx_tune.observe.inspect.facts import gather_facts
from nginx_tune.observe.parse_counters import logged_messages, parse_error_log

SCAN_SECONDS = 1.0
"""Seconds for scanning all datasets, since an audit must be quick. An unfinished scan gives lower
bounds, which suffice for a large dataset."""
MOST_DATASETS = 32
MOST_PATHS = 256
MOST_LOGS = 8
"""Maximum number of error logs to read, starting with those of the main context. Only the end of a
log is read."""


def gather_live_facts(
    host: Host,
    tree: ConfTree,
    *,
    nginx_binary: str | None = None,
    pid: int | None = None,
    scan_seconds: float = SCAN_SECONDS,
    is_for_host: bool = True,
) -> Facts:
    """The host's facts with the directories and error logs of a configuration.

    Without ``is_for_host``, the configuration is another host's, and nothing that it names is
    looked at here.
    Errors: UsageError for a named binary that is not nginx.
    """
    meant = absolute_path(tree.path)
    nginx, _ = read_nginx(host, binary=nginx_binary, pid=pid, conf_path=meant)
    written = written_paths(Context(tree, Facts(nginx=nginx))) if is_for_host else []
    served = served_directories(tree) if is_for_host else []
    paths = [
        path
        for path in served
        if os.access(path, os.R_OK | os.X_OK, effective_ids=True) and Path(path).is_dir()
    ]
    datasets = outermost(paths)[:MOST_DATASETS]
    facts = gather_facts(
        host,
        paths=[*paths, *filter(None, map(_existing, written))][:MOST_PATHS],
        datasets=datasets,
        nginx_binary=nginx_binary,
        pid=pid,
        conf_path=meant,
        dataset_budget_seconds=scan_seconds / max(1, len(datasets)),
    )
    if not is_for_host:
        return facts
    logs = main_error_logs(tree, facts.nginx.error_log_path)
    logs = list(dict.fromkeys([*logs, *error_logs(tree, facts.nginx.error_log_path)]))[:MOST_LOGS]
    return replace(
        facts,
        datasets=[*facts.datasets, *(_nothing(path) for path in served if _is_absent(path))],
        error_logs=_read_logs(logs),
    )


def _existing(path: str) -> str | None:
    """The path, or the directory in which nginx would create it; None for the root directory."""
    while path != "/" and not os.access(path, os.F_OK, effective_ids=True):
        path = posixpath.dirname(path)
    return None if path == "/" else path


def _nothing(path: str) -> Dataset:
    return Dataset(path=path, files=0, bytes=0, reason="no such directory")


def _is_absent(path: str) -> bool:
    """True if the path certainly does not exist; an unreadable directory may contain it."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def _read_logs(paths: list[str]) -> list[ErrorLog]:
    logs = []
    for path in paths:
        # An unreadable log is left out, and the rules report that they miss it.
        with contextlib.suppress(HostReadError):
            logs.append(read_error_log(path))
    return logs


TAIL_BYTES = 4 << 20
"""Size of the end of a log to read: about 30 000 lines, which are hours of a troubled server or
days of a healthy one."""


def read_error_log(path: str, *, tail_bytes: int = TAIL_BYTES) -> ErrorLog:
    """The messages at the end of an error log; empty if the log does not exist yet.

    Errors: HostReadError if it cannot be read or is not a regular file.
    """
    try:
        # Without blocking: a log may be a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ErrorLog(path=path, bytes_read=0)
    except (OSError, ValueError) as error:
        raise HostReadError(f"read {path}", str(error)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise HostReadError(f"read {path}", "not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - tail_bytes))
        try:
            data = file.read(tail_bytes)
        except OSError as error:
            raise HostReadError(f"read {path}", str(error)) from None
    if start:
        data = data.partition(b"\n")[2]  # the first line is cut
    counts = parse_error_log(data.splitlines())
    return ErrorLog(
        path=path,
        pool_overflow=counts.by_name("pool_overflow"),
        connections_exhausted=counts.by_name("connections_exhausted"),
        operations_too_slow=counts.count("operations_too_slow"),
        messages=logged_messages(counts),
        bytes_read=len(data),
        complete=start == 0,
    )


_MOST_LINKS: Final = 8
_MOST_ACCESS_LOGS: Final = 256
_STREAMS: Final = ("/dev/", "/proc/")


def with_access_logs(facts: Facts, host: Host) -> Facts:
    """The facts with the kind of each access log of the host's nginx.

    The logs are the build's default and those of the configuration, if that is in this mount
    namespace. For an nginx in a container, paths are looked up in the container.
    """
    nginx = facts.nginx
    paths = [log_of_build(nginx) or ""]
    tree = _own_tree(nginx, host)
    if tree is not None:
        lines = [line for line in http_directives(tree) if line.name == "access_log" and line.args]
        paths += [tree.opened_name(line.value) for line in lines]
    paths = [line for line in paths if line.startswith("/") and "$" not in line]
    logs = [
        AccessLog(path=path, is_file=is_file)
        for path in [*dict.fromkeys(paths)][:_MOST_ACCESS_LOGS]
        if (is_file := is_plain_log(host, path, nginx)) is not None
    ]
    return replace(facts, access_logs=logs)


def served_here(nginx: Nginx, host: Host) -> list[str]:
    """The existing directories from which the running nginx serves; empty for none."""
    tree = None if nginx.running is None else _own_tree(nginx, host)
    return [] if tree is None else outermost(filter(os.path.isdir, served_directories(tree)))


def _own_tree(nginx: Nginx, host: Host) -> ConfTree | None:
    """The configuration of the host's nginx; None if it is in another mount namespace."""
    running = nginx.running
    path = (running.conf_path if running else None) or nginx.conf_path
    if path is None or (running is not None and running.other_mount_namespace):
        return None
    return read_tree(path, ConfigurationFiles(host), prefix=nginx.prefix)


def is_plain_log(host: Host, path: str, nginx: Nginx) -> bool | None:
    """True if a log is a file; False for a pipe, terminal or device, as in images.

    Links to streams count by their names, since ``/dev/stdout`` is another stream for each process.
    A missing path will be a file. None if it may not be read.
    """
    running = nginx.running
    is_apart = running is not None and running.other_mount_namespace
    root = f"/proc/{running.pid}/root" if running is not None and is_apart else ""
    if root and not Path(root).is_dir():
        return None
    for _ in range(_MOST_LINKS):
        if posixpath.normpath(path).startswith(_STREAMS):
            return False
        target = attempt(host.read_link, f"{root}{path}")
        if isinstance(target, Missing):
            break
        # The kernel resolves ``..`` from the directory itself, not from its name.
        path = posixpath.join(posixpath.dirname(path), target)
    try:
        return stat.S_ISREG(Path(f"{root}{path}").lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return None
