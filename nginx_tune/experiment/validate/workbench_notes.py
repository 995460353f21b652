"""The differences of a workbench from the host, in words: stubs, packets, compression; pure.

Servers that a configuration asks while it serves are stubbed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from shlex import quote

import msgspec

from nginx_tune.conf.listeners import ListenAddress, listeners
from nginx_tune.conf.scopes import http_directives, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass, is_loopback, is_unix, passes, upstreams
from nginx_tune.conf.variables import Variables
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.experiment.operations import MadeEnvironment
from nginx_tune.nginx.lab.disk_models import describe_disk
from nginx_tune.nginx.lab.operation import Outgoing, UpstreamProtocol
from nginx_tune.nginx.lab.stub_server import BODY_BYTES, RESOLVED

_CODINGS = {"gzip": "gzip", "brotli": "br", "zstd": "zstd"}
"""By the prefix of their directives; the names of RFC 9110 §8.4.1 and of the IANA registry."""
_SWITCHES = ("", "_static")
_SHAPING = ("", "_static", "_types", "_comp_level", "_min_length", "_proxied")
"""Ends of directives' names that decide how much is compressed, and at what cost."""
_HEADER = "Accept-Encoding"


def accepted_codings(trees: Sequence[ConfTree]) -> list[str]:
    """The codings with which either variant compresses: both are asked alike."""
    return [
        token
        for coding, token in _CODINGS.items()
        if any(_is_on(scope.value(f"{coding}{switch}", "off"))
               for tree in trees for scope in scopes(tree) for switch in _SWITCHES)
    ]  # fmt: skip


def with_codings(plan: LoadPlan, accepted: Sequence[str]) -> LoadPlan:
    """The plan whose requests accept these, but where a class says itself what it accepts."""
    if not accepted:
        return plan
    classes = [
        item
        if any(name.lower() == _HEADER.lower() for name in item.headers)
        else msgspec.structs.replace(item, headers={**item.headers, _HEADER: ", ".join(accepted)})
        for item in plan.classes
    ]
    return msgspec.structs.replace(plan, classes=classes)


def compression_notes(trees: Sequence[ConfTree]) -> list[str]:
    """The codings of the variants, and where they differ."""
    accepted = accepted_codings(trees)
    if not accepted:
        return []
    said = [_lines(tree) for tree in trees]
    apart = "" if said[0] == said[1] else ", in which the configurations differ"
    lines = dict.fromkeys(line for one in said for line in one)
    return [f"requests accept {', '.join(accepted)}: compression is on{apart}: {listed(lines)}"]


def _lines(tree: ConfTree) -> list[str]:
    """The lines that turn compression on, or shape it where it is on; each once."""
    found: dict[str, None] = {}
    for scope in scopes(tree):
        for coding in _CODINGS:
            if not any(_is_on(scope.value(f"{coding}{switch}", "off")) for switch in _SWITCHES):
                continue
            lines = (scope.effective(f"{coding}{what}") for what in _SHAPING)
            found |= dict.fromkeys(str(line) for line in lines if line is not None)
    return list(found)


def _is_on(value: str) -> bool:
    return value != "off"


_OF_PACKETS = {
    "sendfile": "off",
    "tcp_nopush": "off",
    "tcp_nodelay": "on",
    "postpone_output": "1460",
}
"""Directives that decide which packets an answer becomes, and nginx's defaults."""


def packet_warnings(lab: Lab, trees: Sequence[ConfTree]) -> list[str]:
    """Warnings that the loopback link is no network, where what makes packets differs.

    One packet of ``lo`` takes 64 KB (drivers/net/loopback.c, loopback_setup), so that what waits
    there for a full packet or for an acknowledgement is not what waits on a network.
    """
    if lab.topology == "link":
        return []
    apart = [
        name for name, default in _OF_PACKETS.items()
        if len({_values(tree, name, default) for tree in trees}) > 1
    ]  # fmt: skip
    if not apart:
        return []
    where = "over the loopback link one packet takes 64 KB: on a network it may be the other way"
    how = 'round; a lab with topology = "link" has packets of 1,500 bytes (docs/lab.md)'
    return [f"the configurations differ in {listed(apart)}, and {where} {how}"]


def _values(tree: ConfTree, name: str, default: str) -> frozenset[str]:
    return frozenset(scope.value(name, default) for scope in scopes(tree))


_MOST_NAMES = 20


