"""What an upgrade of nginx changes for one configuration: defaults, directives, parameters.

The rule below is asked only with ``--upgrade-to``. It tells of defaults that move between the two
versions and that the configuration leaves to nginx; what the newer one refuses or warns of is said
by the other rules, which are asked for both versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nginx_tune.audit.context import Context, Version
from nginx_tune.audit.processes import main_place
from nginx_tune.audit.rule import Example, Hit, Missing, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence


class Change(NamedTuple):
    """A default that moved."""

    since: Version
    directive: str
    before: str
    after: str
    effect: str
    places: Callable[[Context], list[Directive]]
    """Where this configuration leaves it to nginx; none where it does not matter."""


def changes(context: Context, since: Version, until: Version) -> Iterator[Hit]:
    """The defaults that move for this configuration between two versions."""
    for change in CHANGES:
        if since < change.since <= until:
            for place in change.places(context):
                yield Hit(
                    place,
                    f"{change.directive} is not set, and its default moves from {change.before} "
                    f"to {change.after} with nginx {_text(change.since)}: {change.effect}",
                    [
                        Evidence(fact="nginx version", value=_text(since)),
                        Evidence(fact="upgrade to", value=_text(until), provenance="declared"),
                    ],
                )


def _unset(name: str, needs: str = "") -> Callable[[Context], list[Directive]]:
    """Http itself where no line of it sets the directive (and one sets what it depends on)."""

    def places(context: Context) -> list[Directive]:
        if context.client_lines(name) or (needs and not context.client_lines(needs)):
            return []
        return context.tree.main.all("http")[:1]

    return places


def _unset_events(name: str) -> Callable[[Context], list[Directive]]:
    def places(context: Context) -> list[Directive]:
        place = main_place(context, "events")
        lines = [line for one in context.tree.main.all("events") if one.block for line in one.block]
        return [] if place is None or any(line.name == name for line in lines) else [place]

    return places


def _chunk(context: Context) -> list[Directive]:
    on = [line for line in context.client_lines("sendfile") if line.value.lower() == "on"]
    return on[:1] if not context.client_lines("sendfile_max_chunk") else []


def _tls(context: Context) -> list[Directive]:
    found = {
        one.listener.lines[0]: None
        for one in context.tls_listeners
        if one.default.effective("ssl_protocols") is None
    }
    return list(found)[:1]


def _bare_upstreams(context: Context) -> list[Directive]:
    return [
        one.directive
        for name, one in context.upstreams.items()
        if one.keepalive is None and context.passes_by_upstream[name] and not one.is_scripted
    ]


def _bare_passes(context: Context) -> list[Directive]:
    found = [
        one.place
        for one in context.passes
        if one.module == "proxy" and one.effective("http_version") is None
    ]
    return list(dict.fromkeys(found))[:1]


CHANGES: tuple[Change, ...] = (
    Change(
        (1, 19, 10), "keepalive_requests", "100", "1000",
        "clients keep their connections longer, with the memory that stays with them",
        _unset("keepalive_requests"),
    ),
    Change(
        (1, 21, 4), "sendfile_max_chunk", "0", "2m",
        "one fast client no longer holds a worker for a whole file", _chunk,
    ),
    Change(
        (1, 23, 4), "ssl_protocols", "TLSv1 TLSv1.1 TLSv1.2", "the same with TLSv1.3",
        "handshakes of new clients take a round trip less, and other ciphers hold for them", _tls,
    ),
    Change(
        (1, 27, 3), "ssl_protocols", "TLSv1 to TLSv1.3", "TLSv1.2 TLSv1.3",
        "clients that speak TLS 1.0 or 1.1 only are refused", _tls,
    ),
    Change(
        (1, 29, 7), "proxy_http_version", "1.0", "1.1",
        "the server gets HTTP/1.1 without Connection: close, and may answer in chunks",
        _bare_passes,
    ),
    Change(
        (1, 29, 7), "keepalive of an upstream", "none", "32 local",
        "each worker keeps idle connections for each location; keepalive 0 is as before",
        _bare_upstreams,
    ),
    Change(
        (1, 11, 3), "accept_mutex", "on", "off",
        "every worker waits at the listen sockets (by EPOLLEXCLUSIVE)",
        _unset_events("accept_mutex"),
    ),
)  # fmt: skip


def _check(_: object) -> Iterator[Hit | Missing]:
    return iter(())


def _text(version: Version) -> str:
    return ".".join(map(str, version))


_CONF = "events {} http { %s server { listen 80; return 204; } }"

CHANGED = Rule(
    id="vr-default-changed",
    severity="info",
    title="a default that moves with an upgrade",
    why="The configuration leaves it to nginx, and the newer version does otherwise. Nothing is "
    "wrong before the upgrade, and nginx -t of neither version says a word.",
    fix="Write the value that is wanted, so that both versions do the same.",
    sources=("nginx change log, of the version that is named",),
    proof="source-only",
    about="Asked only with --upgrade-to. Directives, parameters and values that the newer version "
    "refuses, and what it warns of, are findings of the other rules: those that both versions "
    "have are left out. tests/audit/test_audit_upgrade.py shows the defaults on both sides.",
    seen="Packages may have taken a newer default over: nginx 1.18.0 of Debian 11 closes a "
    "connection after 1000 requests, though keepalive_requests was 100 before 1.19.10.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "keepalive_requests 1000;"),
    check=_check,
)
