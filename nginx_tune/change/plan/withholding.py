"""What a configuration has that a decision would break: then it is not written, with the reason."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from nginx_tune.change.plan.header_sizes import with_sizes
from nginx_tune.change.plan.more_workers import workers_withheld
from nginx_tune.change.plan.multiplexing import without_http2
from nginx_tune.change.plan.own_connections import version_in
from nginx_tune.change.plan.placing import include_edges
from nginx_tune.change.plan.standing import (
    Standing,
    asks_threads,
    copies_by_choice,
    holds,
    own_blocks,
)
from nginx_tune.conf.body_filters import body_filter
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import listeners, multiplexed_servers, newly_multiplexed
from nginx_tune.conf.running import single_process
from nginx_tune.conf.scopes import http_directives, scopes
from nginx_tune.decide.aio_write import HTTP2_SINCE
from nginx_tune.decide.answer import setting
from nginx_tune.decide.sendfile import FILESYSTEM
from nginx_tune.decide.storage import NETWORK
from nginx_tune.documents.decisions import Decision, Setting

REUSEPORT_IN_ANY_ORDER = (1, 15, 2)
"""The first version that takes it wherever ``worker_processes`` stands."""

FD_SETSIZE = 1024
"""Of glibc and of nginx's builds."""


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
        withheld=reason,
    )


def _http2(decision: Decision, standing: Standing) -> Decision:
    reason, risks = without_http2(decision, standing.tree)
    if reason:
        return _left(decision, reason)
    decision = with_sizes(decision, newly_multiplexed(standing.tree))
    return replace(decision, risks=[*decision.risks, *dict.fromkeys(risks)])


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"


def _workers(decision: Decision, standing: Standing) -> Decision:
    reason = workers_withheld(decision, standing)
    return _left(decision, reason) if reason else decision


def _limits(decision: Decision, standing: Standing) -> Decision:
    """None where no worker reads it."""
    line = single_process(standing.tree)
    if line is None:
        return decision
    reason = f"with {_place(line)} no worker is started that would take worker_rlimit_nofile"
    return _left(decision, reason)


def _connections(decision: Decision, standing: Standing) -> Decision:
    """No more than ``select()`` can take: nginx refuses to start with more.

    Source: ngx_select_init_conf(), FD_SETSIZE.
    """
    blocks = [line.block for line in standing.tree.main.all("events") if line.block is not None]
    line = next((one for block in blocks for one in block.all("use")), None)
    wanted = [int(one.args[0]) for one in decision.settings]
    if line is None or line.value != "select" or max(wanted) <= FD_SETSIZE:
        return decision
    reason = f"{_place(line)} takes at most {FD_SETSIZE}, and nginx does not start with more"
    return _left(decision, reason)


def _sendfile(decision: Decision, standing: Standing) -> Decision:
    """A ``sendfile off`` that somebody wrote stays where files may be on what it is needed for.

    One of a location is for the location's files. One further out as well, unless it is known
    which file systems the files are on: on folders of virtual machines and in user space (FUSE) it
    is what is done against stale and short answers.
    """
    if decision.verdict != "enable":
        return decision
    lines = [copies_by_choice(scope) for scope in standing.answering]
    named = list(dict.fromkeys(_place(line) for line in lines if line is not None))
    if named and None not in lines:
        return _left(decision, f"{', '.join(named)} is the locations' own")
    risks = [f"{one} stays" for one in named]
    settings = decision.settings
    if doubt := _why_copied(decision, standing):
        wanted = [scope.effective("sendfile") for scope in standing.answering]
        off = [line for line in wanted if line is not None and line.value.lower() == "off"]
        outer = [one for one in dict.fromkeys(map(_place, off)) if one not in named]
        risks += [f"{one} stays: {doubt}" for one in outer]
        if outer and len(off) == len(wanted):
            return _left(decision, f"{', '.join([*named, *outer])} stays: {doubt}")
        settings = [replace(one, same=[*one.same, "off"]) for one in settings]
    return replace(decision, settings=settings, risks=[*decision.risks, *risks])


