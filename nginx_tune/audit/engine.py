"""The audit: runs every rule on a configuration and reports the results as findings.

A finding that relies on an absent line is withheld if an unread file may contain that line. That
is so if the file's include line is in a block around the finding's place, or in the block that the
finding is about (``Absence``). A rule that lacks facts is listed with the command that collects
them (``commands_for``).
"""

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.audit.context import AuditProfile, Context, DecisionsOnce, parse_version
from nginx_tune.audit.hit import DEFAULT_MARK, WHOLE_TREE, Hit, MissingFacts
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule, severity_in
from nginx_tune.audit.storage import is_inside, outermost
from nginx_tune.audit.suppression import (
    NOTICES,
    notices_of,
    read_suppressions,
    relative_to_main,
    silencing,
    suppressed_finding,
)
from nginx_tune.audit.upgrade import CHANGED, changes
from nginx_tune.conf.directive import Directive, as_utf8
from nginx_tune.conf.edits import Edit, EditSet
from nginx_tune.conf.scopes import Absence, names_of_unread, not_read
from nginx_tune.conf.secrets import TreeSecrets
from nginx_tune.conf.tree import COMMAND_LINE, ConfTree
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import (
    FileEdit,
    Finding,
    Findings,
    NeedsFacts,
    Severity,
    Suppressed,
)

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "advice", "info")
"""Severities, worst first."""

_KNOWN_RULES = frozenset(rule.id for rule in (*ALL, *NOTICES, CHANGED))


class _Outcome(NamedTuple):
    """The results of the rules, before they become findings."""

    hits: list[tuple[Rule, Hit]]
    needs: dict[str, tuple[str, ...]]
    unread: dict[str, dict[Directive, None]]
    """The include lines of unread files that may contain the line that a rule looks for, by
    rule."""
    answered: frozenset[str]
    """Rules that ran with all the facts that they need."""


def audit(
    tree: ConfTree,
    facts: Facts | None,
    rules: Iterable[Rule] = ALL,
    *,
    profile: AuditProfile = "default",
    today: str | None = None,
    upgrade_from: str | None = None,
    decide: DecisionsOnce | None = None,
) -> Findings:
    """The findings of the rules in a configuration, worst first.

    Without facts, rules report what the text alone shows and list the facts that they need.
    ``upgrade_from`` is the version before an upgrade to the facts' version: defaults that change
    are then reported too. ``today`` (YYYY-MM-DD) decides which suppressions have expired; without
    it, none has. ``decide`` computes the decisions for the same host and site, which can withhold
    advice.
    """
    context = Context(tree, facts, profile, decide)
    chosen = tuple(rules)
    outcome = _run(chosen if tree.files else (), context)
    hits: list[tuple[Rule, Hit]] = []
    silenced: list[tuple[Rule, Hit, str]] = []
    suppressions = read_suppressions(tree)
    for rule, hit in outcome.hits:
        by = silencing(suppressions, rule.id, hit, today)
        if by is None:
            hits.append((rule, hit))
        else:
            silenced.append((rule, hit, by.reason))
    if upgrade_from is not None and not tree.is_whole:
        outcome.needs[CHANGED.id] = (WHOLE_TREE,)
    hits += _changed_defaults(context, upgrade_from)
    for suppression in suppressions:
        for notice, hit in notices_of(suppression, _KNOWN_RULES, outcome.answered, today):
            if notice in chosen:
                hits.append((notice, hit))
    findings, suppressed = _as_findings(hits, silenced, context)
    return Findings(
        findings=findings,
        needs_facts=[
            _needs_facts(rule, facts, how, outcome.unread.get(rule, ()))
            for rule, facts, how in commands_for(outcome.needs, tree.path, facts)
        ],
        suppressed=suppressed,
        files_parsed=list(map(as_utf8, tree.files)),
        files_unparsed=list(tree.unparsed),
        files_missing=list(tree.missing),
        profile=profile,
    )


def reaching(findings: Findings, threshold: Severity) -> list[Finding]:
    """The findings that are at least as severe as the threshold."""
    severe = SEVERITIES[: SEVERITIES.index(threshold) + 1]
    return [finding for finding in findings.findings if finding.severity in severe]


