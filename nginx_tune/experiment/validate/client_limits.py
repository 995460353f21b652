"""Limits that refuse requests, which a load from one address meets as one client would; pure.

Source: ngx_http_limit_req_handler, ngx_http_limit_conn_handler: a key that is empty is not counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import SocketName, socket_name
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import Scope, http_directives, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.virtual_servers import names_of, virtual_servers
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Target
from nginx_tune.experiment.validate.successors import is_reached

_MODULES = ("limit_req", "limit_conn")
_STATUS = "503"
_ADDRESS = re.compile(r"\$\{?(?:binary_)?(?:remote|realip_remote|proxy_protocol)_addr\b")
_OF_ALL = re.compile(
    r"\$\{?(?:server_(?:name|addr|port|protocol)|(?:http_)?host|(?:request_|document_)?uri|scheme|"
    r"request(?:_method)?|(?:document|realpath)_root|http_user_agent|hostname|limit_rate)\b"
)
"""Variables that each request of a load has, so that such a key is never empty."""
_VARIABLE = re.compile(r"\$\{?(\w+)")
_RATE = re.compile(r"([0-9]+)r/([sm])")
_DEEPEST = 8
_SHARE = 0.8
"""The share of a limit's rate that a load below it asks."""
_LEAST_PER_SECOND = 1.0
"""A class that may ask less often has too few answers in a block to say anything."""


class ClientLimit(NamedTuple):
    """A limit that holds for each client by itself, or for all of them together."""

    text: str
    """With its zone, its rate and its key."""
    status: int
    """The status for who passes it."""
    zone: str
    """With its module: limits of one zone count together."""
    per_second: float | None
    """The rate of ``limit_req``."""
    at_once: int | None
    """The number of ``limit_conn``."""


class Paced(NamedTuple):
    """A load that stays below the limits that it would meet."""

    plans: dict[str, LoadPlan]
    """By the variant's name."""
    paced: list[str]
    """Classes that ask at a fixed rate therefore."""
    refused: dict[str, str]
    """The reasons to load no others, by their URL."""


class ClientLimits:
    """Those of both configurations, by the server that is asked."""

    def __init__(self, trees: Sequence[ConfTree], *, of_all: bool = False) -> None:
        """``of_all`` takes those of all clients together too."""
        matchers = [LocationMatcher(tree) for tree in trees]
        self._servers = [
            (one, matcher)
            for tree, matcher in zip(trees, matchers, strict=True)
            for one in virtual_servers(tree)
        ]
        self._limits: dict[Directive, dict[ClientLimit, None]] = {}
        self._by_place: dict[Directive, list[ClientLimit]] = {}
        for tree in trees:
            keys = _zones(tree, of_all=of_all)
            for scope in scopes(tree) if keys else ():
                found = list(_limits(scope, keys))
                self._by_place[scope.own] = found
                self._limits.setdefault(scope.server, {}).update(dict.fromkeys(found))

    def at(self, target: Target) -> dict[ClientLimit, str]:
        """Those of the server that answers there, each with the name of the server.

        Of all its locations: a request may be sent on from one to another.
        """
        if not any(self._limits.values()):
            return {}
        found: dict[ClientLimit, str] = {}
        for server, _ in self._asked(target):
            for limit in self._limits.get(server, ()):
                found.setdefault(limit, names_of(server)[0] or "the server")
        return found

    def of_urls(self, target: Target, urls: Iterable[str]) -> set[ClientLimit]:
        """Those of the locations that take the URLs there, in either configuration."""
        if not any(self._limits.values()):
            return set()
        servers = list(self._asked(target))
        places = {
            matcher.location_of(server, url.partition("?")[0]) or server
            for server, matcher in servers
            for url in urls
        }
        return {limit for place in places for limit in self._by_place.get(place, ())}

    def _asked(self, target: Target) -> Iterator[tuple[Directive, LocationMatcher]]:
        """The servers that answer there."""
        name = _socket(target)
        for one, matcher in self._servers:
            if one.socket == name or is_reached(name, one.socket, takes_ipv4=one.takes_ipv4):
                yield one.choose(target.host).server, matcher

    def below(self, plans: Mapping[str, LoadPlan], *, first: str = "") -> Paced:
        """The same load, where it would pass a limit at a rate below it.

        Of one zone all classes share the rate, and both variants ask alike. Recorded requests keep
        their times. A class that would ask too seldom is left out, the one named ``first`` last.
        """
        met: dict[str, set[ClientLimit]] = {}
        for plan in plans.values():
            for one in plan.classes:
                if one.paths.manifest is None:
                    found = self.of_urls(one.target or plan.target, one.paths.paths)
                    met.setdefault(one.name, set()).update(found)
        bounds = _bounds(dict(sorted(met.items(), key=lambda item: item[0] != first)))
        refused: dict[str, str] = {}
        paced: dict[str, None] = {}
        made: dict[str, LoadPlan] = {}
        for variant, plan in plans.items():
            classes = []
            for one in plan.classes:
                bound = bounds.get(one.name, _NO_BOUND)
                is_above = bound.per_second is not None and _asks_at_most(one) > bound.per_second
                if is_above and (bound.per_second or 0.0) < _LEAST_PER_SECOND:
                    refused[f"{one.name} ({one.paths.paths[0]})"] = (
                        f"{bound.text}: below that it would ask too seldom to be judged"
                    )
                    continue
                if is_above:
                    paced[one.name] = None
                classes.append(_within(one, bound, is_above=is_above))
            made[variant] = msgspec.structs.replace(plan, classes=classes)
        return Paced(made, list(paced), refused)

    def statuses(self, target: Target) -> set[int]:
        """The statuses of the limits there."""
        return {limit.status for limit in self.at(target)}

    def statuses_of(self, plan: LoadPlan) -> dict[str, list[int]]:
        """The statuses of limits by each class that meets some."""
        found = {one.name: self.statuses(one.target or plan.target) for one in plan.classes}
        return {name: sorted(statuses) for name, statuses in found.items() if statuses}

    def notes(self, plan: LoadPlan, paced: Sequence[str] = ()) -> list[str]:
        """For people: those that a load may meet, before it is made.

        ``paced`` are classes that ask at a fixed rate for them.
        """
        lines = dict.fromkeys(
            f"{limit.text} of {name}"
            for one in plan.classes
            for limit, name in self.at(one.target or plan.target).items()
        )
        if not lines:
            return []
        said = "all load comes from one address, which they meet as one client"
        rates = {one.name: one.arrivals.rate_per_second for one in plan.classes}
        below = ", ".join(f"{name} {rates[name]:.3g}/s" for name in paced if rates.get(name))
        more = f"; asked below them: {below}" if below else ""
        return [f"limits ({', '.join(lines)}): {said}{more}"]

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


