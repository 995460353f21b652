from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import lacking, worker_connections, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_bytes, parse_count
from nginx_tune.documents.decisions import Evidence

LARGE_BYTES = 1 << 20
"""Bytes of buffers per response; smaller values are close to nginx's defaults."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Buffers that do not fit into memory for all connections together."""
    proxied: dict[Directive, int] = {}
    for passed in context.passes:
        line = passed.effective("buffers")
        if line is not None and (response_bytes := _buffer_bytes(line)) >= LARGE_BYTES:
            proxied[line] = response_bytes
    sent: dict[Directive, int] = {}
    for served in context.served:
        line = served.scope.effective("output_buffers")
        if line is not None and (response_bytes := _buffer_bytes(line)) >= LARGE_BYTES:
            sent[line] = response_bytes
    if not proxied and not sent:
        return
    workers, connections = worker_count(context), worker_connections(context)
    memory = context.facts.memory
    total = memory.cgroup_limit_bytes or memory.total_bytes
    if isinstance(workers, MissingFacts) or isinstance(connections, MissingFacts) or total is None:
        yield from lacking(
            workers,
            connections,
            *([] if total is not None else [MissingFacts(("memory.total_bytes",))]),
        )
        return
    clients = workers.value * connections.value
    for line, response_bytes in (proxied | sent).items():
        requests = clients // 2 if line in proxied else clients
        if response_bytes * requests > total:
            yield Hit(
                line,
                f"{requests} concurrent requests with {response_bytes >> 20} MiB of buffers each "
                "exceed the memory",
                [
                    written(line),
                    workers.evidence,
                    connections.evidence,
                    Evidence(fact="memory", value=total, unit="bytes"),
                ],
            )


def _buffer_bytes(line: Directive) -> int:
    """Bytes that the buffers of one response may take."""
    number, size = ([*line.args, "", ""])[:2]
    return (parse_count(number) or 0) * (parse_bytes(size) or 0)


_CONF = """
worker_processes 4;
events { worker_connections 8192; }
http { server { listen 80; location / {
    proxy_pass http://127.0.0.1:81;
    proxy_buffers %s;
} } }
"""
_HOST = linux(memory_limit_mib=2048)

RULE = Rule(
    id="px-buffers-memory",
    severity="advice",
    title="buffers may exceed the memory",
    why="A response uses as many buffers as it fills while its client reads slowly. If many do (a "
    "slow network is enough), the process grows until the kernel kills it.",
    fix="Use fewer or smaller buffers (8 16k suits most) and let the rest go to a file "
    "(proxy_max_temp_file_size), or use fewer worker_connections.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffers",
        "nginx: src/event/ngx_event_pipe.c, ngx_event_pipe_read_upstream",
    ),
    proof="source-only",
    about="An upper bound: half of the connections are clients, and each response fills its "
    "buffers. For output_buffers, which hold files where sendfile is not used, every connection "
    "counts. Buffers below 1 MiB per response are not reported.",
    bad=Example(_CONF % "256 64k", _HOST),
    good=Example(_CONF % "8 16k", _HOST),
    check=check,
)
