"""Which of a site's access logs are files, and which are pipes that several workers write to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from nginx_tune.documents.facts import AccessLog, Nginx
from nginx_tune.documents.site import Site


def with_seen_logs(
    site: Site,
    nginx: Nginx,
    recorded: Sequence[AccessLog] | None,
    opened_name: Callable[[str], str | None] = str,
) -> Site:
    """The site with those of its access logs among ``piped_logs`` or ``plain_logs`` that are known.

    ``recorded`` is what the facts of a file say, null for those of this host. Beside recorded ones
    a pipe here is taken for one there, as where the tree lies in the image that it is for; a file
    here proves nothing of there. ``opened_name`` says how nginx names a log to the kernel, null
    where that is not known.
    """
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.observe.inspect.access_logs import is_plain_log  # noqa: PLC0415

    known = {one.path: one.is_file for one in recorded or ()}
    here = nginx if recorded is None else Nginx()
    piped, plain = [*site.piped_logs], [*site.plain_logs]
    for log in dict.fromkeys([site.access_log or "", *site.other_access_logs]):
        path = None if not log or log in piped or "$" in log else opened_name(log)
        if path is None or not path.startswith("/"):
            continue
        is_plain = known.get(path)
        if is_plain is None:
            is_plain = is_plain_log(LiveHost(), path, here)
            if is_plain and recorded is not None:
                continue
        if is_plain is not None:
            (plain if is_plain else piped).append(log)
    return replace(site, piped_logs=piped, plain_logs=plain)
