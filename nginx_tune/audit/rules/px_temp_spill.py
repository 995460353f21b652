from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, default
from nginx_tune.audit.paths import temp_path
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import disk_classes_of, is_slow
from nginx_tune.conf.served import MODULES
from nginx_tune.conf.upstreams import Pass
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Responses that may overflow into temporary files on a slow disk."""
    cached = {caching.passed.place for caching in context.caching}
    by_path: dict[str, list[Pass]] = {}
    for passed in context.passes:
        if passed.module not in MODULES or passed.place in cached or not _may_spill(passed):
            continue
        path = temp_path(context, passed.scope, passed.module)
        if path is None:
            yield MissingFacts(("nginx.flags", "nginx.prefix"))
            return
        by_path.setdefault(path, []).append(passed)
    for path, users in by_path.items():
        slow = is_slow(path, context.facts)
        if slow is None:
            yield MissingFacts((f"storage.paths[{path}]",))
        elif slow:
            yield _hit(context, path, users)


def _may_spill(passed: Pass) -> bool:
    """True if no limit is set for the part of a response that goes to a file."""
    return (
        passed.value("buffering", "on") == "on" and passed.effective("max_temp_file_size") is None
    )


def _hit(context: Context, path: str, users: list[Pass]) -> Hit:
    first = users[0]
    classes = ", ".join(sorted(disk_classes_of(path, context.facts))) or "network"
    return Hit(
        first.place,
        f"responses larger than the buffers are written to {path}, on a slow disk",
        [
            Evidence(fact=f"disk class under {path}", value=classes),
            default(f"{first.module}_max_temp_file_size", "1024m"),
            counted("proxied locations", len(users)),
        ],
    )


_CONF = """
events {}
http { proxy_temp_path /var/spool/nginx; server { location / {
    proxy_pass http://10.0.0.1; %s
} } }
"""
_HOST = linux(disks={"/var/spool/nginx": ("sda", "hdd")})

RULE = Rule(
    id="px-temp-spill",
    severity="advice",
    title="large responses go to temporary files on a slow disk",
    why="If a client has not read a response yet, and the buffers (64k by default on this kind of "
    "machine) cannot hold all of it, the rest is written to a file, up to 1 GB per response. The "
    "writes run in the event loop unless aio_write is on.",
    fix="Size the buffers for the common response (proxy_buffers 16 16k;) and limit the file: "
    "proxy_max_temp_file_size 0; if the upstream can wait for slow clients. Or put proxy_temp_path "
    "on a fast disk, or use aio threads with aio_write on.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_max_temp_file_size",
        "nginx: src/event/ngx_event_pipe.c, ngx_event_pipe_write_chain_to_temp_file",
    ),
    proof="source-only",
    about="No command measures response sizes; the rule only knows the disk. nginx itself logs at "
    "level warn that an upstream response is buffered to a temporary file. Cached responses go to "
    "the disk anyway and are not reported.",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "proxy_max_temp_file_size 0;", _HOST),
    check=check,
)
