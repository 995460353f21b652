"""Where servers of stream and mail speak TLS and leave its protocols to nginx."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.conf.directive import Block, Directive


def tls_listens(context: Context, section: str) -> list[Directive]:
    """The first listen line of a section's servers that takes TLS without ``ssl_protocols``.

    In mail also by ``starttls``; ``ssl on`` of a whole server or section was up to nginx 1.25.1.
    """
    for blocks in _servers(context, section):
        if _set(blocks, "ssl_protocols") is not None:
            continue
        is_tls = any(
            (line := _set(blocks, name)) is not None and line.value.lower() in {"on", "only"}
            for name in ("ssl", "starttls")
        )
        for line in blocks[0].all("listen"):
            if is_tls or "ssl" in line.args[1:]:
                return [line]
    return []


def tls_proxies(context: Context) -> list[Directive]:
    """The first server of stream that passes on by TLS without ``proxy_ssl_protocols``."""
    for blocks in _servers(context, "stream"):
        passed, switch = blocks[0].first("proxy_pass"), _set(blocks, "proxy_ssl")
        if passed is None or switch is None or switch.value.lower() != "on":
            continue
        if _set(blocks, "proxy_ssl_protocols") is None:
            return [passed]
    return []


def _servers(context: Context, section: str) -> Iterator[tuple[Block, Block]]:
    """The block of each server and the one around it."""
    for outer in context.tree.main.all(section):
        if outer.block is not None:
            for server in outer.block.all("server"):
                if server.block is not None:
                    yield server.block, outer.block


def _set(blocks: tuple[Block, Block], name: str) -> Directive | None:
    return blocks[0].first(name) or blocks[1].first(name)
