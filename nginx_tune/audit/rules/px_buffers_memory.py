from collections.abc import Iterator
from math import ceil

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.processes import lacking, worker_connections, worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass
from nginx_tune.conf.values import parse_bytes, parse_count
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.units import nginx_size

LARGE_BYTES = 1 << 20
"""Bytes of buffers per response; smaller values are close to nginx's defaults."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Buffers that do not fit into memory for all connections together."""
    proxied: dict[Directive, int] = {}
    users: dict[Directive, list[Pass]] = {}
    for passed in context.passes:
        line = passed.effective("buffers")
        if line is not None and (response_bytes := _buffer_bytes(line)) >= LARGE_BYTES:
            proxied[line] = response_bytes
            users.setdefault(line, []).append(passed)
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
                fix=_fewer(line, users[line]) if line in users else _FIX_OUTPUT,
            )


def _fewer(line: Directive, users: list[Pass]) -> str:
    """The fix: ``*_buffers`` of 128 KiB, or the least that nginx accepts in these locations."""
    each = min(_EACH_BYTES, parse_bytes(line.args[-1]) or _EACH_BYTES)
    usual = _ALL_BYTES // each
    count, reason = max((_least(user, each) for user in users), key=lambda found: found[0])
    beside = "suits most" if count <= usual else f"the least beside {reason}"
    return (
        f"Use fewer or smaller buffers ({line.name} {max(count, usual)} {nginx_size(each)}: "
        f"{beside}) and let the rest go to a file ({users[0].module}_max_temp_file_size), or use "
        "fewer worker_connections."
    )


def _least(passed: Pass, each: int) -> tuple[int, Directive | None]:
    """The fewest buffers of ``each`` bytes that nginx accepts, and the line that sets the number.

    All but one must hold the busy buffers. Source: ngx_http_proxy_merge_loc_conf().
    """
    busy, first = passed.effective("busy_buffers_size"), passed.effective("buffer_size")
    largest = max(each, 0 if first is None else parse_bytes(first.value) or 0)
    held = 2 * largest if busy is None else parse_bytes(busy.value) or 0
    return ceil(held / each) + 1, busy or first


_EACH_BYTES = 16 << 10
_ALL_BYTES = 8 * _EACH_BYTES
_FIX_OUTPUT = (
    "Use fewer or smaller buffers (output_buffers 2 32k is the default), or fewer "
    "worker_connections."
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
