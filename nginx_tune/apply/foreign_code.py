"""Whether somebody else could have written what the target's own test would read or load.

``nginx -T`` runs the constructors of modules while it reads: so this is looked at before.
"""

from __future__ import annotations

import posixpath

from nginx_tune.apply.examine import check_trust
from nginx_tune.apply.target import ManagedNginx
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.door import MOST_BYTES, Host


class _Looked:
    """A host's files as nginx would read them, and which these were."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.places: dict[str, None] = {}
        """Files, there or not, and directories in which a pattern was looked for."""

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        self.places[path] = None
        return self._host.read_bytes(path, limit_bytes=MOST_BYTES)

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        self.places[path] = None
        return self._host.list_dir(path)


def refuse_foreign_code(host: Host, subject: ManagedNginx) -> None:
    """As root: every file, every directory of includes and every module is root's alone.

    Errors: RefusedError that names the first that is not.
    """
    looked = _Looked(host)
    tree = read_tree(subject.conf_path, looked, prefix=subject.prefix)
    # Source: ngx_load_module; a module may stand in the main context alone.
    modules = (line.value for line in tree.main.all("load_module") if line.args)
    check_trust([*looked.places, *(posixpath.join(subject.prefix, one) for one in modules)])
