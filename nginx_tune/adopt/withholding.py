"""What a configuration has that a decision would break: then it is not written, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from nginx_tune.adopt.standing import Standing, asks_threads, copies_by_choice
from nginx_tune.audit.rules.lim_conn_h2 import PAGE_STREAMS
from nginx_tune.conf.body_filters import body_filter
from nginx_tune.conf.ciphers import Fault, http2_fault
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import listeners, multiplexed_servers, tls_servers
from nginx_tune.conf.quantities import parse_count
from nginx_tune.conf.rtmp import streams_of_one_worker
from nginx_tune.conf.scopes import Scope, http_directives, scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.answer import setting
from nginx_tune.documents.decisions import Decision, Setting

_ADDRESSES = ("remote_addr", "proxy_protocol_addr", "x_forwarded_for", "x_real_ip")
_FAULTS: dict[Fault, str] = {
    "only": "allows over TLS 1.2 only ciphers that HTTP/2 forbids",
    "first": "has the server choose first what HTTP/2 forbids",
}


def withheld(decision: Decision, standing: Standing) -> Decision:
    """The decision, or why it is not written here."""
    own = _OWN.get(decision.id)
    return own(decision, standing) if own and decision.settings else decision


def _left(decision: Decision, reason: str) -> Decision:
    return replace(
        decision,
        verdict="keep",
        settings=[],
        risks=[],
        summary=f"Not written: {reason}. {decision.summary}",
    )


def _http2(decision: Decision, standing: Standing) -> Decision:
    """HTTP/2 counts each request as a connection, and wants other ciphers than HTTP/1.1."""
    tree = standing.tree
    every = scopes(tree)
    found = listeners(tree)
    secure = tls_servers(found) | {
        server for one in found if one.is_tls and not one.is_quic for server in one.servers
    }
    new = [one for one in every if one.server in secure - multiplexed_servers(every, found)]
    for limit in _limits(new, tree):
        return _left(
            decision,
            f"{_place(limit)} counts each request of HTTP/2 in flight as a connection, and a "
            "browser has tens at once (audit: lim-conn-h2)",
        )
    risks = []
    for scope in new:
        if scope.kind != "server" or (line := scope.effective("ssl_ciphers")) is None:
            continue
        protocols = scope.effective("ssl_protocols")
        words = set() if protocols is None else {one.lower() for one in protocols.args}
        if words and "tlsv1.2" not in words:
            continue
        chooses = scope.value("ssl_prefer_server_ciphers", "off") == "on"
        fault = http2_fault(line.value, server_chooses=chooses)
        if fault is None:
            continue
        said = f"{_place(line)} {_FAULTS[fault]} (RFC 9113, appendix A)"
        if "tlsv1.3" not in words:
            return _left(decision, f"{said}, and browsers end such connections")
        risks.append(f"{said}: browsers that come with TLS 1.2 end the connection")
    return replace(decision, risks=[*decision.risks, *dict.fromkeys(risks)])


def _limits(found: list[Scope], tree: ConfTree) -> Iterator[Directive]:
    """The limits of connections by address that a page's requests would reach."""
    zones = {
        arg.removeprefix("zone=").partition(":")[0]
        for line in http_directives(tree)
        if line.name == "limit_conn_zone" and any(one in line.value for one in _ADDRESSES)
        for arg in line.args[1:]
        if arg.startswith("zone=")
    }
    for scope in found:
        if scope.value("limit_conn_dry_run") == "on":
            continue
        for line in scope.effective_all("limit_conn"):
            most = parse_count(line.args[1]) if len(line.args) > 1 else None
            if line.value in zones and most is not None and most < PAGE_STREAMS:
                yield line


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"


def _workers(decision: Decision, standing: Standing) -> Decision:
    rtmp = streams_of_one_worker(standing.tree)
    if rtmp is None:
        return decision
    return _left(
        decision,
        f"{_place(rtmp)} is without rtmp_auto_push on, so that a player on another worker than "
        "the stream's sees none",
    )


def _sendfile(decision: Decision, standing: Standing) -> Decision:
    """A location's own ``sendfile off`` stays; nothing is written where all have theirs."""
    if decision.verdict != "enable":
        return decision
    lines = [copies_by_choice(scope) for scope in standing.answering]
    named = list(dict.fromkeys(_place(line) for line in lines if line is not None))
    if named and None not in lines:
        return _left(decision, f"{', '.join(named)} is the locations' own")
    return replace(decision, risks=[*decision.risks, *(f"{one} stays" for one in named)])


def _pools(decision: Decision, standing: Standing) -> Decision:
    """No threads where a filter reads bodies: ``aio off`` in what would inherit them."""
    if not any(asks_threads(one) for one in decision.settings):
        return decision
    filtered = [(s, line) for s in standing.answering if (line := body_filter(s)) is not None]
    plain = {id(one.own) for one in standing.answering if body_filter(one) is None}
    if filtered and not plain:
        return _left(decision, f"{_place(filtered[0][1])} cuts every body into pieces")
    off: dict[str, Setting] = {}
    for scope, line in filtered:
        if scope.kind != "location" or not plain & {id(one) for one in scope.chain[:-1]}:
            continue
        aio = scope.effective("aio")
        if scope.sets("aio") or (aio is not None and aio.value.startswith("threads")):
            continue
        if aio is not None:
            return _left(decision, f"{_place(line)} is read under {_place(aio)}, which is shared")
        name = scope.own.args[-1]
        reason = f"{line.name} cuts bodies into pieces, each of which would be a task"
        off[name] = setting(decision.id, "location", "aio", "off", block=name, reason=reason)
    return replace(decision, settings=[*decision.settings, *off.values()])


_OWN: dict[str, Callable[[Decision, Standing], Decision]] = {
    "http2": _http2,
    "workers": _workers,
    "sendfile": _sendfile,
    "thread-pools": _pools,
    "per-disk-pools": _pools,
}
