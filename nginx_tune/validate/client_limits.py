"""Limits for each client, which a load from one address meets as one client would; pure.

Source: ngx_http_limit_req_handler, ngx_http_limit_conn_handler: a key that is empty is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, http_directives, scopes
from nginx_tune.conf.sockets import SocketName, socket_name
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.virtual_servers import names_of, virtual_servers
from nginx_tune.documents.loadplan import LoadPlan, Target
from nginx_tune.validate.lost import is_reached

_MODULES = ("limit_req", "limit_conn")
_STATUS = "503"
_ADDRESS = re.compile(r"\$\{?(?:binary_)?(?:remote|realip_remote|proxy_protocol)_addr\b")
_VARIABLE = re.compile(r"\$\{?(\w+)")
_DEEPEST = 8


class ClientLimit(NamedTuple):
    """A limit that holds for each client by itself."""

    text: str
    """With its zone, its rate and its key."""
    status: int
    """What it answers who passes it."""


class ClientLimits:
    """Those of both configurations, by the server that is asked."""

    def __init__(self, trees: Iterable[ConfTree]) -> None:
        self._servers = [one for tree in trees for one in virtual_servers(tree)]
        self._limits: dict[Directive, dict[ClientLimit, None]] = {}
        for tree in trees:
            keys = _client_zones(tree)
            for scope in scopes(tree) if keys else ():
                own = self._limits.setdefault(scope.server, {})
                own.update(dict.fromkeys(_limits(scope, keys)))

    def at(self, target: Target) -> dict[ClientLimit, str]:
        """Those of the server that answers there, each with the name of the server.

        Of all its locations: a request may be sent on from one to another.
        """
        if not any(self._limits.values()):
            return {}
        name = _socket(target)
        found: dict[ClientLimit, str] = {}
        for one in self._servers:
            if one.socket == name or is_reached(name, one.socket, takes_ipv4=one.takes_ipv4):
                server = one.choose(target.host).server
                for limit in self._limits.get(server, ()):
                    found.setdefault(limit, names_of(server)[0] or "the server")
        return found

    def statuses(self, target: Target) -> set[int]:
        """What they answer there."""
        return {limit.status for limit in self.at(target)}

    def statuses_of(self, plan: LoadPlan) -> dict[str, list[int]]:
        """What they answer to each class that meets some."""
        found = {one.name: self.statuses(one.target or plan.target) for one in plan.classes}
        return {name: sorted(statuses) for name, statuses in found.items() if statuses}

    def notes(self, plan: LoadPlan) -> list[str]:
        """For people: those that a load may meet, before it is made."""
        lines = dict.fromkeys(
            f"{limit.text} of {name}"
            for one in plan.classes
            for limit, name in self.at(one.target or plan.target).items()
        )
        said = "all load comes from one address, which they meet as one client"
        return [f"limits for each client ({', '.join(lines)}): {said}"] if lines else []

    def met(self, plan: LoadPlan, limited: Mapping[str, int]) -> list[str]:
        """For people: the limits that the load met; ``limited`` are by class what they refused."""
        counts: dict[tuple[tuple[ClientLimit, str], ...], int] = {}
        for one in plan.classes:
            if limited.get(one.name):
                limits = tuple(self.at(one.target or plan.target).items())
                counts[limits] = counts.get(limits, 0) + limited[one.name]
        return [
            f"{count:,} requests were answered {_words(str(one.status) for one, _ in limits)}, as "
            f"{_words(f'{one.text} of {name}' for one, name in limits)} does: all load comes from "
            "one address, and meets a limit for each client as one client with its rate would; "
            "they are not counted as failures"
            for limits, count in counts.items()
        ]


def _words(found: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(found))


def _limits(scope: Scope, keys: Mapping[str, tuple[str, str]]) -> Iterator[ClientLimit]:
    for module in _MODULES:
        if scope.value(f"{module}_dry_run") == "on":
            continue
        status = scope.value(f"{module}_status", _STATUS)
        for line in scope.effective_all(module):
            zone = next((arg[5:] for arg in line.args if arg.startswith("zone=")), line.value)
            if f"{module} {zone}" not in keys or not status.isdecimal():
                continue
            key, rate = keys[f"{module} {zone}"]
            most = rate or " ".join(line.args[1:])
            yield ClientLimit(f"{module} {line.value} ({most} for each {key})", int(status))


def _client_zones(tree: ConfTree) -> dict[str, tuple[str, str]]:
    """By the module and the name of a zone whose key tells clients' addresses: it, and its rate."""
    maps = {line.args[1]: line for line in http_directives(tree)
            if line.name == "map" and len(line.args) > 1}  # fmt: skip
    found = {}
    for line in http_directives(tree):
        module = line.name.removesuffix("_zone")
        if module not in _MODULES or module == line.name or not _is_by_client(line.value, maps):
            continue
        words = dict(arg.split("=", 1) for arg in line.args[1:] if "=" in arg)
        zone = words.get("zone", "").partition(":")[0]
        found[f"{module} {zone}"] = (line.value, words.get("rate", ""))
    return found


def _is_by_client(key: str, maps: Mapping[str, Directive], depth: int = 0) -> bool:
    """Whether a key holds the client's address, itself or by a map that leaves some out."""
    if _ADDRESS.search(key):
        return True
    if depth == _DEEPEST:
        return False
    lines = (maps.get(f"${name}") for name in _VARIABLE.findall(key))
    return any(
        _is_by_client(arg, maps, depth + 1)
        for line in lines
        for row in ((line.block if line else None) or Block([]))
        for arg in row.args
    )


def _socket(target: Target) -> SocketName:
    if target.unix is not None:
        return socket_name(f"unix:{target.unix}")
    host = f"[{target.address}]" if ":" in target.address else target.address
    return socket_name(f"{host}:{target.port}")
