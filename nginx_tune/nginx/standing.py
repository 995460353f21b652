"""What the configuration that the host's nginx has now chose, and a file in its place must keep."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import http_blocks
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.site import GZIP_LINE
from nginx_tune.host.door import Host
from nginx_tune.nginx.overwriting import refuse_in_tree
from nginx_tune.nginx.subject import ConfigurationFiles

STANDING = ("user", "mime_types_path", "gzip", "tcp_nopush")
"""The fields of ``nginx`` that are read here."""
_PATTERNS = frozenset("*?[")
"""What makes nginx take the name of an include for a pattern. Source: ngx_conf_include()."""


def with_standing(facts: Facts, host: Host, *, results: Sequence[str] = ()) -> Facts:
    """The facts with the user, media types and compression of the standing configuration.

    The build's own user is often ``nobody``, who may not read what is served; its types and its
    compression are none. Unchanged where there is no configuration, or only another mount
    namespace sees it. ``results`` are files that will be written.
    Errors: UsageError for a result that is a file of it.
    """
    running = facts.nginx.running
    path = (running.conf_path if running else None) or facts.nginx.conf_path
    if path is None or (running is not None and running.other_mount_namespace):
        return facts
    tree = read_tree(path, ConfigurationFiles(host), prefix=facts.nginx.prefix)
    refuse_in_tree(results, tree.files, tree.asked)
    if not tree.main.all("http"):
        return facts
    nginx = standing_in(tree, facts.nginx)
    found = {f"/nginx/{name}" for name in STANDING if getattr(nginx, name) is not None}
    return replace(
        facts, nginx=nginx, unknown=[one for one in facts.unknown if one.path not in found]
    )


def standing_in(tree: ConfTree, nginx: Nginx) -> Nginx:
    """The program with what its configuration says."""
    user = tree.main.first("user")
    lines = [line for http in http_blocks(tree) if http.block for line in http.block]
    return replace(
        nginx,
        user=" ".join(user.args) if user is not None and user.args else None,
        mime_types_path=next((path for line in lines if (path := _types_path(line, tree))), None),
        gzip=[
            line.words
            for line in lines
            if GZIP_LINE.fullmatch(line.words) and not any(" " in arg for arg in line.args)
        ],
        tcp_nopush=any(line.words == "tcp_nopush on" for line in lines),
    )


def _types_path(line: Directive, tree: ConfTree) -> str | None:
    """The file of a ``types`` block, where it is a file of its own that nginx reads by name."""
    if line.name != "types" or line.file == tree.path or not line.file.startswith("/"):
        return None
    return None if _PATTERNS & set(line.file) else line.file
