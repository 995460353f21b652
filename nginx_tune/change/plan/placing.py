"""Places of settings in a configuration, and decisions that the configuration blocks.

A line in an outer block is changed only if everything inside wants the change; otherwise the
setting goes into the inner block. A line that many locations want is written once, in the block
around them (``CurrentTree.further_out``).

A decision that would break something in the configuration is blocked, and the reason is given.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from nginx_tune.change.plan.current import (
    PREDICATES,
    CurrentTree,
    asks_threads,
    copies_by_choice,
    effective,
    holds,
    is_named,
    own_blocks,
)
from nginx_tune.change.plan.kept import version_in
from nginx_tune.change.plan.multiplexing import with_sizes, without_http2
from nginx_tune.change.plan.naming import line_of, listen_options
from nginx_tune.change.plan.process_needs import workers_blocked_by
from nginx_tune.conf.answer_bodies import body_filter
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import listeners, multiplexed_servers, newly_multiplexed
from nginx_tune.conf.scopes import (
    Absence,
    Scope,
    http_directives,
    names_of_unread,
    not_read,
    scopes,
)
from nginx_tune.conf.served import file_servers
from nginx_tune.conf.tree import COMMAND_LINE
from nginx_tune.conf.workers import single_process
from nginx_tune.decide.answer import setting
from nginx_tune.decide.sendfile import FILESYSTEM
from nginx_tune.decide.thread_pools import HTTP2_SINCE
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.documents.facts_storage import NETWORK_FILESYSTEMS

_ALL_OR_NONE = ("proxy_set_header", "ssl_conf_command", *PREDICATES)
"""Directives for which a line in an inner block replaces all lines of the outer block."""
HowPlaced = Literal["change", "into", "before", "option"]


class SettingPlace(NamedTuple):
    """One place of a setting."""

    directive: Directive
    how: HowPlaced
    """The edit: change the arguments of ``directive``, add a line in it or before it (main), or set
    one argument (``listen``)."""


class UnplacedError(Exception):
    """A setting for which there is no safe place."""

    def __init__(self, reason: str, directive: Directive | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.directive = directive


def find_places(current: CurrentTree, wanted: Setting, apart: Sequence[str]) -> list[SettingPlace]:
    """Every place where a setting must still be written.

    Errors: UnplacedError if there is none, or if a file concerned is included several times.
    """
    found = list(_places(current, wanted, apart))
    if not found:
        raise UnplacedError("the configuration has no place for it")
    edges = include_edges(current.tree.main)
    for place in found:
        if place.directive.file == COMMAND_LINE:
            raise UnplacedError(
                f"{COMMAND_LINE} sets {place.directive.name}, which may occur only once",
                place.directive,
            )
        if edges[place.directive.file] > 1:
            raise UnplacedError(
                f"{place.directive.file} is included {edges[place.directive.file]} times, and "
                "the change would apply to all of them",
                place.directive,
            )
    return found


def without_doubtful_lines(decision: Decision, current: CurrentTree, absence: Absence) -> Decision:
    """The decision, blocked if an unread file may already have a line that it would add."""
    lost: dict[Directive, None] = {}
    is_doubtful = False
    for wanted in decision.settings:
        try:
            places = list(_places(current, wanted, own_blocks(decision, wanted.directive)))
        except UnplacedError:
            continue
        for place in places:
            if place.how == "change":
                continue
            if place.how == "option":
                found = absence.doubts(place.directive)
            else:
                found = absence.doubts_new_line(place.directive if place.how == "into" else None)
            is_doubtful |= found is not None
            lost.update(dict.fromkeys(found or ()))
    if not is_doubtful:
        return decision
    files = not_read(names_of_unread(lost)) if lost else "the main file was not read"
    return _blocked(decision, f"{files} and may have the line")


def include_edges(main: Block) -> Counter[str]:
    """The number of times each file is included, directly or indirectly."""
    found: Counter[str] = Counter()

    def walk(block: Block) -> None:
        for directive in block.directives:
            for inner in directive.included or ():
                for file in {line.file for line in inner.directives}:
                    found[file] += 1
                walk(inner)
            if directive.block is not None and directive.included is None:
                walk(directive.block)

    walk(main)
    return found


def _places(current: CurrentTree, wanted: Setting, apart: Sequence[str]) -> Iterator[SettingPlace]:
    if wanted.directive == "listen":
        yield from _listen_places(current, wanted)
        return
    if wanted.context == "upstream":
        for group in current.blocks(wanted):
            line = group.block.first(wanted.directive) if group.block else None
            if not holds(line, wanted):
                yield SettingPlace(group, "into") if line is None else SettingPlace(line, "change")
        return
    if wanted.context in ("main", "events") or is_named(wanted):
        lines = [line for line in current.lines(wanted, apart) if line is not None]
        differing = [line for line in lines if not holds(line, wanted)]
        if differing or lines:
            yield from (SettingPlace(place, "change") for place in differing)
        elif wanted.context == "main":
            yield _before_the_blocks(current)
        else:
            yield from (SettingPlace(block, "into") for block in current.blocks(wanted))
        return
    if wanted.context == "http":
        yield from _http_places(current, wanted, apart)
        return
    yield from _scope_places(current, wanted, apart)


def _before_the_blocks(current: CurrentTree) -> SettingPlace:
    """The place of a main directive: before the first block of the main file."""
    first = next((line for line in current.tree.main.directives if line.block is not None), None)
    if first is None or first.file != current.tree.path:
        raise UnplacedError(f"{current.tree.path} has no block to write it before")
    return SettingPlace(first, "before")


def _listen_places(current: CurrentTree, wanted: Setting) -> Iterator[SettingPlace]:
    for line in listen_options(wanted, current.tree).lines:
        yield SettingPlace(line, "option")


def _http_places(
    current: CurrentTree, wanted: Setting, apart: Sequence[str]
) -> Iterator[SettingPlace]:
    seen: set[int] = set()
    needs_line = False
    concerned = current.concerned(wanted, apart)
    if not current.answering:  # no server yet: write it for later ones
        for http in current.tree.main.all("http"):
            line = None if http.block is None else http.block.first(wanted.directive)
            if not holds(line, wanted):
                yield SettingPlace(http, "into") if line is None else SettingPlace(line, "change")
        return
    for scope in concerned:
        line = effective(scope, wanted)
        needs_line |= line is None
        if line is not None and not holds(line, wanted) and id(line) not in seen:
            seen.add(id(line))
            yield SettingPlace(line, "change")
    if needs_line:
        yield from (SettingPlace(line, "into") for line in current.tree.main.all("http"))


def _scope_places(
    current: CurrentTree, wanted: Setting, apart: Sequence[str]
) -> Iterator[SettingPlace]:
    concerned = current.concerned(wanted, apart)
    names = {id(scope.own) for scope in concerned}
    around = current.further_out(wanted, apart)
    seen: set[int] = set()
    for scope in concerned:
        line = effective(scope, wanted)
        if holds(line, wanted):
            continue
        outer = around.get(id(scope.own)) if line is None else None
        place = (
            SettingPlace(outer, "into") if outer else _of_scope(current, scope, line, wanted, names)
        )
        if id(place.directive) not in seen:
            seen.add(id(place.directive))
            yield place


def _of_scope(
    current: CurrentTree, scope: Scope, line: Directive | None, wanted: Setting, concerned: set[int]
) -> SettingPlace:
    own = next(
        (level for level in reversed(scope.chain) if wanted.context == level.name), scope.own
    )
    if line is None:
        return SettingPlace(_beside_others(scope, wanted) or own, "into")
    inside = scope.own.block is not None and line in scope.own.block.all(line.name)
    users = [scope for scope in current.answering if effective(scope, wanted) is line]
    if inside or all(id(user.own) in concerned for user in users):
        return SettingPlace(line, "change")
    return SettingPlace(own, "into")


def _beside_others(scope: Scope, wanted: Setting) -> Directive | None:
    """The outer block whose lines a new inner line would replace; None if there is none.

    Source: ngx_http_proxy_merge_loc_conf() (headers_source), ngx_conf_merge_ptr_value().
    """
    if wanted.directive not in _ALL_OR_NONE:
        return None
    around = (level for level in reversed(scope.chain) if level.block is not None)
    return next((line for line in around if line.block and line.block.all(wanted.directive)), None)


REUSEPORT_IN_ANY_ORDER = (1, 15, 2)
"""First version in which ``worker_processes`` may come after reuseport."""
FD_SETSIZE = 1024
"""The limit of select() in glibc and nginx."""


def with_blockers(decision: Decision, current: CurrentTree) -> Decision:
    """The decision; if the configuration blocks it, a reason replaces its settings."""
    own = _OWN.get(decision.id)
    return own(decision, current) if own and decision.settings else decision


def _blocked(decision: Decision, reason: str) -> Decision:
    return replace(
        decision,
        verdict="keep",
        settings=[],
        risks=[],
        summary=f"Not written: {reason}. {decision.summary}",
        blocked_by=reason,
    )


def _http2(decision: Decision, current: CurrentTree) -> Decision:
    reason, risks = without_http2(decision, current.tree)
    if reason:
        return _blocked(decision, reason)
    decision = with_sizes(decision, newly_multiplexed(current.tree))
    return replace(decision, risks=[*decision.risks, *dict.fromkeys(risks)])


def _workers(decision: Decision, current: CurrentTree) -> Decision:
    reason = workers_blocked_by(decision, current)
    return _blocked(decision, reason) if reason else decision


def _limits(decision: Decision, current: CurrentTree) -> Decision:
    """The decision ``file-limits``, blocked if nginx runs without workers."""
    line = single_process(current.tree)
    if line is None:
        return decision
    reason = f"with {line_of(line)} there is no worker to apply worker_rlimit_nofile"
    return _blocked(decision, reason)


def _connections(decision: Decision, current: CurrentTree) -> Decision:
    """The decision ``connections``, blocked above the limit of ``select()``: nginx would not start.

    Source: ngx_select_init_conf(), FD_SETSIZE.
    """
    blocks = [line.block for line in current.tree.main.all("events") if line.block is not None]
    line = next((line for block in blocks for line in block.all("use")), None)
    wanted = [int(setting.args[0]) for setting in decision.settings]
    if line is None or line.value != "select" or max(wanted) <= FD_SETSIZE:
        return decision
    reason = f"with {line_of(line)} nginx does not start with more than {FD_SETSIZE}"
    return _blocked(decision, reason)


def _sendfile(decision: Decision, current: CurrentTree) -> Decision:
    """The decision ``sendfile``, except for locations that have their own ``sendfile off``.

    An outer ``sendfile off`` stays too, unless the file systems are known not to need it: shared
    folders of virtual machines and FUSE may otherwise return stale or truncated files.
    """
    if decision.verdict != "enable":
        return decision
    lines = [copies_by_choice(scope) for scope in current.answering]
    named = list(dict.fromkeys(line_of(line) for line in lines if line is not None))
    if named and None not in lines:
        return _blocked(decision, f"the locations have their own {', '.join(named)}")
    risks = [f"{name} stays" for name in named]
    settings = decision.settings
    if doubt := _why_copied(decision, current):
        wanted = [scope.effective("sendfile") for scope in current.answering]
        off = [line for line in wanted if line is not None and line.value.lower() == "off"]
        outer = [line for line in dict.fromkeys(map(line_of, off)) if line not in named]
        risks += [f"{line} stays: {doubt}" for line in outer]
        if outer and len(off) == len(wanted):
            return _blocked(decision, f"{', '.join([*named, *outer])} stays: {doubt}")
        settings = [replace(setting, same=[*setting.same, "off"]) for setting in settings]
    return replace(decision, settings=settings, risks=[*decision.risks, *risks])


_OF_DISK = "seconds of one cold chunk"


def _chunk(decision: Decision, current: CurrentTree) -> Decision:
    """The decision ``sendfile-max-chunk``, left out if its reads are without TLS and no files are.

    Without kernel TLS, encrypted bodies pass through buffers, whose reads are shorter.
    """
    tree = current.tree
    is_known = not (tree.lost or tree.is_part) and "ssl_conf_command" not in tree.names
    if not is_known or all(found.metric != _OF_DISK for found in decision.predicted):
        return decision
    every = listeners(tree)
    secure = {server for listener in every if listener.is_tls for server in listener.servers}
    plain = {server for listener in every if not listener.is_tls for server in listener.servers}
    senders = file_servers(tree)
    if not senders or senders - secure or senders & plain:
        return decision
    return replace(
        decision,
        verdict="keep",
        settings=[],
        predicted=[],
        flips_when=[],
        next_command="",
        summary="The default: files are sent with TLS only, from output buffers.",
    )


def _why_copied(decision: Decision, current: CurrentTree) -> str:
    """The reason why the served files may need ``sendfile off``; empty if there is none."""
    known = [str(item.value) for item in decision.evidence if item.fact == FILESYSTEM]
    found = http_directives(current.tree)
    open_ = next(
        (line for line in found if line.name in ("root", "alias") and "$" in line.value), None
    )
    if not known or open_ is not None:
        where = "the files" if open_ is None else line_of(open_)
        return f"the file system of {where} is not known, and some need it (vboxsf, FUSE)"
    odd = next(
        (
            filesystem
            for filesystem in known
            if filesystem in NETWORK_FILESYSTEMS or filesystem.startswith("fuse")
        ),
        None,
    )
    return "" if odd is None else f"the files are on {odd}, which may need it"


def _reuseport(decision: Decision, current: CurrentTree) -> Decision:
    """The decision ``reuseport``, blocked before 1.15.2 if ``worker_processes`` follows http.

    Source: nginx change log, 1.15.2; rule ls-reuseport-old-bugs.
    """
    version = version_in(decision.evidence)
    names = [line.name for line in current.tree.main]
    if version is None or version >= REUSEPORT_IN_ANY_ORDER or "http" not in names:
        return decision
    line = next((line_ for line_ in current.tree.main if line_.name == "worker_processes"), None)
    if line is None or names.index("worker_processes") < names.index("http"):
        return decision
    return _blocked(
        decision,
        f"{line_of(line)} comes after http, where nginx before 1.15.2 ignores reuseport "
        "(ls-reuseport-old-bugs)",
    )


def _pools(decision: Decision, current: CurrentTree) -> Decision:
    """The decision ``thread-pools``, with ``aio off`` for locations that have a body filter."""
    if not any(asks_threads(setting) for setting in decision.settings):
        return decision
    filtered = [(s, line) for s in current.answering if (line := body_filter(s)) is not None]
    plain = {id(scope.own) for scope in current.answering if body_filter(scope) is None}
    if filtered and not plain:
        return _blocked(decision, f"{line_of(filtered[0][1])} splits every body into pieces")
    apart = own_blocks(decision, "aio")
    threads = [setting for setting in decision.settings if asks_threads(setting)]
    outer = (block for setting in threads for block in current.further_out(setting, apart).values())
    lines_in = plain | set(map(id, outer))
    off: dict[str, Setting] = {}
    for scope, line in filtered:
        if scope.kind != "location" or not lines_in & {id(level) for level in scope.chain[:-1]}:
            continue
        aio = scope.effective("aio")
        if scope.sets("aio") or (aio is not None and aio.value.startswith("threads")):
            continue
        if aio is not None:
            return _blocked(decision, f"{line_of(line)} shares {line_of(aio)} with other locations")
        name = scope.own.args[-1]
        reason = f"{line.name} splits bodies into pieces, and each piece would be a task"
        off[name] = setting(decision.id, "location", "aio", "off", block=name, reason=reason)
    return replace(decision, settings=[*decision.settings, *off.values()])


def _aio_write(decision: Decision, current: CurrentTree) -> Decision:
    """The decision ``aio-write``, blocked in versions that can hang with HTTP/2.

    Source: rule io-aio-buggy-version.
    """
    version = version_in(decision.evidence)
    tree = current.tree
    servers = multiplexed_servers(scopes(tree), listeners(tree))
    is_multiplexed = bool(servers or newly_multiplexed(tree))
    if version is None or version >= HTTP2_SINCE or not is_multiplexed:
        return decision
    reason = "this nginx can hang with HTTP/2 and aio_write (io-aio-buggy-version)"
    return _blocked(decision, reason)


def _cache(decision: Decision, current: CurrentTree) -> Decision:
    """A decision about caches, blocked if caches exist, which keep their key and options.

    With another key, nginx would fetch everything again, and responses that differ by a cookie, a
    language or a selected server might no longer be distinguished.
    """
    if current.caches:
        stands = "existing caches keep their settings"
        lacking = [
            " ".join([setting.directive, *setting.args])
            for setting in decision.settings
            if setting.directive not in current.tree.names
        ]
        by_hand = f"{stands}; add by hand where one lacks them: {'; '.join(lacking)}"
        return replace(_blocked(decision, stands), blocked_by=by_hand if lacking else "")
    lines = [current.shared.hindrance(scope) for scope in current.passing]
    named = list(dict.fromkeys(line_of(line) for line in lines if line is not None))
    if not current.may_cache:
        differ = f"responses may depend on the client ({', '.join(named)})"
        none = "nothing is proxied by proxy_pass that could be cached"
        return _blocked(decision, differ if named else none)
    if decision.id != "cache-key":
        return decision
    risks = [f"{line}: no cache there, since responses may depend on the client" for line in named]
    return replace(decision, risks=[*decision.risks, *risks])


def _logs(decision: Decision, current: CurrentTree) -> Decision:
    """The decision ``access-log``, without the logs whose lines cannot be changed."""
    edges = include_edges(current.tree.main)
    left: list[Setting] = []
    risks: list[str] = []
    for wanted in decision.settings:
        if not wanted.args[2:]:
            continue  # the log stays unchanged
        lines = [line for line in current.lines(wanted) if line and not holds(line, wanted)]
        shared = next((line for line in lines if edges[line.file] > 1), None)
        if shared is None:
            left.append(wanted)
        else:
            risks.append(
                f"{line_of(shared)} gets no buffer: {shared.file} is included {edges[shared.file]} "
                "times, and the change would apply to all of them"
            )
    if not left:
        return decision
    return replace(decision, settings=left, risks=[*decision.risks, *risks])


_OWN: dict[str, Callable[[Decision, CurrentTree], Decision]] = {
    "access-log": _logs,
    "http2": _http2,
    "workers": _workers,
    "connections": _connections,
    "file-limits": _limits,
    "sendfile": _sendfile,
    "sendfile-max-chunk": _chunk,
    "reuseport": _reuseport,
    "thread-pools": _pools,
    "per-disk-pools": _pools,
    "aio-write": _aio_write,
    "cache-key": _cache,
    "cache-misses": _cache,
    "cache-updates": _cache,
}
