"""Descriptors, thread pools and workers of a configuration once decisions are applied.

Each worker starts the threads of every declared ``thread_pool``, used or not. Each worker also has
its own limit counters, UDP sessions and Lua state, so more workers have side effects, and some
configurations work only with a single worker.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from nginx_tune.change.plan.current import CurrentTree, asks_threads, holds
from nginx_tune.change.plan.kept import max_conns
from nginx_tune.change.plan.naming import line_of
from nginx_tune.conf.answer_bodies import body_filter
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import names_of_unread, not_read
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.workers import (
    DEFAULT,
    asked_pool,
    files_a_connection,
    open_file_caches,
    open_files_share,
    single_process,
    streams_of_one_worker,
    why_one_worker,
)
from nginx_tune.decide.answer import setting
from nginx_tune.decide.model.connections import limit_for, suffices
from nginx_tune.decide.workers import CAN_RAISE, DESCRIPTORS_EACH, DESCRIPTORS_NEEDED
from nginx_tune.documents.decisions import Decision, Decisions, Setting
from nginx_tune.documents.units import plural

_DIRECTIVE = "worker_rlimit_nofile"
_NR_OPEN = "limits.nr_open"
_HARD = "limits.nofile_hard"
_CEILINGS = (_HARD, _NR_OPEN)
_OF_NGINX = (_HARD, "limits.nofile_soft")


def descriptors_for(decisions: Decisions, tree: ConfTree) -> Callable[[Decision], Decision]:
    """A function that adapts the decision ``file-limits`` to the needs of the configuration.

    Each worker must have enough descriptors, also for lines that stay: ``worker_connections`` above
    the decided number, and an ``open_file_cache``. An existing ``worker_rlimit_nofile`` that nginx
    can set stays if it is enough, or more than would be written. If nginx cannot set it, workers
    keep the limit that nginx starts with. Without a line, nothing is written if that limit is not
    known. If no request opens a file, a connection needs one descriptor. An existing line is judged
    as by the audit: half a file per connection of a proxied request.

    Source: ngx_worker_process_init(), setrlimit(2).
    """
    every = [setting for decision in decisions.decisions for setting in decision.settings]
    decided = [
        int(setting.args[0]) for setting in every if setting.directive == "worker_connections"
    ]
    blocks = [line.block for line in tree.main.all("events") if line.block is not None]
    lines = [line for block in blocks for line in block.all("worker_connections")]
    own = int(lines[-1].value) if lines and lines[-1].value.isdigit() else 0
    more = max(0, own - decided[0]) if decided else 0
    each = 1 + files_a_connection(tree)
    held = 0 if any(map(_decides_open_files, decisions.decisions)) else open_files_in(tree)
    limit = tree.main.first(_DIRECTIVE)
    share = open_files_share(tree) if limit is not None else 0

    def fitted(decision: Decision) -> Decision:
        if decision.id != "file-limits" or not decided:
            return decision
        spared = decided[0] * max(0, int(_known(decision).get(DESCRIPTORS_EACH, each)) - each)
        extra = more * each + held - spared
        unused = int((decided[0] + more) * max(0.0, each - 1 - share))
        if not decision.settings and limit is not None:
            decision = _for_a_low_line(decision, limit, extra, unused)
        settings, risks = [], list(decision.risks)
        for decided_setting in decision.settings:
            if decided_setting.directive != _DIRECTIVE:
                settings.append(decided_setting)
                continue
            if limit is None and not any(map(_known(decision).get, _OF_NGINX)):
                risks.append(f"{_DIRECTIVE} is left out: nginx's current limit is not known")
                continue
            what = _users_text(decided[0] + more, held)
            needed = _needed(decided_setting, decision) + extra
            wanted = _fitted(decided_setting, needed, what, each) if extra else decided_setting
            least = min(needed - unused, int(wanted.args[0]))
            if limit is not None and _is_enough(limit, least, decision):
                same = [*decided_setting.same, limit.value]
                settings.append(replace(decided_setting, same=same))
                continue
            ceiling = min(filter(None, map(_known(decision).get, _CEILINGS)), default=None)
            is_over = ceiling is not None and int(wanted.args[0]) > ceiling
            if is_over and limit is not None and _gives_less(limit, ceiling, decision):
                wanted = replace(wanted, args=[f"{ceiling:.0f}"])
                settings.append(_explained(wanted, limit, decision))
            elif wanted is not decided_setting and is_over:
                risks.append(
                    f"{_DIRECTIVE} is left out: {what} may need {wanted.args[0]} descriptors, but "
                    f"the limit is {ceiling:.0f}"
                )
            else:
                settings.append(_explained(wanted, limit, decision))
        return replace(decision, settings=settings, risks=risks)

    return fitted


def _known(decision: Decision) -> dict[str, float]:
    """The numbers in the evidence of a decision, by fact."""
    return {
        item.fact: item.value for item in decision.evidence if isinstance(item.value, int | float)
    }


def _gives_less(limit: Directive, ceiling: float | None, decision: Decision) -> bool:
    """True if a line gives workers fewer descriptors than the ceiling."""
    is_less = limit.value.isdigit() and (ceiling is not None and int(limit.value) < ceiling)
    return is_less or _exceeded(limit, decision) != ""


def _exceeded(limit: Directive, decision: Decision) -> str:
    """The bound that a line exceeds, so that setrlimit() fails; empty if there is none."""
    facts = _known(decision)
    for fact, text in ((_NR_OPEN, "fs.nr_open"), (_HARD, "nginx's hard limit")):
        is_bound = fact in facts and (fact == _NR_OPEN or CAN_RAISE in facts)
        if is_bound and limit.value.isdigit() and int(limit.value) > facts[fact]:
            return f"{text} of {facts[fact]:.0f}"
    return ""


def _is_enough(limit: Directive, needed: int, decision: Decision) -> bool:
    is_number = limit.value.isdigit() and not _exceeded(limit, decision)
    return is_number and suffices(int(limit.value), needed)


def _for_a_low_line(decision: Decision, limit: Directive, extra: int, unused: int) -> Decision:
    """The decision, changed to replace an existing line that gives too few descriptors."""
    needed = int(_known(decision).get(DESCRIPTORS_NEEDED, 0)) + extra
    if not limit.value.isdigit() or _is_enough(limit, needed - unused, decision):
        return decision
    reason = f"a worker needs {needed} descriptors"
    if not _exceeded(limit, decision):
        reason += ", and the current line lowers the limit"
    wanted = setting("file-limits", "main", _DIRECTIVE, str(limit_for(needed)), reason=reason)
    return replace(decision, verdict="raise", settings=[wanted])


def _explained(wanted: Setting, limit: Directive | None, decision: Decision) -> Setting:
    """The setting; its reason says if nginx cannot set the current limit."""
    bound = "" if limit is None else _exceeded(limit, decision)
    if limit is None or not bound:
        return wanted
    why = f"nginx cannot set {limit.value}, which is above {bound}"
    return replace(wanted, reason=f"{why}; {wanted.reason}")


def _needed(one: Setting, decision: Decision) -> int:
    """The number of descriptors that a worker needs for the decided connections."""
    return int(_known(decision).get(DESCRIPTORS_NEEDED, int(one.args[0])))


def _fitted(one: Setting, needed: int, what: str, each: int) -> Setting:
    """The setting with a limit that covers ``needed`` descriptors; the reason names ``what``."""
    reason = f"{what}, with {plural(each, 'descriptor')} per connection"
    return replace(one, args=[str(limit_for(needed))], reason=reason)


def _users_text(connections: int, held: int) -> str:
    files = f" and {held} open files" if held else ""
    return f"{connections} connections{files}"


def _decides_open_files(decision: Decision) -> bool:
    return decision.id == "open-file-cache" and (
        decision.verdict == "disable" or bool(decision.settings)
    )


def open_files_in(tree: ConfTree) -> int:
    """The number of entries in all open file caches of a worker; each holds a descriptor."""
    return sum(open_file_caches(tree).values())


_NO_PLACE = "the configuration has no location for it"
_VARIABLE = re.compile(r"\\\$(?:\w+|\\\{\w+\\\})")
"""A variable in the output of ``re.escape``."""


def asks_pools(decision: Decision) -> bool:
    """True if a decision makes threads read files."""
    return any(map(asks_threads, decision.settings))


def asked_pools(current: CurrentTree, decisions: Iterable[Decision]) -> set[str]:
    """The thread pools named by ``aio`` in locations that send files, now or as decided."""
    found = {asked_pool(scope.effective("aio")) for scope in current.answering}
    found |= {
        setting.args[0].partition("=")[2] or DEFAULT
        for decision in decisions
        for setting in decision.settings
        if asks_threads(setting)
    }
    return {name for name in found if name is not None}


def without_idle_pools(decision: Decision, asked: Collection[str]) -> Decision:
    """The decision without unused pools."""
    idle = [
        setting
        for setting in decision.settings
        if setting.directive == "thread_pool" and not _is_asked(setting.args[0], asked)
    ]
    if not idle:
        return decision
    names = ", ".join(f"thread_pool {pool.args[0]}" for pool in idle)
    left = [setting for setting in decision.settings if setting not in idle]
    why = f"{names} would not be used"
    return replace(
        decision,
        settings=left,
        verdict=decision.verdict if left else "keep",
        summary=decision.summary if left else f"Not written: {why}. {decision.summary}",
        risks=decision.risks if left else [],
        blocked_by=decision.blocked_by or why,
    )


def with_unread_reason(decision: Decision, wanted: Decision, current: CurrentTree) -> Decision:
    """The decision; blocked, with the reason, if it lost the threads that ``wanted`` has."""
    if decision.blocked_by or asks_pools(decision) or not asks_pools(wanted):
        return decision
    if any(asked_pool(scope.effective("aio")) is not None for scope in current.answering):
        return decision
    named = [setting.block for setting in wanted.settings if asks_threads(setting)]
    lines = (
        line
        for scope in current.answering
        if "" in named or {*named} & {*scope.own.args}
        if (line := body_filter(scope)) is not None
    )
    line = next(lines, None)
    why = f"{line_of(line)} splits every body into pieces" if line else _NO_PLACE
    return replace(
        decision,
        verdict="keep",
        settings=[],
        risks=[],
        summary=f"Not written: {why}. {wanted.summary}",
        blocked_by=why,
    )


def _is_asked(name: str, asked: Collection[str]) -> bool:
    patterns = (_VARIABLE.sub(".*", re.escape(text)) for text in asked)
    return any(re.fullmatch(pattern, name) for pattern in patterns)


_ONE = ("0", "1")


def with_more_workers(decisions: Sequence[Decision], current: CurrentTree) -> list[Decision]:
    """The decisions, with the risks of more workers added to the decision ``workers``."""
    zoned = {
        setting.block.lower()
        for decision in decisions
        for setting in decision.settings
        if setting.directive == "zone"
    }
    return [
        replace(decision, risks=[*decision.risks, *_bounds(current, zoned)])
        if decision.id == "workers" and _is_changed(decision, current)
        else decision
        for decision in decisions
    ]


def _is_changed(decision: Decision, current: CurrentTree) -> bool:
    return any(
        wanted.args[0] not in _ONE and not all(holds(line, wanted) for line in lines)
        for wanted in decision.settings
        if wanted.directive == "worker_processes" and (lines := current.lines(wanted))
    )


def _bounds(current: CurrentTree, zoned: set[str]) -> Iterator[str]:
    """Notes on server limits that count per worker because their upstream has no zone."""
    for group in current.kept.groups:
        bound = max_conns(group)
        if bound is None or group.name in zoned or group.block.first("zone") is not None:
            continue
        yield (
            f"{line_of(bound)} counts per worker unless the upstream has a zone: more workers "
            "allow more connections"
        )


def workers_blocked_by(decision: Decision, current: CurrentTree) -> str:
    """The reason not to run more workers; empty if there is none.

    If the configuration already has several workers, or ``auto``, only live streams are a reason.
    """
    tree = current.tree
    found = why_one_worker(tree)
    if found is not None and streams_of_one_worker(tree) is not None:
        return found.why
    if (alone := single_process(tree)) is not None and _is_changed(decision, current):
        return f"with {line_of(alone)} a single process serves, and worker_processes has no effect"
    processes = tree.main.first("worker_processes")
    if (processes is not None and processes.value != "1") or not _is_changed(decision, current):
        return ""
    if found is None and tree.lost:
        return f"{not_read(names_of_unread(tree.lost))} and may need a single worker"
    return "" if found is None else found.why
