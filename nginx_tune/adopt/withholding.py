"""What a configuration has that a decision would break: then it is not written, with the reason."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from nginx_tune.adopt.multiplexing import without_http2
from nginx_tune.adopt.standing import Standing, asks_threads, copies_by_choice
from nginx_tune.conf.body_filters import body_filter
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.rtmp import streams_of_one_worker
from nginx_tune.decide.answer import setting
from nginx_tune.documents.decisions import Decision, Setting


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
    reason, risks = without_http2(decision, standing.tree)
    if reason:
        return _left(decision, reason)
    return replace(decision, risks=[*decision.risks, *dict.fromkeys(risks)])


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"


def _workers(decision: Decision, standing: Standing) -> Decision:
    rtmp = streams_of_one_worker(standing.tree)
    if rtmp is not None:
        return _left(
            decision,
            f"{_place(rtmp)} is without rtmp_auto_push on, so that a player on another worker than "
            "the stream's sees none",
        )
    return decision


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


def _cache(decision: Decision, standing: Standing) -> Decision:
    """A cache that stands keeps its key and its ways.

    Another key, nginx's own too, would have all fetched anew and lose what that one tells apart: a
    cookie, a language, the server that was chosen.
    """
    if standing.caches:
        return _left(decision, "the caches that stand are their operator's")
    lines = [standing.shared.hindrance(scope) for scope in standing.passing]
    named = list(dict.fromkeys(_place(line) for line in lines if line is not None))
    if not standing.may_cache:
        apart = f"what depends on who asks ({', '.join(named)}) is for nobody else"
        none = "nothing is passed on by proxy_pass, whose answers could be kept"
        return _left(decision, apart if named else none)
    if decision.id != "cache-key":
        return decision
    risks = [f"{one}: no cache there, for what may depend on who asks" for one in named]
    return replace(decision, risks=[*decision.risks, *risks])


_OWN: dict[str, Callable[[Decision, Standing], Decision]] = {
    "http2": _http2,
    "workers": _workers,
    "sendfile": _sendfile,
    "thread-pools": _pools,
    "per-disk-pools": _pools,
    "cache-key": _cache,
    "cache-misses": _cache,
    "cache-updates": _cache,
}
