"""Whether this host's access log is a file, or a pipe that several workers write to."""

from __future__ import annotations

import posixpath
import stat
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.site import Site

_MOST_LINKS: Final = 8
_STREAMS: Final = ("/dev/", "/proc/")


def with_piped_log(site: Site, full_path: str | None, nginx: Nginx) -> Site:
    """The site with its access log among ``piped_logs``, where this host has no file there.

    ``full_path`` is the log as nginx names it to the kernel, null where that is not known.
    """
    log = site.access_log
    if log is None or log in site.piped_logs or full_path is None or "$" in log:
        return site
    if not full_path.startswith("/") or not _is_no_file(full_path, nginx):
        return site
    return replace(site, piped_logs=[*site.piped_logs, log])


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
        if path.startswith(_STREAMS):
            return True
        target = attempt(host.read_link, f"{root}{path}")
        if isinstance(target, Missing):
            break
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    try:
        return not stat.S_ISREG(Path(f"{root}{path}").lstat().st_mode)
    except (OSError, ValueError):
        return False
