"""``limit_req`` and ``limit_conn``, which treat a load from one address as one client.

Source: ngx_http_limit_req_handler, ngx_http_limit_conn_handler: an empty key is not counted.
"""

import math
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
"""Variables that every request of a load has, so that a key made of them is never empty."""
_VARIABLE = re.compile(r"\$\{?(\w+)")
_RATE = re.compile(r"([0-9]+)r/([sm])")
_DEEPEST = 8
_SHARE = 0.8
"""The share of a limit's rate that a slowed-down load uses."""
_SHARE_WITHOUT_BURST = 0.5
"""The share of the rate if the limit allows no burst. Then no request is refused if it comes late
by half an interval."""
_LEAST_PER_SECOND = 1.0
"""The rate below which a class has too few answers in a run to be judged."""


class ClientLimit(NamedTuple):
    """A limit per client, or on all clients together."""

    text: str
    """The directive with its zone, rate and key."""
    status: int
    """The status of a refusal."""
    zone: str
    """The module and zone: limits of one zone count together."""
    per_second: float | None
    """The rate of ``limit_req``."""
    burst: int
    """The burst of ``limit_req``: requests above the rate that may come at once."""
    at_once: int | None
    """The number of ``limit_conn``."""

    @property
    def module(self) -> str:
        """``limit_req`` or ``limit_conn``."""
        return self.zone.partition(" ")[0]


class Paced(NamedTuple):
    """A load that stays below the limits."""

    plans: dict[str, LoadPlan]
    """The load plans, by the variant's name."""
    paced: list[str]
    """Classes with a fixed rate because of the limits."""
    refused: dict[str, str]
    """Classes that are left out, with the reasons."""


class ClientLimits:
    """The limits of both configurations, by server and location."""

    def __init__(self, trees: Sequence[ConfTree], *, of_all: bool = False) -> None:
        """Read the limits; with ``of_all`` also those on all clients together."""
        matchers = [LocationMatcher(tree) for tree in trees]
        self._servers = [
            (server, matcher)
            for tree, matcher in zip(trees, matchers, strict=True)
            for server in virtual_servers(tree)
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
        """The limits of the servers that answer at a target, with the servers' names.

        All locations count, since a request may be redirected internally.
        """
        if not any(self._limits.values()):
            return {}
        found: dict[ClientLimit, str] = {}
        for server, _ in self._servers_at(target):
            for limit in self._limits.get(server, ()):
                found.setdefault(limit, names_of(server)[0] or "the server")
        return found

    def of_urls(self, target: Target, urls: Iterable[str]) -> set[ClientLimit]:
        """The limits of the locations that take the URLs at a target, in either configuration."""
        if not any(self._limits.values()):
            return set()
        servers = list(self._servers_at(target))
        places = {
            matcher.location_of(server, url.partition("?")[0]) or server
            for server, matcher in servers
            for url in urls
        }
        return {limit for place in places for limit in self._by_place.get(place, ())}

    def _servers_at(self, target: Target) -> Iterator[tuple[Directive, LocationMatcher]]:
        """The server of each configuration that answers at a target."""
        name = _socket(target)
        for server, matcher in self._servers:
            if server.socket == name or is_reached(
                name, server.socket, takes_ipv4=server.takes_ipv4
            ):
                yield server.choose(target.host).server, matcher

    def below(self, plans: Mapping[str, LoadPlan], *, first: str = "") -> Paced:
        """The load; classes that would exceed the limits are slowed down to stay below them.

        All classes of a zone share its rate, and both variants get the same rate. Arrivals are
        evenly spaced: random ones would exceed a rate above their mean. Recorded requests keep
        their times. Classes whose rate would be too low are left out; ``first`` is the last to go.
        """
        met: dict[str, set[ClientLimit]] = {}
        for plan in plans.values():
            for class_ in plan.classes:
                if class_.paths.manifest is None:
                    found = self.of_urls(class_.target or plan.target, class_.paths.paths)
                    met.setdefault(class_.name, set()).update(found)
        bounds = _bounds(dict(sorted(met.items(), key=lambda item: item[0] != first)))
        refused: dict[str, str] = {}
        paced: dict[str, None] = {}
        made: dict[str, LoadPlan] = {}
        for variant, plan in plans.items():
            classes = []
            for class_ in plan.classes:
                bound = bounds.get(class_.name, _NO_BOUND)
                most = _asks_at_most(class_)
                if most > bound.per_second and bound.per_second < _LEAST_PER_SECOND:
                    why = (
                        "a load below that rate is too small for a verdict"
                        if bound.has_room
                        else "without a larger burst, no further class fits below it"
                    )
                    refused[f"{class_.name} ({class_.paths.paths[0]})"] = f"{bound.text}: {why}"
                    continue
                if bound.text:
                    paced[class_.name] = None
                classes.append(_within(class_, bound, most))
            made[variant] = msgspec.structs.replace(plan, classes=classes)
        return Paced(made, list(paced), refused)

    def statuses(self, target: Target) -> set[int]:
        """The statuses with which limits at a target refuse requests."""
        return {limit.status for limit in self.at(target)}

    def statuses_of(self, plan: LoadPlan) -> dict[str, list[int]]:
        """The statuses of limits by class, for classes that meet any."""
        found = {
            class_.name: self.statuses(class_.target or plan.target) for class_ in plan.classes
        }
        return {name: sorted(statuses) for name, statuses in found.items() if statuses}

    def notes(self, plan: LoadPlan, paced: Sequence[str] = ()) -> list[str]:
        """A note on the limits that a load may meet; ``paced`` are the classes slowed down."""
        lines = dict.fromkeys(
            f"{limit.text} of {name}"
            for class_ in plan.classes
            for limit, name in self.at(class_.target or plan.target).items()
        )
        if not lines:
            return []
        rates = {class_.name: class_.arrivals.rate_per_second for class_ in plan.classes}
        below = ", ".join(f"{name} {rates[name]:.3g}/s" for name in paced if rates.get(name))
        more = f"; loaded below them: {below}" if below else ""
        what = "all load comes from one address, so they treat it as one client"
        return [f"limits ({', '.join(lines)}): {what}{more}"]

    def met(self, plan: LoadPlan, limited: Mapping[str, int]) -> list[str]:
        """Notes on the limits that the load met; ``limited``: refusals by class."""
        counts: dict[tuple[tuple[ClientLimit, str], ...], int] = {}
        for class_ in plan.classes:
            if limited.get(class_.name):
                limits = tuple(self.at(class_.target or plan.target).items())
                counts[limits] = counts.get(limits, 0) + limited[class_.name]
        return [
            f"{count:,} requests were refused with "
            f"{_any_of(str(limit.status) for limit, _ in limits)} by "
            f"{_any_of(f'{limit.text} of {name}' for limit, name in limits)}, which treats all "
            "load from one address as one client. Such requests do not count as failures"
            for limits, count in counts.items()
        ]


def _any_of(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))


