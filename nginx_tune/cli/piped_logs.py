"""Which of this host's access logs are no files but pipes that several workers write to."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.site import Site

_MOST_LINKS: Final = 8
_STREAMS: Final = ("/dev/", "/proc/")


def with_piped_logs(
    site: Site, nginx: Nginx, opened_name: Callable[[str], str | None] = str
) -> Site:
    """The site with those of its access logs among ``piped_logs`` where this host has no file.

    ``opened_name`` says how nginx names a log to the kernel, null where that is not known.
    """
    logs = dict.fromkeys([site.access_log or "", *site.other_access_logs])
    found = []
    for log in logs:
        path = None if not log or log in site.piped_logs or "$" in log else opened_name(log)
        if path is not None and path.startswith("/") and _is_no_file(path, nginx):
            found.append(log)
    return replace(site, piped_logs=[*site.piped_logs, *found])


def _is_no_file(path: str, nginx: Nginx) -> bool:
    """Whether a path leads to a pipe, a terminal or a device, as in the images of nginx.

    Links to streams are told by their names: ``/dev/stdout`` is our own, and another one's there.
    What is not there yet will be a file.
    """
    from nginx_tune.host.door import Missing, attempt  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415

    running = nginx.running
    is_apart = running is not None and running.other_mount_namespace
    root = f"/proc/{running.pid}/root" if running is not None and is_apart else ""
    host = LiveHost()
    for _ in range(_MOST_LINKS):
        if posixpath.normpath(path).startswith(_STREAMS):
            return True
        target = attempt(host.read_link, f"{root}{path}")
        if isinstance(target, Missing):
            break
        # With its ``..``, which the kernel takes from where the directory is, not from its name.
        path = posixpath.join(posixpath.dirname(path), target)
    try:
        return not stat.S_ISREG(Path(f"{root}{path}").lstat().st_mode)
    except (OSError, ValueError):
        return False
