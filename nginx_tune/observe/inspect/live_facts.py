"""Facts of this host for one configuration: the files that it serves, the end of its error logs."""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from pathlib import Path

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.paths import written_paths
from nginx_tune.audit.storage import outermost
from nginx_tune.conf.logs import error_logs, main_error_logs
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Dataset, ErrorLog, Facts
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.paths import absolute_path
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.observe.inspect.facts import gather_facts
from nginx_tune.observe.parse_error_log import logged_messages, parse_error_log

SCAN_SECONDS = 1.0
"""For all datasets together: an audit must stay quick. A dataset that is not done by then gives
lower bounds, which is what a large one is needed for."""
MOST_DATASETS = 32
MOST_PATHS = 256
MOST_LOGS = 8
"""Those of the main context first; of each the end is read."""


def gather_live_facts(
    host: Host,
    tree: ConfTree,
    *,
    nginx_binary: str | None = None,
    pid: int | None = None,
    scans: bool = True,
) -> Facts:
    """The host's facts with the directories of a configuration and its error logs.

    Without ``scans`` no file that is served is counted.
    Errors: UsageError for a named binary that is no nginx.
    """
    meant = absolute_path(tree.path)
    nginx, _ = read_nginx(host, binary=nginx_binary, pid=pid, conf_path=meant)
    written = written_paths(Context(tree, Facts(nginx=nginx)))
    served = sorted({served.path for served in served_paths(tree)})
    paths = [path for path in served if os.access(path, os.R_OK | os.X_OK) and Path(path).is_dir()]
    datasets = outermost(paths)[:MOST_DATASETS] if scans else []
    facts = gather_facts(
        host,
        paths=[*paths, *filter(None, map(_existing, written))][:MOST_PATHS],
        datasets=datasets,
        nginx_binary=nginx_binary,
        pid=pid,
        conf_path=meant,
        dataset_budget_seconds=SCAN_SECONDS / max(1, len(datasets)),
    )
    logs = main_error_logs(tree, facts.nginx.error_log_path)
    logs = list(dict.fromkeys([*logs, *error_logs(tree, facts.nginx.error_log_path)]))[:MOST_LOGS]
    return replace(
        facts,
        datasets=[*facts.datasets, *(_nothing(path) for path in served if _is_absent(path))],
        error_logs=_read_logs(logs),
    )


def _existing(path: str) -> str | None:
    """The path, or the directory in which nginx would make it; none when that is the root."""
    while path != "/" and not os.access(path, os.F_OK):
        path = posixpath.dirname(path)
    return None if path == "/" else path


def _nothing(path: str) -> Dataset:
    return Dataset(path=path, files=0, bytes=0, reason="no such directory")


def _is_absent(path: str) -> bool:
    """True where there is surely nothing; a name below a closed directory may be there."""
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
        # A log that may not be read stays out: the rules then say that they miss it.
        with contextlib.suppress(HostReadError):
            logs.append(read_error_log(path))
    return logs


TAIL_BYTES = 4 << 20
"""About 30 000 lines: hours of a troubled server, days of a healthy one."""


def read_error_log(path: str, *, tail_bytes: int = TAIL_BYTES) -> ErrorLog:
    """Count the messages at the end of an error log; one that is not there yet says nothing.

    Errors: HostReadError when it cannot be read or is no regular file.
    """
    try:
        # Without waiting: a log may be a FIFO.
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
