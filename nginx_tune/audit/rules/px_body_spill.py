from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.paths import CLIENT_BODY, temp_path
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import disk_classes_of, is_slow
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass
from nginx_tune.conf.values import parse_bytes
from nginx_tune.documents.decisions import Evidence

DEFAULT_LIMIT = 1 << 20
"""nginx's default ``client_max_body_size``."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Large uploads that are expected and written to a slow disk in the event loop."""
    reported: set[Directive] = set()
    for passed in context.passes:
        limit = passed.scope.effective("client_max_body_size")
        if limit is None or limit in reported or not _spills(passed, limit):
            continue
        reported.add(limit)
        path = temp_path(context, passed.scope, CLIENT_BODY)
        if path is None:
            yield MissingFacts(("nginx.flags", "nginx.prefix"))
            return
        slow = is_slow(path, context.facts)
        if slow is None:
            yield MissingFacts((f"storage.paths[{path}]",))
        elif slow:
            classes = ", ".join(sorted(disk_classes_of(path, context.facts))) or "network"
            yield Hit(
                limit,
                f"request bodies are written to {path}, on a slow disk",
                [written(limit), Evidence(fact=f"disk class under {path}", value=classes)],
            )


def _spills(passed: Pass, limit: Directive) -> bool:
    """True if bodies above the default limit are expected and no buffer size is set."""
    size = parse_bytes(limit.value)
    return (
        size is not None
        and (size == 0 or size > DEFAULT_LIMIT)
        and passed.value("request_buffering", "on") == "on"
        and passed.scope.effective("client_body_buffer_size") is None
    )


_CONF = """
events {}
http { client_body_temp_path /var/spool/nginx; server { location / {
    proxy_pass http://10.0.0.1; client_max_body_size 100m; %s
} } }
"""
_HOST = linux(disks={"/var/spool/nginx": ("sda", "hdd")})

RULE = Rule(
    id="px-body-spill",
    severity="advice",
    title="uploads are written to a slow disk in the event loop",
    why="A body larger than client_body_buffer_size (16k, 8k on 32-bit machines) goes to a file. "
    "These writes always run in the worker: neither aio threads nor aio_write covers them.",
    fix="Set client_body_buffer_size to the common body size (64k to 512k; memory per upload), put "
    "client_body_temp_path on a fast disk, or set proxy_request_buffering off; if the upstream can "
    "handle slow uploads.",
    sources=(
        "nginx: src/http/ngx_http_request_body.c, ngx_http_write_request_body",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#client_body_buffer_size",
    ),
    proof="source-only",
    about="No command measures body sizes. A client_max_body_size above the default shows that "
    "large bodies are expected; an explicit client_body_buffer_size shows that somebody chose it.",
    profiles=frozenset({"default", "strict"}),
    conflict="The CIS benchmark and dev-sec ask for small buffers (client_body_buffer_size 1k), "
    "against bodies that are sent to fill the memory. Profile cis follows them and leaves this "
    "rule out.",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "client_body_buffer_size 256k;", _HOST),
    check=check,
)
