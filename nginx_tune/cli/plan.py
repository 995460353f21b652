"""``nginx-tune plan``."""

import hashlib
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule, select_rules
from nginx_tune.audit.rules import cf_named_location_missing
from nginx_tune.change.generate.changes import (
    Changes,
    Ground,
    add_fixes,
    brought,
    make_faultless,
    plan_changes,
)
from nginx_tune.change.generate.plan_files import host_parts
from nginx_tune.change.generate.reload_warnings import reload_warnings
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import left_alone, left_by, with_companions
from nginx_tune.cli.configurations import link_targets, tell_unread, typed_name, with_typed_names
from nginx_tune.cli.deciding import Held, deciding_options, read_held
from nginx_tune.cli.options import (
    accept_missing_option,
    map_option,
    prefix_option,
    weaker_sandbox_option,
)
from nginx_tune.conf.dumps import encode_payload
from nginx_tune.conf.tree import ConfTree, Maps
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions
from nginx_tune.documents.findings import Finding, Findings
from nginx_tune.documents.plan import Plan, PlannedFile, Refusal
from nginx_tune.errors import ExitStatus, UsageError, name_meant
from nginx_tune.host.paths import absolute_path, from_here
from nginx_tune.report.plan import render_host_part, render_plan_diff, render_plan_markdown
from nginx_tune.report.terminal.output import file_of, output_options, tell_written, write_result
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.text import plain, shown_path

FORMATS = ("diff", "md", "json", "crossplane", "sysctl", "unit", "udev")
PRIVATE = 0o600
"""The mode of files that may have secrets, since they contain whole configurations."""


@click.command()
@click.argument("conf", required=False)
@click.option("-c", "conf_option", metavar="CONF", help="The configuration (the same as CONF).")
@prefix_option
@map_option
@accept_missing_option
@deciding_options
@click.option(
    "--observation",
    "observation_path",
    metavar="FILE",
    help="An observation of the running server ('observe'), which replaces assumed values.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    help="Only this decision, or this rule, group or pattern of rules; may repeat.",
)
@click.option(
    "--except",
    "but",
    multiple=True,
    metavar="ID",
    help="Without this decision, or this rule, group or pattern of rules ('*-*': no fixes); may "
    "repeat.",
)
@click.option(
    "--annotate",
    is_flag=True,
    help="Add the reason as a comment to each line that a decision adds.",
)
@click.option(
    "--test",
    "runs_test",
    is_flag=True,
    help="Also run nginx -t on the changed files, in the sandbox; the plan has its result.",
)
@weaker_sandbox_option
@output_options(*FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    conf: str | None,
    conf_option: str | None,
    prefix: str | None,
    only: tuple[str, ...],
    but: tuple[str, ...],
    annotate: bool,
    runs_test: bool,
    formats: tuple[str, ...],
    output: str | None,
    **named: Any,
) -> ExitStatus:
    """Changes to a configuration: a diff of its own files, with the reason for each line.

    The plan has the decisions of recommend, and those safe fixes of audit that undo none of them.
    No file is changed. Existing lines keep their places and comments. A decision is left out, and
    named, if its lines have no place or contradict an existing line. --only also takes what the
    named decisions need (the key of a cache, the threads of a location); --except also drops what
    needs the named ones. A plan for a planned configuration is empty. The diff is for patch and
    git apply, the JSON for 'nginx-tune apply'; crossplane's payload is the planned configuration.
    Changes to the host (kernel settings, limits of the unit, read-ahead of disks) are a separate
    part, with the commands that undo them: the formats sysctl, unit and udev are their files.
    """
    if conf and conf_option:
        raise UsageError("CONF is given twice", hint="name it once, with or without -c")
    held = read_held(ctx, conf or conf_option, prefix, **named)
    held.inputs.tell()
    plan, meant, held = make_plan(held, only, but, prefix=prefix, annotates=annotate)
    if runs_test:
        plan = _tested(plan, held, named["nginx_binary"])
    shown = with_typed_names(plan, conf or conf_option)
    status = tell_unread(held.missing._replace(files_missing=shown.files_missing))
    if plan.headline:
        say(plan.headline)
    if ctx.obj["verbose"]:
        say(shown.binding)
    old = {parsed.source.file: parsed.source.data for parsed in held.tree.parsed}
    if not runs_test:
        _read_again(plan, old, meant.decisions, tells=ctx.obj["verbose"])
    new = {file.path: file.content for file in plan.files}
    names = _diff_names(new, held.tree.maps)
    write_result(
        {
            "diff": lambda: render_plan_diff(shown, old, names, verbose=ctx.obj["verbose"]),
            "md": lambda: render_plan_markdown(shown, old, names).encode(errors="backslashreplace"),
            "json": lambda: encode(plan),
            "crossplane": lambda: encode_payload(tree_with(held.tree, new)),
            "sysctl": lambda: render_host_part(plan, "sysctl"),
            "unit": lambda: render_host_part(plan, "unit"),
            "udev": lambda: render_host_part(plan, "udev"),
        },
        formats,
        output,
        mode=PRIVATE,
    )
    if not plan.files and not ctx.obj["quiet"]:
        say("nothing is to be changed")
    if plan.files and not ctx.obj["quiet"]:
        has_diff = not formats or any(form.partition("=")[0] == "diff" for form in formats)
        _tell_way(plan, held.tree.maps if has_diff else None)
    made = file_of("json", formats, output) if plan.files and not held.is_moved else ""
    proof = f"nginx-tune validate --plan {shlex.quote(made)}" if made else ""
    tell_written("the plan", formats, output, proof)
    faults = _refused_by_nginx(held)
    for fault in faults:
        file = plain(typed_name(fault.file, conf or conf_option))
        say(f"nginx does not start: {file}:{fault.line}: {plain(fault.message)}")
    refused = bool(faults) or (plan.nginx_test is not None and not plan.nginx_test.accepted)
    is_shown_only = not formats and output is None and not ctx.obj["quiet"]
    if plan.files and is_shown_only and not held.is_moved and not refused:
        _tell_next(ctx.obj["arguments"])
    return ExitStatus.CONFIGURATION if refused else status


