"""The places whose requests to upstreams stay as they are: none is sent over a kept connection.

What kept connections need, HTTP/1.1 and no ``Connection: close``, is more than a saving. nginx as a
server compresses for HTTP/1.1 alone (``gzip_http_version 1.1``, ngx_http_gzip_ok), and a kept
connection may be closed by the server as a request arrives.
"""

from __future__ import annotations

from nginx_tune.conf.body_readers import SCRIPTS
from nginx_tune.conf.compressed_answers import KEEPS, UNBUFFERED, stays_at_1_0, unrepeated
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.decide.model.local_ports import FACT
from nginx_tune.documents.decisions import Decisions, Evidence

_REPEATING = "proxy_next_upstream"
_OWN_WAY = frozenset({"proxy_http_version", "proxy_set_header"})
_NO_SECOND_TRY = (
    "a request whose body is gone cannot be sent again where a kept connection turns out closed"
)
_NOT_REPEATED = (
    "a request, GET too, on a kept connection that the server closes as it arrives is answered 502 "
    "where an error is not repeated"
)
_COMPRESSED = "for which a server may compress (nginx does from 1.1 on)"
_KEPT_BY_DEFAULT = (1, 29, 7)


def own_connection(scope: Scope, *, closes_by_default: bool = True) -> Directive | None:
    """The line for which a location's requests to upstreams stay as they are; null for none.

    ``upgrade`` carries WebSockets, ``close`` and 1.0 may be for an origin that needs them. A body
    that is passed on as it comes cannot be sent again where a kept connection is closed.
    ``closes_by_default`` is what nginx does before 1.29.7; since then nothing changes by a plan.
    """
    version = scope.effective("proxy_http_version")
    if version is not None and version.value != "1.1":
        return version
    if closes_by_default and (line := stays_at_1_0(scope)):
        return line
    for line in scope.effective_all("proxy_set_header"):
        if line.value.lower() == "connection" and line.args[1:] != ("",):
            return line
    return unrepeated(scope, "proxy") if closes_by_default else None


def leaves(scope: Scope) -> bool:
    """Whether requests from a place leave their connections open already."""
    lines = scope.effective_all("proxy_set_header")
    is_empty = any(one.value.lower() == "connection" and one.args[1:] == ("",) for one in lines)
    return is_empty and scope.value("proxy_http_version") == "1.1"


def is_inherited(line: Directive) -> bool:
    """Whether a location inside with such a line would inherit what its outer one gets."""
    return line.name not in _OWN_WAY


def how_it_stays(line: Directive) -> str:
    """What becomes of a location with such a line."""
    if line.name == UNBUFFERED:
        return (
            f"{_at(line)} stays without proxy_http_version 1.1, by which bodies would come to the "
            f"server chunked; and {_NO_SECOND_TRY}"
        )
    if line.name in _OWN_WAY:
        return f"{_at(line)} stays, so connections from there are not kept"
    return f"{why_none_is_kept(line)}: connections from there are not kept"


def why_none_is_kept(line: Directive) -> str:
    """The reason for a group that only places with such lines ask."""
    if line.name == UNBUFFERED:
        return f"{_at(line)}: {_NO_SECOND_TRY}"
    if line.name in _OWN_WAY:
        return f"{_at(line)} stays, so that no request would leave a connection"
    if line.name.endswith("_next_upstream"):
        return f"{_at(line)}: {_NOT_REPEATED}"
    wrong = "it cannot read gzip"
    if line.name in KEEPS:
        wrong = "clients that asked for none would get gzip of it"
    if line.name in SCRIPTS:
        wrong = "a script that asks this place by a subrequest would get gzip"
    return (
        f"{_at(line)} stays without proxy_http_version 1.1, {_COMPRESSED}: {wrong} "
        '(proxy_set_header Accept-Encoding ""; would have none sent)'
    )


def closes_by_default(decisions: Decisions) -> bool:
    """Whether the nginx that was decided for ends connections to upstreams unless told not to."""
    found = [one for one in decisions.decisions if one.id == "upstream-keepalive"]
    version = version_in(found[0].evidence) if found else None
    return version is None or version < _KEPT_BY_DEFAULT


def lacks_ports(decisions: Decisions) -> bool:
    """Tell whether a new connection for each request uses up this host's local ports."""
    found = (one for one in decisions.decisions if one.id == "upstream-keepalive")
    return any(evidence.fact == FACT for one in found for evidence in one.evidence)


def version_in(evidence: list[Evidence]) -> tuple[int, ...] | None:
    """The version of nginx that a decision stands on; null where it is not known."""
    value = next((str(one.value) for one in evidence if one.fact == "nginx.version"), "")
    numbers = value.split(".")
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else None


def _at(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"