class _Bound(NamedTuple):
    """The rate and concurrency below which a class meets no limit."""

    per_second: float = math.inf
    text: str = ""
    """The limit of the rate; empty without one."""
    has_room: bool = True
    """False if other classes take all that the burst lets pass at one moment."""
    at_once: int | None = None


_NO_BOUND = _Bound()


def _bounds(met: Mapping[str, Collection[ClientLimit]]) -> dict[str, _Bound]:
    """The bounds of each class; the rate of a zone is shared among its classes.

    If the rate is too low for all classes, only the first ones share it. Each of these gets enough
    of it, and all of them may arrive at one moment.
    """
    sharing = Counter(zone for found in met.values() for zone in {limit.zone for limit in found})
    taken: Counter[str] = Counter()
    bounds = {}
    for name, found in met.items():
        rates = []
        for zone in sorted({limit.zone for limit in found if limit.per_second is not None}):
            rate, text = min(
                (limit.per_second or 0.0, limit.text) for limit in found if limit.zone == zone
            )
            burst = min(limit.burst for limit in found if limit.zone == zone)
            whole = (_SHARE if burst else _SHARE_WITHOUT_BURST) * rate
            enough = max(1, int(whole / _LEAST_PER_SECOND))
            most = min(sharing[zone], enough, burst + 1)
            taken[zone] += 1
            has_room = taken[zone] <= burst + 1
            rates.append((whole / most if taken[zone] <= most else 0.0, text, has_room))
        counts = [
            max(1, limit.at_once // sharing[limit.zone])
            for limit in found
            if limit.at_once is not None
        ]
        at_once = min(counts, default=None)
        bounds[name] = _Bound(*min(rates), at_once) if rates else _Bound(at_once=at_once)
    return bounds


def _asks_at_most(one: LoadClass) -> float:
    """An upper bound on a class's requests per second."""
    arrivals = one.arrivals
    if arrivals.kind != "closed":
        return arrivals.rate_per_second or float("inf")
    pause = arrivals.think_seconds
    return (arrivals.users or 1) / pause if pause else float("inf")


def _within(one: LoadClass, bound: _Bound, most: float) -> LoadClass:
    """The class within its bounds of rate and concurrency; ``most``: its own rate."""
    if bound.text:
        arrivals = Arrivals(kind="constant", rate_per_second=min(most, bound.per_second))
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
            burst = next((arg[6:] for arg in line.args if arg.startswith("burst=")), "")
            yield ClientLimit(
                f"{module} {line.value} ({most} for each {key})",
                int(status),
                f"{module} {zone}",
                _per_second(rate) if rate else None,
                int(burst) if burst.isdecimal() else 0,
                int(count) if count and not rate else None,
            )


def _per_second(rate: str) -> float | None:
    """A rate of ``limit_req_zone`` in requests per second. Source: ngx_http_limit_req_zone."""
    found = _RATE.fullmatch(rate)
    return None if found is None else int(found[1]) / (60 if found[2] == "m" else 1)


def _zones(tree: ConfTree, *, of_all: bool) -> dict[str, tuple[str, str]]:
    """The key and rate of zones per client, by module and zone; ``of_all`` adds common zones."""
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
    """True if a key has a matching variable, directly or through a map."""
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
