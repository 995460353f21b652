"""What a stage is that the host is not, in words; which answers are compressed; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from shlex import quote

import msgspec

from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.experiment.operations import MadeEnvironment
from nginx_tune.experiment.validate.outgoing import unspoken
from nginx_tune.nginx.lab.kinds import describe_disk
from nginx_tune.nginx.lab.stub_server import BODY_BYTES, RESOLVED

_CODINGS = {"gzip": "gzip", "brotli": "br", "zstd": "zstd"}
"""By the prefix of their directives; the names of RFC 9110 §8.4.1 and of the IANA registry."""
_SWITCHES = ("", "_static")
_SHAPING = ("", "_static", "_types", "_comp_level", "_min_length", "_proxied")
"""Of a directive's name: what decides how much is compressed, and at what cost."""
_HEADER = "Accept-Encoding"


def accepted_codings(trees: Sequence[ConfTree]) -> list[str]:
    """What either arm compresses with: both are asked alike."""
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
    """What the arms compress with, and where they differ in it."""
    accepted = accepted_codings(trees)
    if not accepted:
        return []
    said = [_lines(tree) for tree in trees]
    apart = "" if said[0] == said[1] else ", in which the arms differ"
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
"""What decides which packets an answer becomes, and nginx's defaults."""


def packet_warnings(lab: Lab, trees: Sequence[ConfTree]) -> list[str]:
    """That the loopback link is no network, where the arms differ in what makes packets.

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
    return [f"the arms differ in {listed(apart)}, and {where} {how}"]


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
    """What relative names stand on, where it is not what nginx was built with."""
    return [f"relative names stand on {prefix}" for prefix in dict.fromkeys(prefixes) if prefix]


def absent_notes(directories: Sequence[str]) -> list[str]:
    """Directories that nginx needs, that were made here and that the host lacks."""
    return [
        f"made here alone: {path}; on this host nginx does not start before mkdir -p {quote(path)}"
        for path in directories
    ]


def unseen_log_notes(devices: Iterable[str]) -> list[str]:
    """That nothing is seen of what nginx says to a device."""
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
