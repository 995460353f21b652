"""Notes on the differences of a workbench from the host: stubs, packets, compression.

It also plans the stubs: one for each server that a configuration sends requests to.
"""

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
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.documents.units import bytes_text, plural
from nginx_tune.documents.verdict import LOADED
from nginx_tune.experiment.operations import MadeEnvironment
from nginx_tune.measure.load.classes import ServedFile
from nginx_tune.nginx.lab.disk_models import describe_disk
from nginx_tune.nginx.lab.operation import Outgoing, UpstreamProtocol
from nginx_tune.nginx.lab.stub_server import BODY_BYTES, RESOLVED

_CODINGS = {"gzip": "gzip", "brotli": "br", "zstd": "zstd"}
"""Content codings by the prefix of their directives. Source: RFC 9110 §8.4.1, IANA registry."""
_SWITCHES = ("", "_static")
_SHAPING = ("", "_static", "_types", "_comp_level", "_min_length", "_proxied")
"""Suffixes of the directives that decide what is compressed, and at what cost."""
_HEADER = "Accept-Encoding"


def accepted_codings(trees: Sequence[ConfTree]) -> list[str]:
    """The codings with which either variant compresses; the requests of both accept them."""
    return [
        token
        for coding, token in _CODINGS.items()
        if any(_is_on(scope.value(f"{coding}{switch}", "off"))
               for tree in trees for scope in scopes(tree) for switch in _SWITCHES)
    ]  # fmt: skip


def with_codings(plan: LoadPlan, accepted: Sequence[str]) -> LoadPlan:
    """The plan with an Accept-Encoding of these codings, for classes without an Accept-Encoding."""
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
    """A note on the variants' compression, and on differences in it."""
    accepted = accepted_codings(trees)
    if not accepted:
        return []
    by_tree = [_compression_lines(tree) for tree in trees]
    differ = "" if by_tree[0] == by_tree[1] else ", with differences between the configurations"
    lines = dict.fromkeys(line for own in by_tree for line in own)
    return [f"requests accept {', '.join(accepted)}: compression is on{differ}: {listed(lines)}"]


def _compression_lines(tree: ConfTree) -> list[str]:
    """The directives in force wherever compression is on, each once."""
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
"""Directives that decide how an answer is split into packets, with nginx's defaults."""


def packet_warnings(lab: Lab, trees: Sequence[ConfTree]) -> list[str]:
    """A warning if the variants differ in packet settings and the clients' link is the loopback.

    A packet of ``lo`` holds 64 KB (drivers/net/loopback.c, loopback_setup), so waits for a full
    packet or an acknowledgement differ from those on a network.
    """
    if lab.topology == "link":
        return []
    apart = [
        name for name, default in _OF_PACKETS.items()
        if len({_values(tree, name, default) for tree in trees}) > 1
    ]  # fmt: skip
    if not apart:
        return []
    network = "a real network may show the opposite"
    wire = 'a lab with topology = "link" has packets of 1,500 bytes (docs/lab.md)'
    differ = f"the configurations differ in {listed(apart)}"
    return [f"{differ}, and packets of the loopback link hold 64 KB: {network}; {wire}"]


def _values(tree: ConfTree, name: str, default: str) -> frozenset[str]:
    return frozenset(scope.value(name, default) for scope in scopes(tree))


_MOST_NAMES = 20


def place_notes(
    lab: Lab, covers: Sequence[str], overlays: Sequence[str], *, is_root: bool
) -> list[str]:
    """Notes on covered directories, disks and memory."""
    found = [f"empty and writable, in place of the host's: {', '.join(covers)}"]
    if overlays:
        found.append(f"under an overlay that takes all writes: {', '.join(overlays)}")
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
    """A note on the prefix of relative paths, if it is not the build's."""
    return [f"relative paths are below {prefix}" for prefix in dict.fromkeys(prefixes) if prefix]


def absent_notes(directories: Sequence[str]) -> list[str]:
    """Notes on directories that nginx needs and only the sandbox has."""
    return [
        f"missing on this host: {path}; nginx does not start there without mkdir -p {quote(path)}"
        for path in directories
    ]


def unseen_log_notes(devices: Iterable[str]) -> list[str]:
    """Notes on error logs that are character devices, such as a terminal, each once."""
    return [
        f"error_log {path} is a device, which keeps nothing: error lines, pool overflows and "
        "refused connections are not seen"
        for path in dict.fromkeys(devices)
    ]


