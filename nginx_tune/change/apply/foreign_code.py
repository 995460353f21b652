"""Whether somebody else could have written what the target's own test would read or load.

``nginx -T`` runs the constructors of modules while it reads: so this is looked at before.
"""

from __future__ import annotations

import posixpath

from nginx_tune.change.apply.examine import check_trust
from nginx_tune.change.apply.reading import read_files
from nginx_tune.change.apply.target import ManagedNginx
from nginx_tune.host.door import Host


def refuse_foreign_code(host: Host, subject: ManagedNginx) -> None:
    """As root: every file, every directory of includes and every module is root's alone.

    Errors: RefusedError that names the first that is not.
    """
    reading = read_files(host, subject.conf_path, prefix=subject.prefix)
    # Source: ngx_load_module; a module may stand in the main context alone.
    modules = (line.value for line in reading.tree.main.all("load_module") if line.args)
    check_trust([*reading.places, *(posixpath.join(subject.prefix, one) for one in modules)])
