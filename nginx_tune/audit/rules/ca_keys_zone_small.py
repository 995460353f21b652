from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import GIB, Example, Rule, linux
from nginx_tune.conf.served import KEYS_PER_MEBIBYTE, Cache
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Dataset, Facts

SMALLEST_FILE = 4096
"""Bytes of one file system block, the least that a cached file takes."""

ENOUGH_FILES = 1000
"""Number of files below which their mean size is not representative."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that run out of keys before they reach ``max_size``."""
    for cache in context.used_caches:
        if not cache.keys_bytes or not cache.max_bytes:
            continue
        keys = cache.keys_bytes * KEYS_PER_MEBIBYTE // (1 << 20)
        if keys * SMALLEST_FILE >= cache.max_bytes:
            continue
        directory = context.tree.full_path(cache.directory)
        if directory is None:
            yield MissingFacts(("nginx.prefix",))
            continue
        dataset = next(
            (dataset for dataset in context.facts.datasets if dataset.path == directory), None
        )
        if dataset is None or not dataset.files or not dataset.bytes:
            if dataset is None or dataset.files is None or dataset.bytes is None:
                yield MissingFacts((f"datasets[{directory}].bytes",))
            continue
        objects = cache.max_bytes // _file_bytes(dataset)
        if dataset.files >= ENOUGH_FILES and keys < objects:
            yield _hit(cache, dataset, keys, objects)


def _file_bytes(dataset: Dataset) -> int:
    """Mean bytes on disk of a file: all of its blocks."""
    from nginx_tune.decide.cache_growth import scanned_file_bytes  # noqa: PLC0415  # loads the model

    return int(scanned_file_bytes(dataset.files or 1, dataset.bytes or 0, dataset.allocated_bytes))


def _hit(cache: Cache, dataset: Dataset, keys: int, objects: int) -> Hit:
    megabytes = -(-objects // KEYS_PER_MEBIBYTE)
    return Hit(
        cache.place,
        f'zone "{cache.zone}" has room for {keys} keys, but max_size for {objects} files of the '
        "present mean size",
        [
            written(cache.place),
            Evidence(
                fact=f"mean file under {dataset.path}", value=_file_bytes(dataset), unit="bytes"
            ),
        ],
        fix=f"keys_zone={cache.zone}:{megabytes}m (a key takes 128 bytes of memory), or a smaller "
        "max_size.",
    )


def _host(files: int) -> Facts:
    cached = Dataset(path="/var/cache/nginx", files=files, bytes=10 * GIB)
    return replace(linux(), datasets=[cached])


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=100g;
    server { location / { proxy_pass http://10.0.0.1; proxy_cache c; } }
}
"""

RULE = Rule(
    id="ca-keys-zone-small",
    severity="warning",
    title="the keys zone is too small for the cache",
    why="When the zone is full, a worker evicts the oldest entry for each new one, in the event "
    "loop, however much disk space is left. If no entry can be evicted, the request fails with "
    "500.",
    fix="Use a larger keys_zone (1 MB holds 7000 keys) or a smaller max_size.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_path",
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_exists",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF, _host(400_000)),
    good=Example(_CONF, _host(2000)),
    check=check,
)