def stub_notes(around: MadeEnvironment, trees: Sequence[ConfTree]) -> list[str]:
    """Notes on the network: its stubs, and servers without a stub."""
    found = ["no network but the loopback link: no request leaves this host"]
    by_protocol: dict[str, dict[str, None]] = {}
    for server in around.stubs.answering:
        by_protocol.setdefault(server.protocol, {})[server.name] = None
    for protocol, names in by_protocol.items():
        if protocol == "dns":
            answer = f"every name resolves to {RESOLVED}"
        elif protocol == "syslog":
            answer = "messages are discarded"
        else:
            answer = f"200 with {BODY_BYTES} bytes, at once, over {protocol}"
        found.append(f"a stub in the place of {listed(names)}: {answer}")
    silent = around.stubs.silent.items()
    found += [f"nothing answers in the place of {name}: {why}" for name, why in silent]
    lines = dict.fromkeys(line for tree in trees for line in unspoken(tree))
    if lines:
        found.append(f"no stub speaks the protocol of {listed(lines)}")
    if around.names:
        what = "the stubs" if around.stubs.answering else "an address where nothing answers"
        found.append(f"resolved to {what}: {listed(dict.fromkeys(around.names))}")
    return found


def asked_notes(asked: Sequence[tuple[str, str, str]], left_out: Mapping[str, str]) -> list[str]:
    """Notes on the other places: loaded ones (class, place, description), and those left out."""
    found = []
    if asked:
        places = [f"{name} ({label}: {what})" for name, label, what in asked]
        found.append(f"also loaded: {', '.join(places)}")
    labels: dict[str, list[str]] = {}
    for label, why in left_out.items():
        labels.setdefault(why, []).append(label)
    return found + [f"not loaded: {listed(places)}: {why}" for why, places in labels.items()]


def file_notes(
    classes: Sequence[ScenarioClass], files: Sequence[ServedFile], root: str | None
) -> list[str]:
    """A note on the root of the load, and on the files that its classes request."""
    if not files:
        return []
    size = bytes_text(sum(file.bytes for file in files))
    hot = f"{files[0].url} ({bytes_text(files[0].bytes)})"
    each = {"hot": f"always {hot}", "random": f"one of {plural(len(files), 'file')}, at random"}
    asking = {
        item.name: each[item.source]
        for item in classes
        if item.source in each and not item.manifest
    }
    if not asking:
        return []
    whole = f"{LOADED}{' and '.join(asking)} request {plural(len(files), 'file')} of {root}, {size}"
    return [whole, *(f"{name} requests {which}" for name, which in asking.items())]


def listed(names: Collection[str]) -> str:
    """The first names, and the number of others."""
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
    """The servers that a tree's http block sends requests to, each once, without its listeners."""
    listened = listeners(tree)
    own_sockets = {listener.socket.host for listener in listened if listener.is_unix}
    found = {
        (address.protocol, address.name, address.address, address.port, address.path): address
        for address in (*_upstreams(tree), *_datagrams(tree))
        if not _is_own(address, listened) and address.path not in own_sockets
    }
    return list(found.values())


def plan_outgoing_of_all(trees: Sequence[ConfTree]) -> list[Outgoing]:
    """The servers that any tree sends requests to, each once."""
    every = [outgoing for tree in trees for outgoing in plan_outgoing(tree)]
    return list({(o.protocol, o.name, o.address, o.port, o.path): o for o in every}.values())


def unspoken(tree: ConfTree) -> list[str]:
    """The lines that pass requests over a protocol without a stub."""
    return [
        str(passed.place)
        for passed in passes(scopes(tree), Variables(tree))
        if (passed.module, _is_tls(passed)) not in _SPOKEN
    ]


def _is_own(one: Outgoing, listened: Sequence[ListenAddress]) -> bool:
    """True if nginx itself listens at the address."""
    if not one.address or one.protocol in {"dns", "syslog"}:
        return False
    return any(
        own.socket.is_wildcard or own.socket.host.strip("[]") == one.address
        for own in listened
        if one.port in own.socket.ports
    )


def _upstreams(tree: ConfTree) -> Iterator[Outgoing]:
    groups = {group.name: group for group in upstreams(tree)}
    for passed in passes(scopes(tree), Variables(tree)):
        is_tls = _is_tls(passed)
        protocol = _SPOKEN.get((passed.module, is_tls))
        if protocol is None:
            continue
        usual = _HTTPS_PORT if is_tls else _HTTP_PORT
        for address in passed.addresses:
            if address in groups:
                for server in groups[address].servers:
                    yield from _outgoing(protocol, server.value, _HTTP_PORT)
            else:
                yield from _outgoing(protocol, address, usual)
        if passed.has_variables and not _is_known(passed):
            # A name that the resolver resolves leads to the stub at the usual port.
            yield Outgoing(protocol=protocol, name=passed.place.value, port=usual)


def _is_tls(one: Pass) -> bool:
    """True if requests are passed over TLS; with unknown variables, by the scheme in the line."""
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
    """The loopback addresses of a host name; one empty string if it is another host."""
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
    """The address of another host inside the sandbox."""
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return RESOLVED