def _tell_next(arguments: Sequence[str]) -> None:
    """Print the command that writes the plan, unless a name cannot be printed as it was typed."""
    after = arguments.index("plan") + 1
    words = ["nginx-tune", *arguments[:after], "-f", "json=plan.json", *arguments[after:]]
    typed = shlex.join(words)
    if typed.isprintable():
        say(f"next: {typed}")


def _read_again(
    plan: Plan, old: Mapping[str, bytes], decisions: Sequence[Decision], *, tells: bool
) -> None:
    """Check with crossplane that the planned files read as intended; ``tells``: print notes.

    Errors: UndecidedError.
    """
    if not plan.files:
        return
    from nginx_tune.cli.second_reading import check_planned  # noqa: PLC0415  # not for an empty plan

    for file in plan.files:
        if not check_planned(file, old[file.path], decisions) and tells:
            say(f"{shown_path(file.path)}: not compared: crossplane misreads the current file")


def make_plan(
    held: Held,
    only: tuple[str, ...],
    but: tuple[str, ...],
    *,
    prefix: str | None,
    annotates: bool = False,
) -> tuple[Plan, Decisions, Held]:
    """The plan for ``only`` and ``but``, its decisions, and the inputs of the final decisions."""
    chosen, changes, held = settle_choice(held, only, but, annotates=annotates)
    if chosen.rules:
        changes = _with_fixes(changes, held, chosen.rules)
    plan = _plan(held, _each_once(changes), prefix)
    decisions = chosen.decisions
    refusals = [*plan.refusals, *chosen.alone, *_blocked(decisions)]
    host = host_parts(decisions.decisions, held.inputs.facts)
    return replace(plan, refusals=refusals, host=host), decisions, held


def _blocked(chosen: Decisions) -> list[Refusal]:
    """The decisions that cannot change anything because of existing lines."""
    found = (decision for decision in chosen.decisions if decision.blocked_by)
    return [
        Refusal(decision=decision.id, setting="", reason=decision.blocked_by) for decision in found
    ]


def _refused_by_nginx(held: Held) -> list[Finding]:
    """The faults of the current configuration with which nginx does not start."""
    rules = select_rules(ALL, select=["cf"], ignore=[cf_named_location_missing.RULE.id])
    return [
        finding
        for finding in audited(held.tree, held, rules).findings
        if finding.severity == "error"
    ]


