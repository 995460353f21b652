"""Facts of this host for one configuration: what it serves, and what its error log says."""

from __future__ import annotations

import contextlib
import os
import posixpath
from pathlib import Path

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.storage import outermost
from nginx_tune.audit.written_paths import written_paths
from nginx_tune.conf.error_log import error_logs, main_error_logs
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Dataset, ErrorLog, Facts
from nginx_tune.host.climbing import absolute_path
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.observe.error_log import read_error_log
from nginx_tune.observe.inspect.facts import gather_facts

SCAN_SECONDS = 1.0
"""For all datasets together: an audit must stay quick. A dataset that is not done by then gives
lower bounds, which is what a large one is needed for."""

MOST_DATASETS = 32
MOST_PATHS = 256
MOST_LOGS = 8
"""Those of the main context first; of each the end is read."""


def gather_live_facts(
    host: Host, tree: ConfTree, *, nginx_binary: str | None = None, pid: int | None = None
) -> Facts:
    """The host's facts with the directories of a configuration and its error logs.

    Errors: UsageError for a named binary that is no nginx.
    """
    meant = absolute_path(tree.path)
    nginx, _ = read_nginx(host, binary=nginx_binary, pid=pid, conf_path=meant)
    written = written_paths(Context(tree, Facts(nginx=nginx)))
    served = sorted({served.path for served in served_paths(tree)})
    paths = [path for path in served if os.access(path, os.R_OK | os.X_OK) and Path(path).is_dir()]
    datasets = outermost(paths)[:MOST_DATASETS]
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
    """Whether there is surely nothing; a name below a closed directory may be there."""
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
