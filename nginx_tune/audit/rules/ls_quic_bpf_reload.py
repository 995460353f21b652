from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import lacking, worker_count
from nginx_tune.audit.rule import Example, Rule, linux


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``quic_bpf on`` with reuseport and several workers."""
    place = context.tree.main.first("quic_bpf")
    lines = [
        line for address in context.listeners if address.is_quic and (line := address.reuseport)
    ]
    if place is None or place.value.lower() != "on" or not lines:
        return
    workers = worker_count(context)
    if isinstance(workers, MissingFacts):
        yield from lacking(workers)
        return
    if workers.value > 1:
        yield Hit(
            place,
            "after a reload new QUIC connections can be routed to workers that have exited",
            [written(place), written(lines[0]), workers.evidence],
        )


_CONF = """
worker_processes auto;
quic_bpf %s;
events { }
http { server { listen 443 quic reuseport; listen 443 ssl; root /srv/www; } }
"""

RULE = Rule(
    id="ls-quic-bpf-reload",
    severity="warning",
    title="quic_bpf loses connections after a reload",
    why="When a reload ends a worker, its sockets stay in the kernel's group. The program that "
    "quic_bpf loads keeps routing new connections to these sockets, and nobody serves them: HTTP/3 "
    "fails at random until nginx is restarted, while TCP keeps working.",
    fix="Set quic_bpf off; (the default), or restart instead of reloading.",
    sources=(
        "github.com/nginx/nginx issues 425 and 1399, pull request 1756",
        "https://nginx.org/en/docs/http/ngx_http_v3_module.html#quic_bpf",
    ),
    proof="source-only",
    since="1.25.0",
    about="Reported by users, and confirmed by the developers as an open issue. reuseport alone, "
    "which QUIC needs with several workers, is not reported.",
    bad=Example(_CONF % "on", linux(version="1.26.3")),
    good=Example(_CONF % "off", linux(version="1.26.3")),
    check=check,
)