def _diff_names(paths: Iterable[str], maps: Maps | None) -> dict[str, str]:
    """The names in the diff: the targets of links, or for a tree elsewhere, names from here."""
    targets = link_targets(paths, maps)
    if maps is None:
        return targets
    return {path: from_here(targets.get(path, path)) for path in paths}


def _tell_way(plan: Plan, maps: Maps | None) -> None:
    """Print how to apply the diff of a tree elsewhere, else which files ``apply`` would refuse.

    As root it refuses files that others may write.
    """
    if maps is not None:
        names = _diff_names([file.path for file in plan.files], maps).values()
        root = " -d /" if any(map(os.path.isabs, names)) else ""
        say(f"patch -p1{root} applies the diff")
        return
    from nginx_tune.change.apply.examine import KEEP_IT_APART, why_not_tried  # noqa: PLC0415  # with a plan

    paths = [plan.conf_path, *plan.reads, *(file.path for file in plan.files)]
    if why := why_not_tried([*paths, *map(os.path.realpath, paths)]):
        say(f"apply would refuse this plan: {why}", KEEP_IT_APART)


def _with_fixes(changes: Changes, held: Held, rules: Sequence[Rule]) -> Changes:
    """The changes, and the safe fixes of ``rules``, except any that would undo a decision."""
    ground = Ground(
        lambda files: tree_with(held.tree, files),
        lambda tree: audited(tree, held, rules),
        leaves_of(held, held.decisions),
    )
    return add_fixes(changes, held.tree, ground)


def _tested(plan: Plan, held: Held, nginx_binary: str | None) -> Plan:
    """The plan with the result of ``nginx -t``, by the host's nginx or a named one."""
    from nginx_tune.cli.audit_subject import test_tree  # noqa: PLC0415  # only with --test
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415

    files = {file.path: file.content for file in plan.files}
    test, nginx = test_tree(
        LiveHost(), tree_with(held.tree, files), nginx_binary, prefix=plan.prefix, replaced=files
    )
    return replace(plan, nginx_test=test, nginx_choice=nginx.choice)


def _each_once(changes: Changes) -> Changes:
    """The changes with each file under one name, even if it is included through several links.

    Errors: UsageError if the new contents differ by name.
    """
    found: dict[str, PlannedFile] = {}
    for file in changes.files:
        first = found.setdefault(os.path.realpath(file.path), file)
        if first.content != file.content:
            raise UsageError(
                f"{first.path} and {file.path} are the same file, but would get different contents",
                hint="leave the cause of the difference out with --except",
            )
    return changes._replace(files=[*found.values()])


def _plan(held: Held, changes: Changes, prefix: str | None) -> Plan:
    changed = {file.path: file.content for file in changes.files}
    nginx = held.inputs.facts.nginx
    return Plan(
        conf_path=held.tree.path,
        prefix=absolute_path(prefix) if prefix else None,
        nginx_version=nginx.version or "",
        nginx_choice=nginx.choice,
        headline=held.inputs.decisions.headline,
        binding=held.inputs.decisions.binding,
        files=changes.files,
        reads={
            parsed.source.file: hashlib.sha256(parsed.source.data).hexdigest()
            for parsed in held.tree.parsed
            if parsed.source.file not in changed
        },
        files_missing=held.missing.files_missing,
        warnings=reload_warnings(held.tree, tree_with(held.tree, changed)) if changed else [],
        refusals=changes.refusals,
        brings=brings_of(held, changed) if changed else [],
    )


class Chosen(NamedTuple):
    """The decisions and rules left by ``--only`` and ``--except``."""

    decisions: Decisions
    rules: list[Rule]
    alone: list[Refusal]
    """Chosen decisions that have no effect or do harm without a decision that is not chosen."""


