from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.listeners import ListenAddress
from nginx_tune.documents.decisions import Evidence

ENOUGH_CPUS = 8
"""Number of CPUs below which one accept queue is not a bottleneck."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Shared TCP listeners whose connections go to few of many workers."""
    if context.is_linux is False or _single_worker(context):
        return
    shared = [address for address in context.listeners if _is_shared(address)]
    if not shared:
        return
    cpus = context.facts.cpu.effective
    names = {
        "kernel.system": context.is_linux,
        "cpu.effective": cpus,
        "nginx.nginx_version": context.version,
    }
    if cpus is not None and cpus < ENOUGH_CPUS:
        return
    missing = tuple(name for name, value in names.items() if value is None)
    if missing:
        yield MissingFacts(missing)
        return
    cold = context.cold
    blocked = {one.served.scope.server for one in cold if not isinstance(one, MissingFacts)}
    for listener in shared:
        if blocked & set(listener.servers):
            continue  # see ls-reuseport-blocking
        yield Hit(
            listener.lines[0],
            f"all workers share one accept queue for {listener.address}, and this nginx version "
            "gives most new connections to few of them",
            [
                Evidence(fact="cpu.effective", value=cpus),
                Evidence(fact="nginx.nginx_version", value=context.facts.nginx.nginx_version),
            ],
        )


def _single_worker(context: Context) -> bool:
    directive = context.tree.main.first("worker_processes")
    return directive is None or directive.value == "1"


def _is_shared(listener: ListenAddress) -> bool:
    # An address that shares a wildcard's socket would bind its own, and nginx would not start.
    own = listener.has_socket and not listener.is_unix and not listener.is_quic
    return own and listener.reuseport is None


_CONF = "worker_processes auto; events {} http { server { listen 80%s; return 204; } }"
_HOST = linux(cpus=16, version="1.18.0")

RULE = Rule(
    id="ls-reuseport-candidate",
    severity="advice",
    title="workers share one accept queue unevenly",
    why="Before nginx 1.21.6, a listener that is shared through EPOLLEXCLUSIVE (or accept_mutex) "
    "gives most new connections to the worker that is first in the wait queue. With many CPUs and "
    "many short connections that worker is the bottleneck while others are idle. Since 1.21.6 "
    "workers take turns, so nothing is advised without measurements.",
    fix="Update to nginx 1.21.6 or later, or add reuseport to one listen of this address. With "
    "short connections compare p99 and maximum before you keep it, because each worker then has a "
    "queue that no other can empty.",
    sources=(
        "nginx change log, 1.21.6; src/event/ngx_event_accept.c, ngx_reorder_accept_events",
        "Cloudflare blog 2017: Why does one NGINX worker take all the load?",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.9.1",
    until="1.21.6",
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % " reuseport", _HOST),
    check=check,
)
