"""Decisions as changes of a configuration: what stands already falls away, what is left has places.

What stands against a decision (``multi_accept on``, threads where all data fits in memory) gets the
line that undoes it (``undoing``).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from nginx_tune.change.plan.kept import with_own_groups
from nginx_tune.change.plan.limits import descriptors_for
from nginx_tune.change.plan.listen_options import listen_options
from nginx_tune.change.plan.more_workers import with_more_workers
from nginx_tune.change.plan.naming import adapted, with_needs
from nginx_tune.change.plan.own_connections import closes_by_default, how_it_stays, lacks_ports
from nginx_tune.change.plan.pools import (
    asked_pools,
    asks_pools,
    told_why_unread,
    without_idle_pools,
)
from nginx_tune.change.plan.quic import with_own_quic
from nginx_tune.change.plan.standing import (
    AT_LEAST,
    KEPT,
    Standing,
    holds,
    own_blocks,
)
from nginx_tune.change.plan.streams import with_own_streams
from nginx_tune.change.plan.undoing import UNDO
from nginx_tune.change.plan.withholding import withheld
from nginx_tune.conf.body_filters import body_filter
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.quantities import parse_bytes
from nginx_tune.conf.thread_pools import asked_pool
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Decision, Decisions, Evidence, Setting, Verdict

_MOST_NAMED = 3
_OF_A_CACHE = ("cache-key", "cache-misses", "cache-updates")


def hold_against(decisions: Decisions, tree: ConfTree) -> Decisions:
    """The decisions as changes of the configuration ``tree``.

    Shape: what stands already is ``keep`` without settings; the other settings are those that
           are missing or differ.
    """
    streams = (s.block for d in decisions.decisions if d.id == "streaming" for s in d.settings)
    standing = Standing(
        tree,
        frozenset(filter(None, streams)),
        closes_by_default=closes_by_default(decisions),
        lacks_ports=lacks_ports(decisions),
    )
    limits = descriptors_for(decisions, tree)
    chosen = [_as_chosen(limits(one), standing) for one in decisions.decisions]
    chosen = with_more_workers(chosen, standing)
    held = [
        _told(_held(withheld(one, standing), standing), limits(wanted), standing)
        for wanted, one in zip(decisions.decisions, chosen, strict=True)
    ]
    held = [
        told_why_unread(one, wanted, standing)
        for wanted, one in zip(decisions.decisions, held, strict=True)
    ]
    asked = asked_pools(standing, held)
    held = [without_idle_pools(one, asked) for one in held]
    return replace(decisions, decisions=with_needs(held, tree))


def _told(held: Decision, wanted: Decision, standing: Standing) -> Decision:
    """The decision; a reason against it is one only where it would have changed something."""
    if not held.withheld:
        return held
    is_idle = not held.settings and not _would_change(wanted, standing)
    return replace(held, withheld="") if held.settings or is_idle else held


def _would_change(wanted: Decision, standing: Standing) -> bool:
    if _is_of_no_http(standing.tree) and _asks_http(wanted):
        return False
    if wanted.id in _OF_A_CACHE and wanted.settings and not standing.caches:
        return bool(standing.passing)  # its settings are for no place that a line speaks against
    if asks_pools(wanted):
        return any(asked_pool(scope.effective("aio")) is None for scope in standing.answering)
    again = _held(wanted, standing)
    return bool(again.settings or again.withheld)


def _as_chosen(decision: Decision, standing: Standing) -> Decision:
    """The decision; a log that needs no buffer and workers that are bound stay as they are.

    Of HTTP/3 what listens already is looked at, and no listener is made up; streams whose events
    come through are left, and upstreams whose connections are not to be shared.
    """
    tree = standing.tree
    if decision.settings and _is_of_no_http(tree) and _asks_http(decision):
        said = f"The configuration has no http. {decision.summary}"
        return replace(decision, verdict="not_applicable", settings=[], summary=said)
    if decision.id == "upstream-keepalive" and decision.settings:
        own = with_own_groups(decision, standing.kept)
        refused = (f'upstream "{name}": {why}' for name, why in standing.kept.refused.items())
        return own if own.settings else replace(own, withheld=next(refused, ""))
    if decision.id == "http3":
        return with_own_quic(decision, tree)
    if decision.id == "streaming":
        return with_own_streams(decision, tree)
    if decision.id == "access-log" and decision.verdict in ("keep", "not_applicable"):
        return replace(decision, settings=[])
    if bound := _bound_workers(decision, tree):
        why = f"{bound} binds each worker"
        said = f"Left as it is: {why}. {decision.summary}"
        return replace(decision, verdict="keep", settings=[], summary=said, withheld=why)
    return decision


def _is_of_no_http(tree: ConfTree) -> bool:
    """Whether a whole configuration passes streams or mail on, and answers nothing over HTTP."""
    has_other = any(map(tree.main.all, ("stream", "mail")))
    return has_other and tree.is_whole and not tree.main.all("http")


def _asks_http(decision: Decision) -> bool:
    return any(one.context not in ("main", "events") for one in decision.settings)


def _held(decision: Decision, standing: Standing) -> Decision:
    undo = UNDO.get(decision.id)
    undone = undo(decision, standing) if undo else []
    if undone:
        return _undone(decision, undone)
    if decision.verdict in ("not_applicable", "not_enough_evidence") or not decision.settings:
        return decision
    own_choice = standing.caches or not standing.may_cache
    known = decision.risks
    decision = adapted(decision, standing.tree, caches=own_choice)
    left_out = [one for one in decision.risks if one not in known]
    as_they_are = _as_they_are(decision, standing)
    decision = replace(decision, risks=[*decision.risks, *as_they_are])
    left: list[Setting] = []
    evidence: list[Evidence] = []
    verdict: Verdict = decision.verdict
    for wanted in decision.settings:
        if wanted.directive == "listen":
            stands, line = not listen_options(wanted, standing.tree).lines, None
        else:
            apart = own_blocks(decision, wanted.directive)
            found = standing.lines(wanted, apart)
            differing = [line for line in found if not holds(line, wanted)]
            stands, line = not differing, differing[0] if differing else None
        if not stands:
            apart = own_blocks(decision, wanted.directive)
            places = standing.places(wanted, apart)
            if not places and wanted.context not in ("main", "events"):
                continue  # nothing in the configuration that it is for
            left.append(replace(wanted, places=places))
            if line is not None:
                evidence.append(_as_evidence(line))
                verdict = _direction(line, wanted) or verdict
    if not left:
        stays = next(iter(as_they_are), "")
        word = f"Not written: {stays}" if stays else f"Already so{_more(decision, standing)}"
        said = f"{word}. {decision.summary}"
        risks = [*decision.risks, *_left_alone(decision, standing)]
        why = next(iter(left_out), stays or decision.withheld)
        return replace(
            decision, verdict="keep", settings=[], summary=said, risks=risks, withheld=why
        )
    if verdict == "keep":
        verdict = "set"
    return replace(
        decision,
        verdict=verdict,
        settings=left,
        evidence=[*decision.evidence, *evidence],
        risks=[*decision.risks, *_filtered(decision, standing), *_left_alone(decision, standing)],
    )


def _as_they_are(decision: Decision, standing: Standing) -> list[str]:
    """The addresses that an option is not written for, each with the reason."""
    found = [
        one
        for wanted in decision.settings
        if wanted.directive == "listen"
        for one in listen_options(wanted, standing.tree).left
    ]
    if more := found[_MOST_NAMED:]:
        found[_MOST_NAMED:] = [f"{len(more)} more addresses stay as they are"]
    return found


def _bound_workers(decision: Decision, tree: ConfTree) -> str:
    """The line that gives each worker its CPUs: more workers would all get the last one's.

    Source: ngx_get_cpu_affinity(). Empty where there is none, and for other decisions.
    """
    if not any(s.directive == "worker_processes" for s in decision.settings):
        return ""
    line = tree.main.first("worker_cpu_affinity")
    return "" if line is None or line.value == "auto" else f"{line.file}:{line.line} {line}"


def _left_alone(decision: Decision, standing: Standing) -> list[str]:
    """The locations whose connections to upstreams are as somebody wanted them."""
    if not any(s.directive in KEPT for s in decision.settings):
        return []
    lines = (standing.kept.line_of_its_own(scope) for scope in standing.answering)
    return list(dict.fromkeys(how_it_stays(one) for one in lines if one))


def _more(decision: Decision, standing: Standing) -> str:
    """The larger numbers that stand, where less was decided."""
    found = {
        str(line): None
        for wanted in decision.settings
        if wanted.directive in AT_LEAST
        for line in standing.lines(wanted)
        if line is not None and line.args != tuple(wanted.args)
    }
    return f", with more: {', '.join(found)} stays" if found else ""


def _filtered(decision: Decision, standing: Standing) -> list[str]:
    """Where a filter cuts bodies into pieces, each of which would be a task for a thread.

    Traced with sub_filter (docs/behaviour.md): each piece of text between two replacements is a
    ``sendfile()`` of its own.
    """
    if decision.id != "thread-pools":
        return []
    lines = {
        f"{line.file}:{line.line} {line}": None
        for scope in standing.answering
        if (line := body_filter(scope)) is not None
    }
    return [
        f"{place} cuts bodies into pieces, and each would be sent by a thread's task: no aio "
        "threads is written where it holds"
        for place in lines
    ]


def _direction(line: Directive, wanted: Setting) -> Verdict | None:
    """Whether a number is to be raised or lowered; null for what is no number."""
    have = parse_bytes(line.value) if len(line.args) == 1 else None
    want = parse_bytes(wanted.args[0]) if len(wanted.args) == 1 else None
    if have is None or want is None or have == want:
        return None
    return "raise" if have < want else "lower"


def _undone(decision: Decision, undone: Sequence[tuple[Directive, list[Setting]]]) -> Decision:
    lines = [line for line, _ in undone]
    settings = {(s.directive, s.block, *s.args): s for _, made in undone for s in made}
    found = "; ".join(dict.fromkeys(map(str, lines)))
    return replace(
        decision,
        verdict="disable",
        summary=f"Take out {found}. {decision.summary}",
        settings=list(settings.values()),
        evidence=[*decision.evidence, *map(_as_evidence, lines)],
    )


def _as_evidence(line: Directive) -> Evidence:
    fact = f"{line.file}:{line.line}"
    return Evidence(fact=fact, value=str(line), provenance="declared")