def _run(rules: Iterable[Rule], context: Context) -> _Outcome:
    hits: list[tuple[Rule, Hit]] = []
    needs: dict[str, tuple[str, ...]] = {}
    unread: dict[str, dict[Directive, None]] = {}
    answered: set[str] = set()
    absence = Absence(context.tree)
    for rule in rules:
        if not _in_window(rule, context):
            continue
        missing: dict[str, None] = {}
        for outcome in rule.check(context):
            if isinstance(outcome, MissingFacts):
                missing.update(dict.fromkeys(outcome.facts))
            elif rule.whole_tree and not context.tree.is_whole:
                missing[WHOLE_TREE] = None
            elif (
                _relies_on_absence(rule, outcome)
                and (lost := absence.doubts(outcome.place, rule.within)) is not None
            ):
                missing[WHOLE_TREE] = None  # an unread file may contain the line
                unread.setdefault(rule.id, {}).update(dict.fromkeys(lost))
            elif (judged := context.decided.judged(rule.id, outcome)) is not None:
                hits.append((rule, judged))
        if missing:
            needs[rule.id] = tuple(missing)
            if WHOLE_TREE in missing:
                unread.setdefault(rule.id, dict.fromkeys(context.tree.lost))
        else:
            answered.add(rule.id)
    return _Outcome(hits, needs, unread, frozenset(answered))


def _changed_defaults(context: Context, upgrade_from: str | None) -> Iterator[tuple[Rule, Hit]]:
    """The defaults that an upgrade changes for this configuration."""
    since = None if upgrade_from is None else parse_version(upgrade_from)
    if since is not None and context.version is not None and context.tree.is_whole:
        yield from ((CHANGED, hit) for hit in changes(context, since, context.version))


def _relies_on_absence(rule: Rule, hit: Hit) -> bool:
    """True for a finding that a line in an unread file could contradict."""
    return rule.by_absence or any(
        isinstance(evidence.value, str) and evidence.value.endswith(DEFAULT_MARK)
        for evidence in hit.evidence
    )


def _in_window(rule: Rule, context: Context) -> bool:
    """True if the rule applies to this nginx; a check handles an unknown version itself."""
    version = context.version
    if version is None:
        return True
    since, until = parse_version(rule.since or "0"), parse_version(rule.until or "9999")
    return since is not None and until is not None and since <= version < until


def _as_findings(
    hits: list[tuple[Rule, Hit]], silenced: list[tuple[Rule, Hit, str]], context: Context
) -> tuple[list[Finding], list[Suppressed]]:
    """Findings, worst first, and suppressed ones, each with its fingerprint."""
    files = {as_utf8(file): index for index, file in enumerate(context.tree.files)}

    def order(rule: Rule, finding: Finding) -> tuple[int, int, int, int, str]:
        return (
            SEVERITIES.index(finding.severity), files.get(finding.file, 0), finding.line,
            finding.column, rule.id,
        )  # fmt: skip

    seen: Counter[str] = Counter()

    secrets = TreeSecrets(context.tree, own_words=_own_words())

    def numbered(finding: Finding) -> Finding:
        seen[finding.fingerprint] += 1
        return replace(finding, fingerprint=f"{finding.fingerprint}-{seen[finding.fingerprint]}")

    found = [(rule, hit, _finding(rule, hit, context, secrets)) for rule, hit in hits]
    found.sort(key=lambda item: order(item[0], item[2]))
    silent_findings = [
        (_finding(rule, hit, context, secrets), rule, secrets.hide(reason))
        for rule, hit, reason in silenced
    ]
    silent_findings.sort(key=lambda item: order(item[1], item[0]))
    taken = EditSet()
    return (
        [
            numbered(replace(finding, edits=_edits(rule, hit, context, taken, secrets)))
            for rule, hit, finding in found
        ],
        [
            suppressed_finding(numbered(finding), by="comment", reason=as_utf8(reason))
            for finding, _, reason in silent_findings
        ],
    )


@cache
def _own_words() -> frozenset[str]:
    """The lowercase words of the rules' texts, from which messages are built."""
    texts = (text for rule in ALL for text in (rule.title, rule.why, rule.fix, rule.about))
    return frozenset(word for text in texts for word in _OWN_WORD.findall(text.lower()))


_OWN_WORD = re.compile(r"\b[a-z]{4,}\b")


def _edits(
    rule: Rule, hit: Hit, context: Context, taken: EditSet, secrets: TreeSecrets
) -> list[FileEdit]:
    """The edits of a finding: all of them, or none if they overlap those of an earlier one.

    If an edit would repeat a secret, the finding has no edits: findings are shown to people who
    may not read the file.
    """
    wanted = [] if rule.fixes is None else list(rule.fixes(context, hit))
    try:
        edits = list(map(_file_edit, wanted))
    except UnicodeEncodeError:  # the text is not valid UTF-8
        return []
    if any(edit.source.file == COMMAND_LINE for edit in wanted):
        return []  # not in a file
    if any(secrets.hide(edit.text) != edit.text for edit in edits):
        return []
    return edits if taken.add(wanted) else []


def _file_edit(edit: Edit) -> FileEdit:
    edit.text.encode()
    return FileEdit(
        file=as_utf8(edit.source.file),
        start_byte=edit.source.byte_offset(edit.start),
        end_byte=edit.source.byte_offset(edit.end),
        text=edit.text,
    )


