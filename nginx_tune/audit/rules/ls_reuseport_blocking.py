from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import Cold
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``reuseport`` where a server of the address reads a cold dataset in the event loop."""
    own_queues = [
        (listener, line)
        for listener in context.listeners
        if (line := listener.reuseport) is not None and not listener.is_quic
    ]
    if not own_queues:
        return
    cold: dict[Directive, Cold] = {}
    for missing_facts in context.cold:
        if isinstance(missing_facts, MissingFacts):
            yield missing_facts
        else:
            cold.setdefault(missing_facts.served.scope.server, missing_facts)
    for listener, line in own_queues:
        blocked = next((cold[server] for server in listener.servers if server in cold), None)
        if blocked is not None:
            yield Hit(
                line,
                f"{listener.address} has one queue per worker, but workers block on reads under "
                f"{blocked.served.path}",
                blocked.evidence,
            )


_CONF = """
worker_processes auto;
events {}
http { server { listen 80 reuseport; location / { root /srv/media; %s} } }
"""
_HOST = linux(datasets={"/srv/media": (256, 0.15)})

RULE = Rule(
    id="ls-reuseport-blocking",
    severity="warning",
    title="reuseport with workers that block on the disk",
    why="With reuseport the kernel gives each worker its own queue. Connections in the queue of a "
    "worker that waits for the disk wait too, although other workers are idle; from a shared queue "
    "those would accept them.",
    fix="First move the reads out of the event loop (aio threads in that location), then compare "
    "with and without reuseport: nginx-tune validate.",
    sources=(
        "Cloudflare blog 2017: Why does one NGINX worker take all the load?",
        "NGINX blog 2015: Socket Sharding in NGINX Release 1.9.1",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.9.1",
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "aio threads; ", _HOST),
    check=check,
)