class _Bound(NamedTuple):
    """The bound below which a class meets no limit."""

    per_second: float | None = None
    text: str = ""
    """The limit of the rate."""
    at_once: int | None = None


_NO_BOUND = _Bound()


def _bounds(met: Mapping[str, Collection[ClientLimit]]) -> dict[str, _Bound]:
    """By class; what classes meet of one zone is shared out among them.

    Among as many, in their order, as can ask often enough then.
    """
    sharing = Counter(zone for found in met.values() for zone in {one.zone for one in found})
    taken: Counter[str] = Counter()
    bounds = {}
    for name, found in met.items():
        rates = []
        for zone in sorted({one.zone for one in found if one.per_second is not None}):
            rate, text = min((one.per_second or 0.0, one.text) for one in found if one.zone == zone)
            most = min(sharing[zone], max(1, int(_SHARE * rate / _LEAST_PER_SECOND)))
            taken[zone] += 1
            rates.append((_SHARE * rate / most if taken[zone] <= most else 0.0, text))
        counts = [
            max(1, one.at_once // sharing[one.zone]) for one in found if one.at_once is not None
        ]
        at_once = min(counts, default=None)
        bounds[name] = _Bound(*min(rates), at_once) if rates else _Bound(at_once=at_once)
    return bounds


def _asks_at_most(one: LoadClass) -> float:
    """Requests a second that a class can come to, whoever answers."""
    arrivals = one.arrivals
    if arrivals.kind != "closed":
        return arrivals.rate_per_second or float("inf")
    pause = arrivals.think_seconds
    return (arrivals.users or 1) / pause if pause else float("inf")


def _within(one: LoadClass, bound: _Bound, *, is_above: bool) -> LoadClass:
    """The class below its limits: at a rate, and with so many requests at once."""
    if is_above:
        arrivals = Arrivals(kind="constant", rate_per_second=bound.per_second)
        one = msgspec.structs.replace(one, arrivals=arrivals)
    if bound.at_once is None:
        return one
    most, users = bound.at_once, one.arrivals.users
    fewer = None if users is None else min(users, most)
    return msgspec.structs.replace(
        one,
        arrivals=msgspec.structs.replace(one.arrivals, users=fewer),
        connections=min(one.connections, most),
        held_connections=None if one.held_connections is None else min(one.held_connections, most),
    )


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
            count = next(filter(str.isdecimal, line.args[1:]), None)
            yield ClientLimit(
                f"{module} {line.value} ({most} for each {key})",
                int(status),
                f"{module} {zone}",
                _per_second(rate) if rate else None,
                int(count) if count and not rate else None,
            )


def _per_second(rate: str) -> float | None:
    """A rate as ``limit_req_zone`` has it. Source: ngx_http_limit_req_zone."""
    found = _RATE.fullmatch(rate)
    return None if found is None else int(found[1]) / (60 if found[2] == "m" else 1)


def _zones(tree: ConfTree, *, of_all: bool) -> dict[str, tuple[str, str]]:
    """By the module and the name of a zone: its key, which a load meets, and its rate."""
    maps = {line.args[1]: line for line in http_directives(tree)
            if line.name == "map" and len(line.args) > 1}  # fmt: skip
    found = {}
    for line in http_directives(tree):
        module = line.name.removesuffix("_zone")
        if module not in _MODULES or module == line.name or not line.value:
            continue
        if not _holds(_ADDRESS, line.value, maps) and not (
            of_all and ("$" not in line.value or _holds(_OF_ALL, line.value, maps))
        ):
            continue
        words = dict(arg.split("=", 1) for arg in line.args[1:] if "=" in arg)
        zone = words.get("zone", "").partition(":")[0]
        found[f"{module} {zone}"] = (line.value, words.get("rate", ""))
    return found


def _holds(
    variable: re.Pattern[str], key: str, maps: Mapping[str, Directive], depth: int = 0
) -> bool:
    """True if a key holds such a variable, itself or by a map that leaves some out."""
    if variable.search(key):
        return True
    if depth == _DEEPEST:
        return False
    lines = (maps.get(f"${name}") for name in _VARIABLE.findall(key))
    return any(
        _holds(variable, arg, maps, depth + 1)
        for line in lines
        for row in ((line.block if line else None) or Block([]))
        for arg in row.args
    )


def _socket(target: Target) -> SocketName:
    if target.unix is not None:
        return socket_name(f"unix:{target.unix}")
    host = f"[{target.address}]" if ":" in target.address else target.address
    return socket_name(f"{host}:{target.port}")
