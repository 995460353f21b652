"""``ls-reuseport-reload-loss``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence

_SYSCTL = "net.ipv4.tcp_migrate_req"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``reuseport`` where the kernel could hand over the queue of a closed socket and does not."""
    if context.is_linux is False:
        return
    lines = [
        line
        for listener in context.listeners
        if (line := listener.reuseport) is not None and not (listener.is_quic or listener.is_unix)
    ]
    if not lines:
        return
    sysctls = context.facts.kernel.sysctls
    if _SYSCTL in sysctls:
        if sysctls[_SYSCTL] == "0":
            yield Hit(
                lines[0],
                "connections that wait in the queue of a worker that a reload takes away are reset",
                [written(lines[0]), Evidence(fact=_SYSCTL, value="0")],
            )
    elif not sysctls or context.facts.kernel.features.get("tcp_migrate_req"):
        # Not of nginx's network namespace; else the kernel is older than the switch.
        yield MissingFacts((f"kernel.sysctls[{_SYSCTL}]",))


_CONF = "worker_processes auto; events { } http { server { listen 80 reuseport; return 204; } }"

RULE = Rule(
    id="ls-reuseport-reload-loss",
    severity="advice",
    title="reuseport queues are not handed over when workers go",
    why="With reuseport each worker has a queue of its own. When a reload leaves fewer workers, "
    "or nginx is replaced, the queues of those that go are closed and the connections in them "
    "reset. Since Linux 5.14 the kernel can move them to the others.",
    fix="sysctl -w net.ipv4.tcp_migrate_req=1 in the network namespace of nginx (and in sysctl.d).",
    sources=(
        "Linux: Documentation/networking/ip-sysctl.rst, tcp_migrate_req",
        "Linux: net/ipv4/inet_connection_sock.c, inet_csk_listen_stop",
    ),
    proof="source-only",
    since="1.9.1",
    about="A reload that keeps the number of workers keeps the sockets and loses nothing. How "
    "often this host reloads is not asked for: the switch costs nothing.",
    seen="With six reloads between 4 workers and 1 in seven seconds and 400 connections, 105 "
    "were lost; with the switch on none, with a shared listener none. In 897 such shrinks with the "
    "switch on 9 were lost of 50,149: handshakes that ended as their queue was being closed.",
    profiles=frozenset({"strict"}),
    bad=Example(_CONF, linux(sysctls={_SYSCTL: "0"})),
    good=Example(_CONF, linux(sysctls={_SYSCTL: "1"})),
    check=check,
)
