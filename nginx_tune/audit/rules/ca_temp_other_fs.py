from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.paths import temp_path
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import storage_of
from nginx_tune.conf.served import Cache
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import PathStorage, Storage


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches whose temporary files are on another file system."""
    reported: set[tuple[Cache, str]] = set()
    for caching in context.caching:
        for cache in caching.caches:
            if cache.has_own_temp:
                continue
            temp = temp_path(context, caching.passed.scope, cache.module)
            if temp is None:
                yield MissingFacts(("nginx.flags", "nginx.prefix"))
                return
            if (cache, temp) not in reported:
                reported.add((cache, temp))
                yield from _compare(context, cache, temp)


def _compare(context: Context, cache: Cache, temp: str) -> Iterator[Hit | MissingFacts]:
    directory = context.tree.full_path(cache.directory)
    if directory is None:
        yield MissingFacts(("nginx.prefix",))
        return
    mounts = {}
    for path in (directory, temp):
        entry = storage_of(path, context.facts)
        mounts[path] = None if entry is None else entry.mount_point
    missing = tuple(f"storage.paths[{path}]" for path, mount in mounts.items() if mount is None)
    if missing:
        yield MissingFacts(missing)
    elif mounts[directory] != mounts[temp]:
        yield Hit(
            cache.place,
            f"responses are written to {temp} and then copied to {directory}, which is on another "
            "file system",
            [
                written(cache.place)
                if "use_temp_path=on" in cache.place.args
                else default("use_temp_path", "on"),
                *(Evidence(fact=f"mount point of {path}", value=at) for path, at in mounts.items()),
            ],
            fix=_FIX.format(module=cache.module),
        )


_FIX = (
    "Set use_temp_path=off in {module}_cache_path: temporary files then go into the cache itself."
)

_CONF = """
events {}
http {
    proxy_cache_path /mnt/ssd/cache keys_zone=c:10m max_size=100g%s;
    proxy_temp_path /var/spool/nginx;
    server { location / { proxy_pass http://10.0.0.1; proxy_cache c; } }
}
"""
_HOST = replace(
    linux(),
    storage=Storage(
        paths=[
            PathStorage(path="/mnt/ssd/cache", mount_point="/mnt/ssd", filesystem="xfs"),
            PathStorage(path="/var/spool/nginx", mount_point="/", filesystem="ext4"),
        ]
    ),
)

RULE = Rule(
    id="ca-temp-other-fs",
    severity="warning",
    title="cached responses are copied between file systems",
    why="A response is written to proxy_temp_path and renamed into the cache when complete. A "
    "rename cannot cross file systems, so the worker reads the file and writes it again, in the "
    "event loop.",
    fix=_FIX.format(module="proxy"),
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_path",
        "nginx: src/core/ngx_file.c, ngx_ext_rename_file",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.7.10",
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % " use_temp_path=off", _HOST),
    check=check,
)
