"""Decisions as changes to a configuration: the missing settings, and the place of each.

An existing line that contradicts a decision (``multi_accept on``, threads where all data fits in
memory) is undone (``UNDO``).
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from nginx_tune.change.plan.current import AT_LEAST, KEPT, CurrentTree, holds, own_blocks
from nginx_tune.change.plan.kept import (
    closes_by_default,
    how_it_stays,
    lacks_ports,
    with_own_groups,
)
from nginx_tune.change.plan.multiplexing import with_own_quic
from nginx_tune.change.plan.naming import adapted, listen_options, with_needs, with_own_streams
from nginx_tune.change.plan.placing import with_blockers, without_doubtful_lines
from nginx_tune.change.plan.process_needs import (
    asked_pools,
    asks_pools,
    descriptors_for,
    with_more_workers,
    with_unread_reason,
    without_idle_pools,
)
from nginx_tune.conf.answer_bodies import body_filter
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import has_own_queues, listeners
from nginx_tune.conf.scopes import Absence
from nginx_tune.conf.served import MODULES, sends_no_files
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.values import parse_bytes
from nginx_tune.conf.workers import asked_pool
from nginx_tune.decide.accepting import EPOLLEXCLUSIVE
from nginx_tune.decide.answer import setting
from nginx_tune.decide.upstreams import as_proposed
from nginx_tune.documents.decisions import Decision, Decisions, DecisionVerdict, Evidence, Setting

_MOST_NAMED = 3
_OF_A_CACHE = ("cache-key", "cache-misses", "cache-updates")


def as_changes(decisions: Decisions, tree: ConfTree) -> Decisions:
    """The decisions as changes to the configuration ``tree``.

    Shape: only settings that are missing or differ; a decision without any has verdict ``keep``.
    """
    streams = (s.block for d in decisions.decisions if d.id == "streaming" for s in d.settings)
    current = CurrentTree(
        tree,
        frozenset(filter(None, streams)),
        closes_by_default=closes_by_default(decisions),
        lacks_ports=lacks_ports(decisions),
    )
    limits = descriptors_for(decisions, tree)
    chosen = [_as_chosen(limits(decision), current) for decision in decisions.decisions]
    chosen = with_more_workers(chosen, current)
    held = [
        _without_idle_reason(
            _compared(with_blockers(decision, current), current), limits(wanted), current
        )
        for wanted, decision in zip(decisions.decisions, chosen, strict=True)
    ]
    held = [
        with_unread_reason(decision, wanted, current)
        for wanted, decision in zip(decisions.decisions, held, strict=True)
    ]
    if tree.lost or tree.is_part:
        absence = Absence(tree)
        held = [without_doubtful_lines(decision, current, absence) for decision in held]
    asked = asked_pools(current, held)
    held = [without_idle_pools(decision, asked) for decision in held]
    return replace(decisions, decisions=with_needs(held, tree))


def _without_idle_reason(held: Decision, wanted: Decision, current: CurrentTree) -> Decision:
    """The decision without ``blocked_by`` if it has settings, or if there is nothing to change."""
    if not held.blocked_by:
        return held
    is_idle = not held.settings and not _would_change(wanted, current)
    return replace(held, blocked_by="") if held.settings or is_idle else held


def _would_change(wanted: Decision, current: CurrentTree) -> bool:
    if _is_of_no_http(current.tree) and _asks_http(wanted):
        return False
    if wanted.id in _OF_A_CACHE and wanted.settings and not current.caches:
        return bool(current.passing)  # its settings are written only where a cache is possible
    if asks_pools(wanted):
        return any(asked_pool(scope.effective("aio")) is None for scope in current.answering)
    again = _compared(wanted, current)
    return bool(again.settings or again.blocked_by)


def _as_chosen(decision: Decision, current: CurrentTree) -> Decision:
    """The decision without changes to choices of the operator.

    Such choices are logs without a buffer, workers bound to CPUs, compression, event streams that
    already pass through, and upstreams that must not share connections. No QUIC listener is added.
    """
    tree = current.tree
    if decision.settings and _is_of_no_http(tree) and _asks_http(decision):
        summary = f"The configuration has no http block. {decision.summary}"
        return replace(decision, verdict="not_applicable", settings=[], summary=summary)
    if decision.id == "upstream-keepalive":
        decision = as_proposed(decision)
    if decision.id == "upstream-keepalive" and decision.settings:
        own = with_own_groups(decision, current.kept)
        refused = (f'upstream "{name}": {why}' for name, why in current.kept.refused.items())
        return own if own.settings else replace(own, blocked_by=next(refused, ""))
    if decision.id == "http3":
        return with_own_quic(decision, tree)
    if decision.id == "gzip":
        summary = "The configuration keeps its compression."
        return replace(decision, verdict="keep", settings=[], summary=summary)
    if decision.id == "streaming":
        return with_own_streams(decision, tree)
    if decision.id == "access-log" and decision.verdict in ("keep", "not_applicable"):
        return replace(decision, settings=[])
    if bound := _bound_workers(decision, tree):
        why = f"{bound} binds each worker to CPUs"
        summary = f"Unchanged: {why}. {decision.summary}"
        return replace(decision, verdict="keep", settings=[], summary=summary, blocked_by=why)
    return decision


def _is_of_no_http(tree: ConfTree) -> bool:
    """True if a complete configuration has stream or mail, but not http."""
    has_other = any(map(tree.main.all, ("stream", "mail")))
    return has_other and tree.is_whole and not tree.main.all("http")


def _asks_http(decision: Decision) -> bool:
    return any(setting.context not in ("main", "events") for setting in decision.settings)


def _compared(decision: Decision, current: CurrentTree) -> Decision:
    """The decision with only those settings and proposals that the configuration lacks."""
    decision = _still_proposed(decision, current)
    undo = UNDO.get(decision.id)
    undone = undo(decision, current) if undo else []
    if undone:
        return _undone(decision, undone)
    if decision.verdict in ("not_applicable", "not_enough_evidence") or not decision.settings:
        return decision
    own_choice = current.caches or not current.may_cache
    known = decision.risks
    decision = adapted(decision, current.tree, caches=own_choice)
    left_out = [risk for risk in decision.risks if risk not in known]
    as_they_are = _as_they_are(decision, current)
    decision = replace(decision, risks=[*decision.risks, *as_they_are])
    left: list[Setting] = []
    evidence: list[Evidence] = []
    verdict: DecisionVerdict = decision.verdict
    for wanted in decision.settings:
        stands, line = _standing(wanted, decision, current)
        if not stands:
            apart = own_blocks(decision, wanted.directive)
            places = current.places(wanted, apart)
            if not places and wanted.context not in ("main", "events"):
                continue  # the configuration has no place for it
            left.append(replace(wanted, places=places))
            if line is not None:
                evidence.append(_as_evidence(line))
                verdict = _direction(line, wanted) or verdict
    if not left:
        stays = next(iter(as_they_are), "")
        status = f"Not written: {stays}" if stays else f"Already so{_larger(decision, current)}"
        risks = [*decision.risks, *_left_alone(decision, current)]
        why = next(iter(left_out), stays or decision.blocked_by)
        return replace(
            decision,
            verdict="keep",
            settings=[],
            summary=f"{status}. {decision.summary}",
            risks=risks,
            blocked_by=why,
        )
    if verdict == "keep":
        verdict = "set"
    return replace(
        decision,
        verdict=verdict,
        settings=left,
        evidence=[*decision.evidence, *evidence],
        risks=[*decision.risks, *_filtered(decision, current), *_left_alone(decision, current)],
    )


def _standing(
    wanted: Setting, decision: Decision, current: CurrentTree
) -> tuple[bool, Directive | None]:
    """A pair: True if every place already has the setting, and the first line that differs."""
    if wanted.directive == "listen":
        return not listen_options(wanted, current.tree).lines, None
    found = current.lines(wanted, own_blocks(decision, wanted.directive))
    differing = [line for line in found if not holds(line, wanted)]
    return not differing, differing[0] if differing else None


def _still_proposed(decision: Decision, current: CurrentTree) -> Decision:
    """The decision without proposals that are already in place; ``keep`` if no proposal is left."""
    if not decision.proposed:
        return decision
    own_choice = current.caches or not current.may_cache
    proposed = [_by_own_module(one, current.tree) for one in decision.proposed]
    meant = replace(decision, settings=proposed)
    meant = adapted(meant, current.tree, caches=own_choice)
    left = [
        one
        for one in meant.settings
        # If no listen needs a change, there may simply be none of this kind.
        if one.directive == "listen" or not _standing(one, meant, current)[0]
    ]
    if left or not meant.settings or decision.verdict != "not_enough_evidence":
        return replace(decision, proposed=left if meant.settings else proposed)
    lines = dict.fromkeys(" ".join([one.directive, *one.args]) for one in meant.settings)
    summary = f"Unchanged: {', '.join(lines)} stays; its gain is not known."
    return replace(decision, verdict="keep", proposed=[], summary=summary, flips_when=[])


def _by_own_module(wanted: Setting, tree: ConfTree) -> Setting:
    """A cache setting with the prefix of the module that caches here, if there is only one."""
    modules = [one for one in MODULES if f"{one}_cache" in tree.names]
    if len(modules) != 1 or not wanted.directive.startswith("proxy_cache"):
        return wanted
    return replace(wanted, directive=modules[0] + wanted.directive.removeprefix("proxy"))


def _as_they_are(decision: Decision, current: CurrentTree) -> list[str]:
    """The addresses that do not get the new ``listen`` option, each with the reason."""
    found = [
        address
        for wanted in decision.settings
        if wanted.directive == "listen"
        for address in listen_options(wanted, current.tree).left
    ]
    if more := found[_MOST_NAMED:]:
        found[_MOST_NAMED:] = [f"{len(more)} more addresses stay unchanged"]
    return found


def _bound_workers(decision: Decision, tree: ConfTree) -> str:
    """The ``worker_cpu_affinity`` line for a decision on the number of workers; otherwise empty.

    Workers beyond the number of masks would all get the last mask. Source: ngx_get_cpu_affinity().
    """
    if not any(s.directive == "worker_processes" for s in decision.settings):
        return ""
    line = tree.main.first("worker_cpu_affinity")
    return "" if line is None or line.value == "auto" else f"{line.file}:{line.line} {line}"


def _left_alone(decision: Decision, current: CurrentTree) -> list[str]:
    """Notes on locations that stay without upstream keepalive, each with the reason."""
    if not any(s.directive in KEPT for s in decision.settings):
        return []
    lines = (current.kept.line_of_its_own(scope) for scope in current.answering)
    return list(dict.fromkeys(how_it_stays(line) for line in lines if line))


def _larger(decision: Decision, current: CurrentTree) -> str:
    """The end of a clause that names existing numbers above the decided ones, which stay."""
    found = {
        str(line): None
        for wanted in decision.settings
        if wanted.directive in (*AT_LEAST, "worker_rlimit_nofile")
        for line in current.lines(wanted)
        if line is not None and line.args != tuple(wanted.args)
    }
    return f", with more: {', '.join(found)} stays" if found else ""


def _filtered(decision: Decision, current: CurrentTree) -> list[str]:
    """Notes on locations that get no aio threads because of a body filter.

    Traced with sub_filter (docs/behaviour.md): each piece of text between two replacements is a
    separate ``sendfile()``, and so a separate task.
    """
    if decision.id != "thread-pools":
        return []
    lines = {
        f"{line.file}:{line.line} {line}": None
        for scope in current.answering
        if (line := body_filter(scope)) is not None
    }
    return [
        f"{place} splits bodies into pieces, and each piece would be a thread pool task: no aio "
        "threads is written there"
        for place in lines
    ]


def _direction(line: Directive, wanted: Setting) -> DecisionVerdict | None:
    """``raise`` or ``lower`` for a changed number; None if equal or not a number."""
    have = parse_bytes(line.value) if len(line.args) == 1 else None
    want = parse_bytes(wanted.args[0]) if len(wanted.args) == 1 else None
    if have is None or want is None or have == want:
        return None
    return "raise" if have < want else "lower"


def _undone(decision: Decision, undone: Sequence[tuple[Directive, list[Setting]]]) -> Decision:
    lines = [line for line, _ in undone]
    settings = {(s.directive, s.block, *s.args): s for _, made in undone for s in made}
    found = "; ".join(dict.fromkeys(map(str, lines)))
    is_number = decision.id == "sendfile-max-chunk"
    return replace(
        decision,
        verdict="set" if is_number else "disable",
        summary=f"{_DEFAULT_CHUNK} instead of no limit. {decision.summary}"
        if is_number
        else f"Remove {found}. {decision.summary}",
        settings=list(settings.values()),
        evidence=[*decision.evidence, *map(_as_evidence, lines)],
    )


def _as_evidence(line: Directive) -> Evidence:
    fact = f"{line.file}:{line.line}"
    return Evidence(fact=fact, value=str(line), provenance="declared")


_DEFAULT_CHUNK = "2m"
Undo = Callable[[Decision, CurrentTree], list[tuple[Directive, list[Setting]]]]


def _threads(decision: Decision, current: CurrentTree) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    direct = {
        id(scope.effective("aio"))
        for scope in current.answering
        if scope.value("directio", "off") != "off"
    }
    sending = (scope for scope in current.answering if not sends_no_files(scope))
    lines = {id(a): a for scope in sending if (a := scope.effective("aio"))}
    why = "the data fits in memory, or waiting costs less than offloading"
    return [
        (line, [setting("thread-pools", "location", "aio", "off", reason=why)])
        for line in lines.values()
        # directio always reads from the disk, even if all data would fit in memory.
        if asked_pool(line) is not None and id(line) not in direct
    ]


def _accepting(decision: Decision, current: CurrentTree) -> list[tuple[Directive, list[Setting]]]:
    """Lines of ``events`` to undo, under the conditions of the audit rules for them."""
    if decision.verdict == "not_applicable":
        return []
    why = "with it on, one worker takes most connections"
    found = []
    names = [] if has_own_queues(listeners(current.tree)) else ["multi_accept"]
    if not any(item.fact == EPOLLEXCLUSIVE and item.value is False for item in decision.evidence):
        names.append("accept_mutex")
    for name in names:
        wanted = setting("accept", "events", name, "off", reason=why)
        line = current.lines(wanted)[0]
        if line is not None and line.value.lower() == "on":
            found.append((line, [wanted]))
    return found


def _own_queues(decision: Decision, current: CurrentTree) -> list[tuple[Directive, list[Setting]]]:
    """Listen lines with reuseport. They are only reported: no added line can undo the option."""
    if decision.verdict != "disable":
        return []
    lines = [listener.reuseport for listener in listeners(current.tree) if not listener.is_quic]
    return [(line, []) for line in lines if line is not None]


def _open_files(decision: Decision, current: CurrentTree) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    why = decision.summary.removeprefix("Left off: ").rstrip(".")
    wanted = setting("open-file-cache", "http", "open_file_cache", "off", reason=why)
    return [
        (line, [wanted]) for line in current.lines(wanted) if line and line.value.lower() != "off"
    ]


def _direct(decision: Decision, current: CurrentTree) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    why = "the disk would read data that the page cache could serve"
    wanted = setting("directio", "http", "directio", "off", reason=why)
    return [
        (line, [wanted]) for line in current.lines(wanted) if line and line.value.lower() != "off"
    ]


def _kernel_tls(decision: Decision, current: CurrentTree) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    why = "SSL_sendfile() runs in the event loop and bypasses the pool"
    wanted = setting("ktls", "http", "ssl_conf_command", "Options", "-KTLS", reason=why)
    found = []
    for line in current.lines(wanted):
        options = "" if line is None else " ".join(line.args[1:]).lower()
        if line is not None and "ktls" in options and "-ktls" not in options:
            found.append((line, [wanted]))
    return found


def _unbounded(decision: Decision, current: CurrentTree) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "keep" or decision.settings:
        return []
    why = "without a limit one call may send a whole file while all others wait"
    wanted = setting("sendfile-max-chunk", "http", "sendfile_max_chunk", _DEFAULT_CHUNK, reason=why)
    return [(line, [wanted]) for line in current.lines(wanted) if line and line.value == "0"]


UNDO: dict[str, Undo] = {
    "thread-pools": _threads,
    "accept": _accepting,
    "reuseport": _own_queues,
    "open-file-cache": _open_files,
    "directio": _direct,
    "ktls": _kernel_tls,
    "sendfile-max-chunk": _unbounded,
}