def place_notes(
    lab: Lab, covers: Sequence[str], overlays: Sequence[str], *, is_root: bool
) -> list[str]:
    """Directories, disks and memory."""
    found = [f"empty and writable instead of the host's: {', '.join(covers)}"]
    if overlays:
        found.append(f"seen through an overlay that takes the writes: {', '.join(overlays)}")
    for disk in lab.disks:
        data = [item for item in lab.data if item.disk == disk.name]
        files = sum(len(item.sizes) or item.files for item in data)
        total = sum(sum(item.sizes.values()) or item.files * item.file_bytes for item in data)
        found.append(
            f"{disk.mount}: {files} generated files of {total} bytes in all on an "
            f"emulated {disk.class_name} ({describe_disk(disk)})"
        )
    if lab.memory_bytes is not None:
        found.append(f"memory of nginx limited to {lab.memory_bytes} bytes")
    if not is_root:
        found.append("not run as root: workers run as the calling user")
    return found


def prefix_notes(prefixes: Sequence[str | None]) -> list[str]:
    """The prefix of relative names, where it is not the one that nginx was built with."""
    return [f"relative names stand on {prefix}" for prefix in dict.fromkeys(prefixes) if prefix]


def absent_notes(directories: Sequence[str]) -> list[str]:
    """Directories that nginx needs, that were made here and that the host lacks."""
    return [
        f"made here alone: {path}; on this host nginx does not start before mkdir -p {quote(path)}"
        for path in directories
    ]


def unseen_log_notes(devices: Iterable[str]) -> list[str]:
    """Notes on logs that are devices: nothing is seen of what nginx says there."""
    return [
        f"error_log {path} is a device, which keeps nothing: error lines are not seen, nor pool "
        "overflows and refused connections"
        for path in devices
    ]


def stub_notes(around: MadeEnvironment, trees: Sequence[ConfTree]) -> list[str]:
    """The network, what answers in it, and what does not."""
    found = ["no network but the loopback link: no request leaves this host"]
    by_protocol: dict[str, dict[str, None]] = {}
    for one in around.stubs.answering:
        by_protocol.setdefault(one.protocol, {})[one.name] = None
    for protocol, names in by_protocol.items():
        if protocol == "dns":
            said = f"every name resolves to {RESOLVED}"
        elif protocol == "syslog":
            said = "what is logged is thrown away"
        else:
            said = f"200 with {BODY_BYTES} bytes, at once, by {protocol}"
        found.append(f"a stub in the place of {listed(names)}: {said}")
    silent = around.stubs.silent.items()
    found += [f"nothing answers in the place of {name}: {why}" for name, why in silent]
    lines = dict.fromkeys(line for tree in trees for line in unspoken(tree))
    if lines:
        found.append(f"no stub speaks what these need: {listed(lines)}")
    if around.names:
        what = "the stubs" if around.stubs.answering else "an address where nothing answers"
        found.append(f"resolved to {what}: {listed(dict.fromkeys(around.names))}")
    return found


def asked_notes(asked: Sequence[tuple[str, str, str]], left_out: Mapping[str, str]) -> list[str]:
    """The other places that are asked (class, place, what it is), and those that are not."""
    found = []
    if asked:
        said = [f"{name} ({label}: {what})" for name, label, what in asked]
        found.append(f"asked beside the first root: {', '.join(said)}")
    return found + [f"not loaded: {label}: {why}" for label, why in left_out.items()]


def listed(names: Collection[str]) -> str:
    """The first of them, and how many more there are."""
    shown = list(names)[:_MOST_NAMES]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


_SPOKEN: dict[tuple[str, bool], UpstreamProtocol] = {
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
    """True if nginx listens there itself."""
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
    """True if TLS is spoken, as the line itself says where its variables are not known."""
    return one.is_tls or one.place.value.lower().startswith(("https://", "grpcs://", "suwsgi://"))


def _is_known(one: Pass) -> bool:
    return bool(one.addresses) and not any("$" in address for address in one.addresses)


def _outgoing(protocol: UpstreamProtocol, text: str, usual: int) -> Iterator[Outgoing]:
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


def _datagram(protocol: UpstreamProtocol, text: str, usual: int) -> Iterator[Outgoing]:
    host, port = _split(text, usual)
    if port is not None:
        name = f"{protocol} {host}:{port}"
        for address in _here(host):
            far = "" if address else _there(host)
            yield Outgoing(
                protocol=protocol, name=name, address=address, port=port, answers_from=far
            )


def _there(host: str) -> str:
    """The address of another host, as it is known inside the sandbox."""
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return RESOLVED
