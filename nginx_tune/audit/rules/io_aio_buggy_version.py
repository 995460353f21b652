from collections.abc import Callable, Iterator
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import Version
from nginx_tune.conf.listeners import multiplexed_servers, tls_servers
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.workers import asked_pool
from nginx_tune.documents.decisions import Evidence


class _Servers(NamedTuple):
    """Servers by protocol."""

    multiplexed: set[Directive]
    tls: set[Directive]


class _Bug(NamedTuple):
    """A bug in a range of versions."""

    since: Version
    fixed: Version
    effect: str
    directive: str
    """The directive that every affected configuration has."""
    concerns: Callable[[Scope, _Servers], bool]


_SUBREQUESTS = ("slice", "add_before_body", "add_after_body", "mirror", "auth_request")

BUGS = (
    _Bug(
        (1, 9, 13),
        (1, 11, 4),
        "can send wrong bytes with sendfile and aio threads",
        "sendfile",
        lambda scope, _: scope.value("sendfile") == "on" and _offloads(scope),
    ),
    _Bug(
        (1, 0, 0),
        (1, 17, 9),
        "leaks sockets with njs subrequests and aio",
        "js_content",
        lambda scope, _: scope.effective("js_content") is not None,
    ),
    _Bug(
        (1, 9, 13),
        (1, 21, 4),
        "can hang HTTP/2 requests with aio_write",
        "aio_write",
        lambda scope, servers: (
            scope.value("aio_write") == "on" and scope.server in servers.multiplexed
        ),
    ),
    _Bug(
        (1, 9, 5),
        (1, 21, 5),
        "can hang HTTP/2 requests without TLS with sendfile and aio",
        "sendfile",
        lambda scope, servers: (
            scope.value("sendfile") == "on"
            and scope.server in servers.multiplexed
            and scope.server not in servers.tls
        ),
    ),
    _Bug(
        (1, 7, 11),
        (1, 25, 4),
        "can leak sockets or crash with aio in subrequests to upstreams over TLS",
        "proxy_pass",
        lambda scope, _: (
            (scope.value("proxy_pass")).startswith("https:")
            and (
                any(scope.effective(name) is not None for name in _SUBREQUESTS)
                or scope.value("ssi") == "on"
            )
        ),
    ),
)
"""Known bugs. Source: the change logs of the versions that fixed them."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``aio`` in a combination that has a known bug in this version."""
    bugs = [bug for bug in BUGS if bug.directive in context.names and _is_affected(context, bug)]
    if "aio" not in context.names or not bugs:
        return
    servers = _Servers(
        multiplexed_servers(context.scopes, context.listeners), tls_servers(context.listeners)
    )
    found: dict[tuple[Directive, str], _Bug] = {}
    for scope in context.scopes:
        aio = scope.effective("aio")
        if aio is not None and aio.value != "off":
            for bug in bugs:
                if bug.concerns(scope, servers):
                    found.setdefault((aio, bug.effect), bug)
    if found and context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
        return
    version = context.facts.nginx.nginx_version
    for (aio, effect), bug in found.items():
        yield Hit(
            aio,
            f"nginx {version} {effect}",
            [written(aio), Evidence(fact="nginx.nginx_version", value=version)],
            fix=f"Update to nginx {'.'.join(map(str, bug.fixed))} or later, or aio off; here.",
        )


def _is_affected(context: Context, bug: _Bug) -> bool:
    """True if this version has the bug, or may have it."""
    return context.version is None or bug.since <= context.version < bug.fixed


def _offloads(scope: Scope) -> bool:
    return asked_pool(scope.effective("aio")) is not None


_CONF = """
events { }
http { sendfile on; server { listen 80 http2; location / { root /srv/media; aio threads; } } }
"""

RULE = Rule(
    id="io-aio-buggy-version",
    severity="warning",
    title="this version has a known bug in this use of aio",
    why="Asynchronous reads and writes interacted with other features in ways that were found only "
    "later: hanging requests, leaked sockets, wrong bytes.",
    fix="Update nginx.",
    sources=("nginx change log, 1.11.4, 1.17.9, 1.21.4, 1.21.5 and 1.25.4",),
    proof="source-only",
    until="1.25.4",
    about="A distribution may have backported the fix to an older version; see the package's "
    "change log.",
    bad=Example(_CONF, linux(version="1.18.0")),
    good=Example(_CONF, linux(version="1.22.1")),
    check=check,
)