def _finding(rule: Rule, hit: Hit, context: Context, secrets: TreeSecrets) -> Finding:
    line, column = hit.place.source.place(hit.place.start)
    end_line, end_column = hit.place.source.place(hit.place.end)
    return Finding(
        rule=rule.id,
        severity=severity_in(context.profile, hit.severity or rule.severity),
        file=as_utf8(hit.place.file),
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
        block_line=_block_line(hit.place),
        message=secrets.hide(as_utf8(hit.message)),
        why=hit.why or rule.why,
        evidence=list(_evidence(hit, context.facts, secrets)),
        fix=secrets.hide(as_utf8(hit.fix)) if hit.fix else rule.fix,
        fingerprint=_fingerprint(rule, hit, context.tree.path),
    )


def _block_line(place: Directive) -> int:
    outer = place.parent
    if outer is None or outer.source.file != place.source.file:
        return 0
    return outer.source.place(outer.start)[0]


def _evidence(hit: Hit, facts: Facts, secrets: TreeSecrets) -> Iterator[Evidence]:
    is_read = facts.nginx.version is not None and not facts.declared
    for evidence in hit.evidence:
        if evidence.fact == "nginx.nginx_version" and not is_read:
            yield replace(evidence, provenance="declared")
            continue
        fact = as_utf8(evidence.fact)
        if isinstance(evidence.value, str):
            yield replace(evidence, fact=fact, value=secrets.hide(as_utf8(evidence.value)))
        else:
            yield replace(evidence, fact=fact)


def _fingerprint(rule: Rule, hit: Hit, main: str) -> str:
    """A hash that is stable for the same words in the same file, wherever the line moves.

    Secrets are redacted before hashing: a short one could be guessed from its hash.
    """
    parts = (rule.id, relative_to_main(hit.place.file, main), str(hit.place))
    return sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:24]


_NO_LOG_FILE = (
    "send the main context's error_log to a file, or search its collector for 'queue overflow'"
)

_NOT_WHOLE = "audit the main file (nginx.conf) with all included files; nginx -t must pass"

MOST_DATASETS = 8

_PATH = re.compile(r"(datasets|storage\.paths)\[(.+)\]", re.DOTALL)


def _needs_facts(
    rule: str, facts: Sequence[str], how: str, unread: Iterable[Directive]
) -> NeedsFacts:
    """A rule without a result, and the unread files that would give one."""
    names = names_of_unread(unread)
    if names:
        how = f"not judged because {not_read(names)}"
    return NeedsFacts(rule=rule, facts=[*map(as_utf8, facts)], how=as_utf8(how), unread=names)


def commands_for(
    needs: Mapping[str, tuple[str, ...]], conf: str, known: Facts | None
) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Each rule with its facts and a command line that collects them.

    One ``inspect`` command collects the facts of all rules. It also repeats what was measured or
    counted for ``known``, since it may replace that file. Paths are quoted for a shell.
    """
    inspected = {fact for facts in needs.values() for fact in facts if _is_inspected(fact)}
    inspect = _inspect(inspected, conf, known)
    for rule, facts in needs.items():
        if WHOLE_TREE in facts:
            yield rule, facts, _NOT_WHOLE
        elif all(map(_is_inspected, facts)):
            yield rule, facts, inspect
        elif "error_logs" in facts:
            yield rule, facts, _NO_LOG_FILE
        else:
            yield (
                rule,
                facts,
                (
                    f"nginx-tune audit {shlex.quote(conf)} --facts live "
                    "(on its host, as a user who may read the error log)"
                ),
            )


def _is_inspected(fact: str) -> bool:
    return fact != WHOLE_TREE and not fact.startswith("error_logs")


def _few(paths: set[str]) -> list[str]:
    """The paths, or their parent directories if there are too many for one command."""
    found = outermost(paths)
    while len(found) > MOST_DATASETS:
        wider = outermost({posixpath.dirname(path) for path in found})
        if "/" in wider or "" in wider:
            return found
        found = wider
    return found


def _inspect(facts: Iterable[str], conf: str, known: Facts | None) -> str:
    asked = {match.groups() for fact in facts if (match := _PATH.match(fact))}
    data = {path for what, path in asked if what == "datasets"}
    places = {path for what, path in asked if what != "datasets"}
    disks = ""
    if known is not None:
        data |= {dataset.path for dataset in known.datasets}
        disks = " --disks" if any(disk.curve for disk in known.storage.disks) else ""
    scans = _few(data)
    options = "".join(f" --dataset {shlex.quote(path)}" for path in scans)
    # A scan finds the disk too. Logs and temporary files are no data that is served.
    places = {path for path in places if not any(is_inside(path, scan) for scan in scans)}
    options += "".join(f" --path {shlex.quote(path)}" for path in _few(places))
    return (
        f"nginx-tune inspect{options}{disks} -f json -o facts.json && "
        f"nginx-tune audit {shlex.quote(conf)} --facts facts.json"
    )
