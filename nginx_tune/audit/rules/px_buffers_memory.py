"""``px-buffers-memory``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import lacking, worker_connections, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_bytes, parse_count
from nginx_tune.documents.decisions import Evidence

LARGE_BYTES = 1 << 20
"""Bytes of one answer's buffers; less is what nginx does by itself, more or less."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Buffers that all connections together cannot have."""
    found: dict[Directive, int] = {}
    for one in context.passes:
        line = one.effective("buffers")
        if line is not None and (each := _bytes_of(line)) >= LARGE_BYTES:
            found[line] = each
    sent: dict[Directive, int] = {}
    for served in context.served:
        line = served.scope.effective("output_buffers")
        if line is not None and (each := _bytes_of(line)) >= LARGE_BYTES:
            sent[line] = each
    if not found and not sent:
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
    for line, each in (found | sent).items():
        requests = clients // 2 if line in found else clients
        if each * requests > total:
            yield Hit(
                line,
                f"{requests} requests at once with {each >> 20} MiB of buffers each are more than "
                "the memory",
                [
                    written(line),
                    workers.evidence,
                    connections.evidence,
                    Evidence(fact="memory", value=total, unit="bytes"),
                ],
            )


def _bytes_of(line: Directive) -> int:
    """Bytes that the buffers of one answer may take."""
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
    title="buffers that the memory does not hold for all connections",
    why="An answer takes as many buffers as it fills while its client reads slowly. When many do "
    "(a slow network is enough) the process grows until the kernel ends it.",
    fix="Fewer or smaller buffers (8 16k suits most), with what is over going to a file "
    "(proxy_max_temp_file_size), or fewer worker_connections.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffers",
        "nginx: src/event/ngx_event_pipe.c, ngx_event_pipe_read_upstream",
    ),
    proof="source-only",
    about="The bound of what can be taken: half of the connections are clients, and each answer "
    "fills its buffers; of output_buffers, by which files are read where sendfile is not used, "
    "every connection. Buffers of less than 1 MiB an answer are passed over.",
    bad=Example(_CONF % "256 64k", _HOST),
    good=Example(_CONF % "8 16k", _HOST),
    check=check,
)
