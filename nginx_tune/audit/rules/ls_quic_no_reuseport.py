from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import lacking, worker_count
from nginx_tune.audit.rule import Example, Rule, linux


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """QUIC listeners that several workers share."""
    shared = [
        address
        for address in context.listeners
        if address.is_quic and address.has_socket and address.reuseport is None
    ]
    if not shared:
        return
    workers = worker_count(context)
    if isinstance(workers, MissingFacts):
        yield from lacking(workers)
        return
    if workers.value > 1:
        for listener in shared:
            yield Hit(
                listener.lines[0],
                f"{workers.value} workers read QUIC packets from one socket",
                [written(listener.lines[0]), workers.evidence],
            )


_CONF = """
worker_processes auto;
events { }
http { server { listen 443 quic%s; listen 443 ssl; root /srv/www; } }
"""

RULE = Rule(
    id="ls-quic-no-reuseport",
    severity="error",
    title="QUIC without reuseport",
    why="A QUIC connection belongs to one worker. From a shared UDP socket any worker reads the "
    "next packet, and one that does not know the connection cannot use it: handshakes and "
    "transfers fail at random.",
    fix="Add reuseport to one listen ... quic line of each address; if a wildcard listens on the "
    "port too, only to that one.",
    sources=(
        "https://nginx.org/en/docs/quic.html",
        "https://nginx.org/en/docs/http/ngx_http_v3_module.html",
    ),
    proof="proven",
    proven_on=("1.26", "1.30"),
    seen="Shown with packets of one client while the worker that had read the first packet was "
    "busy. Without reuseport the other worker read the rest; with reuseport the packets waited for "
    "their worker.",
    since="1.25.0",
    by_absence=True,
    bad=Example(_CONF % "", linux(version="1.26.3")),
    good=Example(_CONF % " reuseport", linux(version="1.26.3")),
    check=check,
)
