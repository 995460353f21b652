"""Which decisions and rules a plan means, and what of them is written in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from msgspec.structs import replace

from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule
from nginx_tune.audit.selection import select_rules
from nginx_tune.change.generate.changes import Changes, plan_changes
from nginx_tune.change.plan.changing import hold_against
from nginx_tune.change.plan.settling import left_by
from nginx_tune.change.plan.together import left_alone, with_companions
from nginx_tune.cli.held import Held
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions
from nginx_tune.documents.findings import Finding, Findings
from nginx_tune.documents.plan import Refusal
from nginx_tune.errors import UsageError, name_meant


class Chosen(NamedTuple):
    """What is meant of all that is decided."""

    decisions: Decisions
    rules: list[Rule]
    alone: list[Refusal]
    """The decisions that are meant, and do harm or nothing without one that is not."""


def _choose(decisions: Decisions, only: tuple[str, ...], but: tuple[str, ...]) -> Chosen:
    """The decisions and the audit's rules that are meant; all where none is named.

    What a decision that is named needs comes with it, and goes with it.
    """
    known = DecisionId.__args__  # type: ignore[attr-defined]  # of a Literal
    rules = select_rules(ALL)
    named = {name: _rules_named(name) for name in (*only, *but) if name not in known}
    if only:
        rules = list({rule.id: rule for name in only for rule in named.get(name, ())}.values())
    unwanted = [rule for name in but for rule in named.get(name, ())]
    every = decisions.decisions
    wanted = with_companions(every, only) if only else {one.id for one in every}
    kept = wanted - set(but)
    alone = left_alone(every, kept)
    refused = [
        Refusal(decision=name, setting="", reason=f"it goes with {alone[name]}, which is left out")
        for name in (one.id for one in every)
        if name in alone
    ]
    return Chosen(
        replace(decisions, decisions=[one for one in every if one.id in kept - alone.keys()]),
        [one for one in rules if one not in unwanted],
        refused,
    )


class Made(NamedTuple):
    """What is meant, and what of it is written."""

    chosen: Chosen
    changes: Changes
    held: Held


def settle_choice(
    held: Held, only: tuple[str, ...], but: tuple[str, ...], *, annotates: bool
) -> Made:
    """The changes, with numbers for what stands once they are made.

    What is left out for one of them stays out.
    """
    left: list[Refusal] = []
    while True:
        chosen = _choose(held.decisions, only, but)
        changes = _changes(held, chosen.decisions, annotates=annotates)
        written = {hunk.decision for file in changes.files for hunk in file.hunks}
        again = held.without(written, {one.id for one in chosen.decisions.decisions})
        if again is None:
            changes = changes._replace(refusals=[*left, *changes.refusals])
            return Made(chosen, changes, held)
        out = set(left_by(again.stays))
        left += [one for one in (*changes.refusals, *chosen.alone) if one.decision in out]
        held = again


def _rules_named(name: str) -> list[Rule]:
    try:
        return select_rules(ALL, select=[name])
    except UsageError as error:
        known = DecisionId.__args__  # type: ignore[attr-defined]  # of a Literal
        raise UsageError(
            f"no decision and no rule '{name}'",
            hint=name_meant(name, [*known, *(rule.id for rule in ALL)])
            or f"one of {', '.join(known)}, or of nginx-tune explain --list",
        ) from error


def _changes(held: Held, chosen: Decisions, *, annotates: bool) -> Changes:
    """What the decisions change, without those that the audit would find fault with."""
    from nginx_tune.change.generate.faultless import make_faultless  # noqa: PLC0415  # brings the audit along

    def make(decisions: Sequence[Decision]) -> Changes:
        some = replace(chosen, decisions=list(decisions))
        return plan_changes(some, held.tree, leaves_of(held, some), annotates=annotates)

    def brings(changes: Changes) -> list[Finding]:
        return brings_of(held, {one.path: one.content for one in changes.files})

    return make_faultless(chosen.decisions, make, brings)


def audited(tree: ConfTree, held: Held, rules: Sequence[Rule]) -> Findings:
    """What some rules find in a tree, on the host that is held."""
    from nginx_tune.audit.engine import audit  # noqa: PLC0415  # not where nothing is to be changed

    return audit(
        tree,
        held.inputs.facts,
        rules,
        today=date.today().isoformat(),  # noqa: DTZ011  # the operator's own day
        decide=lambda: held.inputs.decisions,
    )


def brings_of(held: Held, changed: Mapping[str, bytes]) -> list[Finding]:
    """What the audit finds of changed files that it did not find before."""
    from nginx_tune.change.generate.fixes import brought  # noqa: PLC0415  # not where nothing is to be changed

    rules = select_rules(ALL)
    after = audited(tree_with(held.tree, changed), held, rules)
    return brought(audited(held.tree, held, rules), after)


def leaves_of(held: Held, chosen: Decisions) -> Any:
    """Which of the decisions still ask for something once some files are other ones."""
    names = {one.id for one in chosen.decisions}

    def leaves(files: Mapping[str, bytes]) -> set[str]:
        again = hold_against(held.inputs.decisions, tree_with(held.tree, files))
        return {one.id for one in again.decisions if one.settings and one.id in names}

    return leaves


def tree_with(tree: ConfTree, files: Mapping[str, bytes]) -> ConfTree:
    """The tree with some files replaced."""
    from nginx_tune.cli.overlaid import Overlaid  # noqa: PLC0415  # not for an empty plan
    from nginx_tune.conf.tree import read_tree  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.elsewhere import files_of  # noqa: PLC0415

    reader = Overlaid(files_of(LiveHost(), tree.maps), files)
    return read_tree(tree.path, reader, prefix=tree.prefix, maps=tree.maps, given=tree.given)
