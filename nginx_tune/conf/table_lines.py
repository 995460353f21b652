"""Lines of ``map``, ``geo`` and ``split_clients`` that nginx rejects.

Source: ngx_http_map, ngx_hash_add_key, ngx_http_geo, ngx_http_geo_range, ngx_http_geo_cidr_value,
        ngx_conf_split_clients_block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from ipaddress import IPv4Address

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.own_values import is_network
from nginx_tune.conf.values import is_open, is_placeholder

Fault = tuple[Directive, str, Directive | None]
"""The rejected line, the reason, and an earlier line that it contradicts."""

_FLAGS = {"map": frozenset({"hostnames", "volatile"}), "geo": frozenset({"proxy_recursive"})}
_GEO_WORDS = frozenset({"default", "proxy_recursive", "volatile"})
_BEFORE_RANGES = frozenset({"proxy", "proxy_recursive", "volatile", "include"})
_SHARE = re.compile(r"([0-9]*(?:\.[0-9]{0,2})?)%")
_WHOLE = 100


def table_faults(block: Directive) -> Iterator[Fault]:
    """The rejected lines of a block; a template's placeholders are not judged."""
    lines = [
        line
        for line in block.block or ()
        if line.block is None and not any(map(is_placeholder, (line.name, *line.args)))
    ]
    if block.name == "split_clients":
        yield from _shares(lines)
        return
    flags = _FLAGS.get(block.name, frozenset())
    for line in lines:
        is_flag = not line.args and (line.name in flags or line.name in {"ranges", "volatile"})
        if len(line.args) != 1 and not is_flag:
            yield line, f"a line of {block.name} is a {_KEYS[block.name]} and one value", None
    if block.name == "map":
        yield from _keys(lines)
    elif not is_open(block.args[-1].lstrip("$")):
        yield from _networks(lines)


_KEYS = {"map": "key", "geo": "network"}


def _keys(lines: Sequence[Directive]) -> Iterator[Fault]:
    """Keys that a map has twice, ignoring case, and host names with a misplaced star."""
    first_lines: dict[tuple[bool, str], Directive] = {}
    by_host = False
    for line in lines:
        by_host = by_host or (line.name == "hostnames" and not line.args)
        if len(line.args) != 1 or line.name == "include" or line.name.startswith("~"):
            continue
        is_default = line.name == "default"
        key = line.name.lower().removeprefix("\\")
        if by_host and not is_default and not _is_host_pattern(key):
            yield (
                line,
                "this key is not a host name, or has a * that is not its first or last part",
                None,
            )
        covered = [key]
        if by_host and not is_default and key.startswith("."):  # .a is a and *.a
            covered = [key[1:], f"*{key}"]
        earlier = next(
            (first_lines[one] for one in ((is_default, name) for name in covered)
             if one in first_lines),
            line,
        )  # fmt: skip
        for name in covered:
            first_lines.setdefault((is_default, name), line)
        if earlier is not line:
            name = "a default" if is_default else "this key"
            yield line, f"this map already has {name} at {earlier.file}:{earlier.line}", earlier


def map_keys(block: Directive) -> Iterator[tuple[Directive, int]]:
    """The lines of a map whose key is a whole text, each with the length of the key in bytes."""
    lines = list(block.block or ())
    by_host = any(line.name == "hostnames" and not line.args for line in lines)
    for line in lines:
        key = line.name
        if len(line.args) != 1 or key in {"default", "include"} or is_placeholder(key):
            continue
        if key.startswith("~") or (by_host and ("*" in key or key.startswith("."))):
            continue
        yield line, len(key.removeprefix("\\").encode(errors="surrogateescape"))


def _is_host_pattern(key: str) -> bool:
    """True if the key is a host name, with a star only where ``hostnames`` allows it."""
    inner = key.removeprefix("*.") if key.startswith("*.") else key.removesuffix(".*")
    return "*" not in inner and ".." not in key


def _networks(lines: Sequence[Directive]) -> Iterator[Fault]:
    """Lines that are not networks, or with ``ranges`` not ranges of IPv4 addresses."""
    by_range = False
    for at, line in enumerate(lines):
        if line.name == "ranges" and not line.args:
            before = [one for one in lines[:at] if one.name not in _BEFORE_RANGES]
            if before and not by_range:
                yield line, "ranges must come before the other lines", before[0]
            by_range = True
            continue
        if line.name in _GEO_WORDS or line.name == "include" or len(line.args) != 1:
            continue
        text = line.value if line.name in {"proxy", "delete"} else line.name
        if is_open(text):
            continue
        if by_range and line.name != "proxy":
            if not _is_range(text):
                yield line, f'"{text}" is not a range, such as 10.0.0.1-10.0.0.9', None
        elif not is_network(text):
            yield line, f'"{text}" is not an address or network, such as 10.0.0.0/8', None


def _is_range(text: str) -> bool:
    first, _, last = text.partition("-")
    try:
        return IPv4Address(first) <= IPv4Address(last)
    except ValueError:
        return False


def _shares(lines: Sequence[Directive]) -> Iterator[Fault]:
    """Shares that are not percentages, and the first share with which the sum exceeds 100 %."""
    total, rest = Decimal(), None
    for line in lines:
        if line.name == "*":
            rest = line
            continue
        match = _SHARE.fullmatch(line.name)
        share = Decimal(match[1]) if match and match[1].strip(".") else Decimal()
        if is_open(line.name):
            return
        if not share:
            yield line, f'"{line.name}" is not a share, such as 12.5% with up to two decimals', None
            return
        total += share
        if rest is not None:
            yield line, '"*", the rest, must be the last line', rest
            return
        if total > _WHOLE:
            yield line, f"the shares up to this line add up to {total}%", None
            return
