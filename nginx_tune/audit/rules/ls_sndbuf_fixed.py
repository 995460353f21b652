from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.values import parameter
from nginx_tune.documents.decisions import Evidence

_CEILINGS = {"sndbuf": "net.core.wmem_max", "rcvbuf": "net.core.rmem_max"}


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """TCP listeners with fixed buffers, which disable the kernel's autotuning."""
    for listener in context.listeners:
        if listener.is_quic or listener.is_unix:
            continue
        for line in listener.lines:
            for name, sysctl in _CEILINGS.items():
                if parameter(line.args[1:], name) is None:
                    continue
                evidence = [written(line)]
                ceiling = context.facts.kernel.sysctls.get(sysctl)
                if ceiling is not None:
                    evidence.append(Evidence(fact=sysctl, value=ceiling, unit="bytes"))
                yield Hit(
                    line, f"{name} is fixed for every connection of {listener.address}", evidence
                )


_CONF = "events { } http { server { listen 80%s; root /srv/www; } }"

RULE = Rule(
    id="ls-sndbuf-fixed",
    severity="advice",
    title="a fixed socket buffer",
    why="The kernel no longer grows a buffer that is set: a transfer cannot have more data in "
    "flight than the buffer holds, which limits its rate on long paths (bytes ÷ round-trip time). "
    "It is also capped at net.core.wmem_max or rmem_max; without it, tcp_wmem and tcp_rmem limit "
    "the growth.",
    fix="Remove sndbuf and rcvbuf, and size net.ipv4.tcp_wmem and tcp_rmem instead.",
    sources=("https://nginx.org/en/docs/http/ngx_http_core_module.html#listen", "tcp(7)"),
    proof="source-only",
    bad=Example(_CONF % " sndbuf=64k"),
    good=Example(_CONF % ""),
    check=check,
)