def _why_copied(decision: Decision, standing: Standing) -> str:
    """Why files may be copied for a reason; empty where their file systems speak against it."""
    known = [str(one.value) for one in decision.evidence if one.fact == FILESYSTEM]
    found = http_directives(standing.tree)
    open_ = next((one for one in found if one.name in ("root", "alias") and "$" in one.value), None)
    if not known or open_ is not None:
        where = "the files" if open_ is None else _place(open_)
        return f"the file system of {where} is not known, and some need it (vboxsf, FUSE)"
    odd = next((one for one in known if one in NETWORK or one.startswith("fuse")), None)
    return "" if odd is None else f"the files are on {odd}, which may need it"


def _reuseport(decision: Decision, standing: Standing) -> Decision:
    """None where nginx ignores it, before 1.15.2: ``worker_processes`` stands behind http.

    Source: nginx change log, 1.15.2; ls-reuseport-old-bugs says the same.
    """
    version = version_in(decision.evidence)
    names = [one.name for one in standing.tree.main]
    if version is None or version >= REUSEPORT_IN_ANY_ORDER or "http" not in names:
        return decision
    line = next((one for one in standing.tree.main if one.name == "worker_processes"), None)
    if line is None or names.index("worker_processes") < names.index("http"):
        return decision
    return _left(
        decision,
        f"{_place(line)} comes after http, and nginx before 1.15.2 ignores reuseport there "
        "(ls-reuseport-old-bugs)",
    )


def _pools(decision: Decision, standing: Standing) -> Decision:
    """No threads where a filter reads bodies: ``aio off`` in what would inherit them."""
    if not any(asks_threads(one) for one in decision.settings):
        return decision
    filtered = [(s, line) for s in standing.answering if (line := body_filter(s)) is not None]
    plain = {id(one.own) for one in standing.answering if body_filter(one) is None}
    if filtered and not plain:
        return _left(decision, f"{_place(filtered[0][1])} cuts every body into pieces")
    apart = own_blocks(decision, "aio")
    threads = [one for one in decision.settings if asks_threads(one)]
    outer = (block for one in threads for block in standing.further_out(one, apart).values())
    lines_in = plain | set(map(id, outer))
    off: dict[str, Setting] = {}
    for scope, line in filtered:
        if scope.kind != "location" or not lines_in & {id(one) for one in scope.chain[:-1]}:
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


def _aio_write(decision: Decision, standing: Standing) -> Decision:
    """None beside HTTP/2 where the version can hang with it (io-aio-buggy-version)."""
    version = version_in(decision.evidence)
    tree = standing.tree
    servers = multiplexed_servers(scopes(tree), listeners(tree))
    is_multiplexed = bool(servers or newly_multiplexed(tree))
    if version is None or version >= HTTP2_SINCE or not is_multiplexed:
        return decision
    return _left(decision, "this nginx can hang with HTTP/2 and aio_write (io-aio-buggy-version)")


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


def _logs(decision: Decision, standing: Standing) -> Decision:
    """Each log by itself: one whose line stands where it cannot be changed hinders no other."""
    edges = include_edges(standing.tree.main)
    left: list[Setting] = []
    risks: list[str] = []
    for wanted in decision.settings:
        if not wanted.args[2:]:
            continue  # it stays as it is
        lines = [one for one in standing.lines(wanted) if one and not holds(one, wanted)]
        shared = next((one for one in lines if edges[one.file] > 1), None)
        if shared is None:
            left.append(wanted)
        else:
            risks.append(
                f"{_place(shared)} gets no buffer: {shared.file} is included {edges[shared.file]} "
                "times, and the change would hold in all of them"
            )
    if not left:
        return decision
    return replace(decision, settings=left, risks=[*decision.risks, *risks])


_OWN: dict[str, Callable[[Decision, Standing], Decision]] = {
    "access-log": _logs,
    "http2": _http2,
    "workers": _workers,
    "connections": _connections,
    "file-limits": _limits,
    "sendfile": _sendfile,
    "reuseport": _reuseport,
    "thread-pools": _pools,
    "per-disk-pools": _pools,
    "aio-write": _aio_write,
    "cache-key": _cache,
    "cache-misses": _cache,
    "cache-updates": _cache,
}
