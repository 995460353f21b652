from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.storage import storage_of
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts, PathStorage, Storage

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "ceph", "fuse.glusterfs", "fuse.sshfs"}
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches of open files on a file system that other hosts change."""
    if "open_file_cache" not in context.names:
        return
    reported: set[Directive] = set()
    missing: dict[str, None] = {}
    for served in context.served:
        cache = served.scope.effective("open_file_cache")
        if cache is None or cache.value == "off" or cache in reported or served.via == "cache":
            continue
        storage = storage_of(served.path, context.facts)
        if storage is None or storage.filesystem is None:
            missing[f"storage.paths[{served.root}]"] = None
        elif storage.filesystem in _NETWORK:
            reported.add(cache)
            yield Hit(
                cache,
                f"files under {served.path} are kept open while other hosts can replace them",
                [
                    written(cache),
                    Evidence(fact=f"file system under {served.path}", value=storage.filesystem),
                ],
            )
    if missing and not reported:
        yield MissingFacts(tuple(missing))


def _host(filesystem: str) -> Facts:
    return Facts(storage=Storage(paths=[PathStorage(path="/srv/www", filesystem=filesystem)]))


_CONF = """
events {}
http { open_file_cache max=1000; server { listen 80; location / { root /srv/www; } } }
"""

RULE = Rule(
    id="io-open-cache-network",
    severity="advice",
    title="open_file_cache on a network file system",
    why="If another host replaces a file, clients get the old one until open_file_cache_valid "
    "expires. If it removes the file, requests can fail with an error, because the server no "
    "longer knows the handle (ESTALE).",
    fix="Set open_file_cache off; for these files, or open_file_cache_valid of a few seconds.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#open_file_cache",
        "nginx: src/core/ngx_open_file_cache.c, ngx_open_cached_file",
        "nfs(5), data and metadata coherence",
    ),
    proof="source-only",
    bad=Example(_CONF, _host("nfs4")),
    good=Example(_CONF, _host("ext4")),
    check=check,
)
