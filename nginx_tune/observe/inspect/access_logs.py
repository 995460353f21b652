"""What access logs are: plain files, or pipes and the like that several workers write to."""

from __future__ import annotations

import posixpath
import stat
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nginx_tune.conf.scopes import http_directives
from nginx_tune.conf.tree import read_tree
from nginx_tune.decide.site_defaults import log_of_build
from nginx_tune.documents.facts import AccessLog, Facts, Nginx
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.nginx.subject import ConfigurationFiles

_MOST_LINKS: Final = 8
_MOST_LOGS: Final = 256
_STREAMS: Final = ("/dev/", "/proc/")


def with_access_logs(facts: Facts, host: Host) -> Facts:
    """The facts with what the access logs are that the host's nginx has.

    Of the configuration, where it is in the reader's mounts, and of the build: where nginx is in a
    container of its own, its image's log is looked at in there.
    """
    nginx = facts.nginx
    running = nginx.running
    path = (running.conf_path if running else None) or nginx.conf_path
    paths = [log_of_build(nginx) or ""]
    if path is not None and not (running is not None and running.other_mount_namespace):
        tree = read_tree(path, ConfigurationFiles(host), prefix=nginx.prefix)
        lines = [one for one in http_directives(tree) if one.name == "access_log" and one.args]
        paths += [tree.opened_name(one.value) for one in lines]
    paths = [one for one in paths if one.startswith("/") and "$" not in one]
    seen = {one: is_plain_log(host, one, nginx) for one in [*dict.fromkeys(paths)][:_MOST_LOGS]}
    known = [(path, is_file) for path, is_file in seen.items() if is_file is not None]
    logs = [AccessLog(path=path, is_file=is_file) for path, is_file in known]
    return replace(facts, access_logs=logs)


def is_plain_log(host: Host, path: str, nginx: Nginx) -> bool | None:
    """Whether a path leads to a file: not to a pipe, a terminal or a device, as in images of nginx.

    Links to streams are told by their names: ``/dev/stdout`` is our own, and another one's there.
    What is not there yet will be a file. Null where it may not be looked at.
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
        # With its ``..``, which the kernel takes from where the directory is, not from its name.
        path = posixpath.join(posixpath.dirname(path), target)
    try:
        return stat.S_ISREG(Path(f"{root}{path}").lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return None
