"""Which servers a configuration asks while it serves: what is to be stubbed; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from nginx_tune.conf.listeners import ListenAddress, listeners
from nginx_tune.conf.scopes import http_directives, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass, is_loopback, is_unix, passes, upstreams
from nginx_tune.conf.variables import Variables
from nginx_tune.nginx.lab.environment import Outgoing, Protocol
from nginx_tune.nginx.lab.stub_server import RESOLVED

_SPOKEN: dict[tuple[str, bool], Protocol] = {
    ("proxy", False): "http",
    ("proxy", True): "https",
    ("grpc", False): "grpc",
    ("grpc", True): "grpcs",
    ("fastcgi", False): "fastcgi",
    ("scgi", False): "scgi",
    ("uwsgi", False): "uwsgi",
}
_DNS_PORT, _SYSLOG_PORT, _HTTPS_PORT, _HTTP_PORT = 53, 514, 443, 80


def plan_outgoing(tree: ConfTree) -> list[Outgoing]:
    """The servers that the tree's http asks, each once, but for those that it has itself."""
    listened = listeners(tree)
    own_sockets = {one.socket.host for one in listened if one.is_unix}
    found = {
        (one.protocol, one.name, one.address, one.port, one.path): one
        for one in (*_upstreams(tree), *_datagrams(tree))
        if not _is_own(one, listened) and one.path not in own_sockets
    }
    return list(found.values())


def unspoken(tree: ConfTree) -> list[str]:
    """The lines that pass requests to what no stub speaks for."""
    return [
        str(one.place)
        for one in passes(scopes(tree), Variables(tree))
        if (one.module, _is_tls(one)) not in _SPOKEN
    ]


def _is_own(one: Outgoing, listened: Sequence[ListenAddress]) -> bool:
    """Whether nginx listens there itself."""
    if not one.address or one.protocol in {"dns", "syslog"}:
        return False
    return any(
        own.socket.is_wildcard or own.socket.host.strip("[]") == one.address
        for own in listened
        if one.port in own.socket.ports
    )


def _upstreams(tree: ConfTree) -> Iterator[Outgoing]:
    groups = {group.name: group for group in upstreams(tree)}
    for one in passes(scopes(tree), Variables(tree)):
        is_tls = _is_tls(one)
        protocol = _SPOKEN.get((one.module, is_tls))
        if protocol is None:
            continue
        usual = _HTTPS_PORT if is_tls else _HTTP_PORT
        for address in one.addresses:
            if address in groups:
                for server in groups[address].servers:
                    yield from _outgoing(protocol, server.value, _HTTP_PORT)
            else:
                yield from _outgoing(protocol, address, usual)
        if one.has_variables and not _is_known(one):
            # Some name that a resolver tells: it leads to the stub of the usual port.
            yield Outgoing(protocol=protocol, name=one.place.value, port=usual)


def _is_tls(one: Pass) -> bool:
    """Whether TLS is spoken, as the line itself says where its variables are not known."""
    return one.is_tls or one.place.value.lower().startswith(("https://", "grpcs://", "suwsgi://"))


def _is_known(one: Pass) -> bool:
    return bool(one.addresses) and not any("$" in address for address in one.addresses)


def _outgoing(protocol: Protocol, text: str, usual: int) -> Iterator[Outgoing]:
    if "$" in text:
        return
    if is_unix(text):
        yield Outgoing(protocol=protocol, name=text, path=text.partition(":")[2])
        return
    host, port = _split(text, usual)
    if port is not None:
        for address in _here(host):
            yield Outgoing(protocol=protocol, name=f"{host}:{port}", address=address, port=port)


def _split(text: str, usual: int) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        return text, usual
    return host, int(port) if port.isascii() and port.isdigit() and 0 < int(
        port
    ) < 1 << 16 else None


def _here(host: str) -> list[str]:
    """The addresses of a host that is this one; an empty one for another."""
    if not is_loopback(host):
        return [""]
    try:
        return [str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))]
    except ValueError:
        return ["127.0.0.1", "::1"]


def _datagrams(tree: ConfTree) -> Iterator[Outgoing]:
    for line in (*tree.main.all("error_log"), *http_directives(tree)):
        if line.name == "resolver":
            for text in line.args:
                if "=" not in text and "$" not in text:
                    yield from _datagram("dns", text, _DNS_PORT)
        elif line.name in {"access_log", "error_log"} and line.value.startswith("syslog:"):
            for option in line.value.removeprefix("syslog:").split(","):
                key, _, server = option.partition("=")
                if key == "server" and is_unix(server):
                    path = server.partition(":")[2]
                    yield Outgoing(protocol="syslog", name=f"syslog {server}", path=path)
                elif key == "server":
                    yield from _datagram("syslog", server, _SYSLOG_PORT)


def _datagram(protocol: Protocol, text: str, usual: int) -> Iterator[Outgoing]:
    host, port = _split(text, usual)
    if port is not None:
        name = f"{protocol} {host}:{port}"
        for address in _here(host):
            far = "" if address else _there(host)
            yield Outgoing(
                protocol=protocol, name=name, address=address, port=port, answers_from=far
            )


def _there(host: str) -> str:
    """The address of another host, as it is known inside the walls."""
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return RESOLVED
