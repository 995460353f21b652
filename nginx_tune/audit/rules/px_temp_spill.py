"""``px-temp-spill``."""

from __future__ import annotations

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
    cached = {one.passed.place for one in context.caching}
    by_path: dict[str, list[Pass]] = {}
    for one in context.passes:
        if one.module not in MODULES or one.place in cached or not _spills(one):
            continue
        path = temp_path(context, one.scope, one.module)
        if path is None:
            yield MissingFacts(("nginx.flags", "nginx.prefix"))
            return
        by_path.setdefault(path, []).append(one)
    for path, users in by_path.items():
        slow = is_slow(path, context.facts)
        if slow is None:
            yield MissingFacts((f"storage.paths[{path}]",))
        elif slow:
            yield _hit(context, path, users)


def _spills(one: Pass) -> bool:
    """True if nobody has said how much of a response may go to a file."""
    return one.value("buffering", "on") == "on" and one.effective("max_temp_file_size") is None


def _hit(context: Context, path: str, users: list[Pass]) -> Hit:
    one = users[0]
    classes = ", ".join(sorted(disk_classes_of(path, context.facts))) or "network"
    return Hit(
        one.place,
        f"responses larger than the buffers are written to {path}, on a slow disk",
        [
            Evidence(fact=f"disk class under {path}", value=classes),
            default(f"{one.module}_max_temp_file_size", "1024m"),
            counted("places that pass requests on", len(users)),
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
    why="What a client has not read yet and the buffers (64k by default on this kind of machine) "
    "cannot hold is written to a file, up to 1 GB for each response. The writes run in the event "
    "loop unless aio_write is on.",
    fix="Buffers for the common response (proxy_buffers 16 16k;), and a limit for the file: "
    "proxy_max_temp_file_size 0; where the server can wait for slow clients. Or "
    "proxy_temp_path on a fast disk, or aio threads with aio_write on.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_max_temp_file_size",
        "nginx: src/event/ngx_event_pipe.c, ngx_event_pipe_write_chain_to_temp_file",
    ),
    proof="source-only",
    about="How large responses are is a fact that no command here gathers; the disk is what the "
    "rule knows. nginx says so itself, at level warn: an upstream response is buffered to a "
    "temporary file. Responses that are cached go to the disk anyway and are passed over.",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "proxy_max_temp_file_size 0;", _HOST),
    check=check,
)