def _choose(decisions: Decisions, only: tuple[str, ...], but: tuple[str, ...]) -> Chosen:
    """The decisions and audit rules chosen by ``only`` and ``but``; all by default.

    Decisions that a chosen one needs are added; decisions that need an excluded one are removed.
    """
    known = DecisionId.__args__  # type: ignore[attr-defined]  # of a Literal
    rules = select_rules(ALL)
    named = {name: _rules_named(name) for name in (*only, *but) if name not in known}
    if only:
        rules = list({rule.id: rule for name in only for rule in named.get(name, ())}.values())
    unwanted = [rule for name in but for rule in named.get(name, ())]
    every = decisions.decisions
    wanted = with_companions(every, only) if only else {decision.id for decision in every}
    kept = wanted - set(but)
    alone = left_alone(every, kept)
    refused = [
        Refusal(decision=name, setting="", reason=f"it depends on {alone[name]}, which is left out")
        for name in (decision.id for decision in every)
        if name in alone
    ]
    return Chosen(
        replace(
            decisions,
            decisions=[decision for decision in every if decision.id in kept - alone.keys()],
        ),
        [rule for rule in rules if rule not in unwanted],
        refused,
    )


class Made(NamedTuple):
    """The choice, and the resulting changes."""

    chosen: Chosen
    changes: Changes
    held: Held


def settle_choice(
    held: Held, only: tuple[str, ...], but: tuple[str, ...], *, annotates: bool
) -> Made:
    """The changes, with values decided again to fit the lines that stay.

    A decision that has been left out stays out.
    """
    left: list[Refusal] = []
    while True:
        chosen = _choose(held.decisions, only, but)
        changes = _changes(held, chosen.decisions, annotates=annotates)
        written = {hunk.decision for file in changes.files for hunk in file.hunks}
        again = held.without(written, {decision.id for decision in chosen.decisions.decisions})
        if again is None:
            changes = changes._replace(refusals=[*left, *changes.refusals])
            return Made(chosen, changes, held)
        out = set(left_by(again.stays))
        left += [
            refusal for refusal in (*changes.refusals, *chosen.alone) if refusal.decision in out
        ]
        held = again


def _rules_named(name: str) -> list[Rule]:
    try:
        return select_rules(ALL, select=[name])
    except UsageError as error:
        known = DecisionId.__args__  # type: ignore[attr-defined]  # of a Literal
        raise UsageError(
            f"no decision or rule is named '{name}'",
            hint=name_meant(name, [*known, *(rule.id for rule in ALL)])
            or f"one of {', '.join(known)}, or of nginx-tune explain --list",
        ) from error


def _changes(held: Held, chosen: Decisions, *, annotates: bool) -> Changes:
    """The changes for the decisions, without those that would cause an audit finding."""

    def make(decisions: Sequence[Decision]) -> Changes:
        some = replace(chosen, decisions=list(decisions))
        return plan_changes(some, held.tree, leaves_of(held, some), annotates=annotates)

    def brings(changes: Changes) -> list[Finding]:
        return brings_of(held, {file.path: file.content for file in changes.files})

    return make_faultless(chosen.decisions, make, brings)


def audited(tree: ConfTree, held: Held, rules: Sequence[Rule]) -> Findings:
    """The findings of some rules in a tree, on the host of the facts."""
    from nginx_tune.audit.engine import audit  # noqa: PLC0415  # only with changes

    return audit(
        tree,
        held.inputs.facts,
        rules,
        today=date.today().isoformat(),  # noqa: DTZ011  # the operator's own day
        decide=lambda: held.inputs.decisions,
    )


def brings_of(held: Held, changed: Mapping[str, bytes]) -> list[Finding]:
    """The audit findings in the changed files that the current files do not have."""
    rules = select_rules(ALL)
    after = audited(tree_with(held.tree, changed), held, rules)
    return brought(audited(held.tree, held, rules), after)


def leaves_of(held: Held, chosen: Decisions) -> Any:
    """A function that maps new files to the decisions that would still change something."""
    names = {decision.id for decision in chosen.decisions}

    def leaves(files: Mapping[str, bytes]) -> set[str]:
        again = as_changes(held.inputs.decisions, tree_with(held.tree, files))
        return {
            decision.id
            for decision in again.decisions
            if decision.settings and decision.id in names
        }

    return leaves


def tree_with(tree: ConfTree, files: Mapping[str, bytes]) -> ConfTree:
    """The tree with some files replaced."""
    from nginx_tune.cli.configurations import Overlaid  # noqa: PLC0415  # not for an empty plan
    from nginx_tune.conf.tree import read_tree  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.nginx.elsewhere import files_of  # noqa: PLC0415

    reader = Overlaid(files_of(LiveHost(), tree.maps), files)
    return read_tree(tree.path, reader, prefix=tree.prefix, maps=tree.maps, given=tree.given)
