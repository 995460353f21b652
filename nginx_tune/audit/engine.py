"""Runs the rules over a configuration; pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nginx_tune.audit.context import Context, parse_version
from nginx_tune.audit.needs import WHOLE_TREE, commands_for
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Hit, Missing, Rule
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Finding, Findings, NeedsFacts, Severity

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "advice", "info")
"""From the worst down."""


def audit(tree: ConfTree, facts: Facts | None, rules: Iterable[Rule] = ALL) -> Findings:
    """What the rules say about a configuration, the worst first.

    Without facts the rules say what the text alone shows, and list what else they need.
    """
    context = Context(tree, facts)
    findings: list[Finding] = []
    needs: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        if not _in_window(rule, context):
            continue
        missing: dict[str, None] = {}
        for outcome in rule.check(context):
            if isinstance(outcome, Missing):
                missing.update(dict.fromkeys(outcome.facts))
            elif rule.whole_tree and not tree.complete:
                missing[WHOLE_TREE] = None  # what is lacking may stand in what was not read
            else:
                findings.append(_finding(rule, outcome))
        if missing:
            needs[rule.id] = tuple(missing)
    files = {as_utf8(file): index for index, file in enumerate(tree.files)}
    findings.sort(
        key=lambda one: (
            SEVERITIES.index(one.severity), files.get(one.file, 0), one.line, one.column, one.rule
        )
    )  # fmt: skip
    return Findings(
        findings=findings,
        needs_facts=[
            NeedsFacts(rule=rule, facts=list(map(as_utf8, facts)), how=as_utf8(how))
            for rule, facts, how in commands_for(needs, tree.path)
        ],
        files_parsed=list(map(as_utf8, tree.files)),
        files_unparsed=list(tree.unparsed),
    )


def reaches(findings: Findings, threshold: Severity) -> bool:
    """Whether a finding is at least as bad as the threshold."""
    worst = SEVERITIES.index(threshold)
    return any(SEVERITIES.index(one.severity) <= worst for one in findings.findings)


def _in_window(rule: Rule, context: Context) -> bool:
    """Whether the rule holds for this nginx; an unknown version is left to the check."""
    version = context.version
    if version is None:
        return True
    since, until = parse_version(rule.since or "0"), parse_version(rule.until or "9999")
    return since is not None and until is not None and since <= version < until


def _finding(rule: Rule, hit: Hit) -> Finding:
    line, column = hit.place.source.place(hit.place.start)
    return Finding(
        rule=rule.id,
        severity=hit.severity or rule.severity,
        file=as_utf8(hit.place.file),
        line=line,
        column=column,
        message=as_utf8(hit.message),
        why=rule.why,
        evidence=[
            replace(one, fact=as_utf8(one.fact), value=as_utf8(one.value))
            if isinstance(one.value, str)
            else replace(one, fact=as_utf8(one.fact))
            for one in hit.evidence
        ],
        fix=hit.fix or rule.fix,
    )
