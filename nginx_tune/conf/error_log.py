"""Where the main context's error log goes.

Source: ngx_log.c, ngx_error_log and ngx_log_set_log; without a line of its own nginx uses the
compiled-in path.
"""

from __future__ import annotations

from nginx_tune.conf.tree import ConfTree

_NO_FILE = ("stderr", "syslog:", "memory:")


def main_error_logs(tree: ConfTree, compiled_in: str | None) -> list[str]:
    """The files that get what is logged outside of any request."""
    names = [line.value for line in tree.main.all("error_log")] or [compiled_in or "stderr"]
    paths = [tree.full_path(name) for name in names if not name.startswith(_NO_FILE)]
    return [path for path in paths if path is not None]


def error_logs(tree: ConfTree, compiled_in: str | None) -> list[str]:
    """Every file that gets errors: the main context's, and those of servers and locations.

    Overflowing pools are told in the main context's alone, slow operations in the request's.
    ``stderr`` is ``/dev/stderr``: a file where nginx's standard error goes to one.
    """
    own = [] if tree.main.all("error_log") else [compiled_in or "stderr"]
    lines = (line for line in tree.main.walk() if line.name == "error_log" and line.args)
    names = ["/dev/stderr" if name == "stderr" else name
             for name in (*own, *(line.value for line in lines))]  # fmt: skip
    paths = [tree.full_path(name) for name in names if not name.startswith(_NO_FILE)]
    return list(dict.fromkeys(path for path in paths if path is not None))
