"""Findings that are silenced, by a comment beside them or because a baseline lists them.

    # nginx-tune: ignore[rule-id, other-id] why this is right here until=2027-01-31

A comment at the end of a line covers the directives on that line. A comment on a line of its own
covers the next directive. A block is covered with its contents. ``ignore-file[…]`` covers the whole
file. A comment without a reason, or an expired one, silences nothing. The caller gives the date.

Faults of such comments are findings too. They have rules of their own, so that each has a page.
The engine checks the comments last: only then is it known which ones were needed.
"""

import posixpath
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive, Source
from nginx_tune.conf.parser import read_tokens
from nginx_tune.conf.tree import ConfTree, ParsedFile
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.findings import (
    Baseline,
    Finding,
    Findings,
    KnownFault,
    Suppressed,
    SuppressedBy,
)
from nginx_tune.errors import name_meant

MARK = "nginx-tune:"
_COMMENT = re.compile(r"#[ \t]*nginx-tune:[ \t]*([^\n]*)")
_IGNORE = re.compile(r"ignore(-file)?\[([a-z0-9, \t*-]+)\][ \t]*(.*)")
_UNTIL = re.compile(r"(?:^|[ \t])until=(\S+)")
_DAY = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])")


@dataclass(eq=False)
class Suppression:
    """One suppression comment."""

    comment: Directive
    """A pseudo-directive for the comment, as the place of findings about it."""
    rules: tuple[str, ...]
    """The rules that the comment names; empty if the comment cannot be parsed."""
    reason: str
    until: str | None
    spans: tuple[tuple[int, int], ...]
    """Offsets of the directives that the comment covers."""
    fault: str = ""
    """The reason why the comment cannot be parsed."""
    used: bool = False

    def is_expired(self, today: str | None) -> bool:
        """True if the comment's date has passed; false if today is not known."""
        return self.until is not None and today is not None and today > self.until

    def is_in_force(self, today: str | None) -> bool:
        """True if the comment has rules and a reason, and has not expired."""
        return bool(self.rules and self.reason) and not self.is_expired(today)

    def covers(self, rule: str, hit: Hit) -> bool:
        """True if the comment is about this hit of this rule, even if it is not in force."""
        return (
            rule in self.rules
            and hit.place.source.file == self.comment.file
            and any(start <= hit.place.start < end for start, end in self.spans)
        )


def read_suppressions(tree: ConfTree) -> list[Suppression]:
    """The suppression comments of a tree in the order of its files."""
    return [
        suppression
        for file in tree.parsed
        if MARK in file.source.text
        for suppression in _of_file(file)
    ]


def _of_file(file: ParsedFile) -> Iterator[Suppression]:
    text = file.source.text
    spans = sorted(_spans(file.block))
    for start, end in _gaps(text):
        for match in _COMMENT.finditer(text, start, end):
            yield _parse(file.source, match, spans)


def _gaps(text: str) -> Iterator[tuple[int, int]]:
    """The spans between tokens, which contain the comments."""
    at = 0
    for _, _, _, start, end in read_tokens(text):
        yield at, start
        at = end
    yield at, len(text)


def _spans(block: Block) -> Iterator[tuple[int, int, int]]:
    """(start, end of the words, end of the block) of every directive of a file."""
    for directive in block.directives:
        end = directive.end if directive.block is None else directive.close + 1
        yield directive.start, directive.end, end
        if directive.block is not None:
            yield from _spans(directive.block)


def _parse(source: Source, match: re.Match[str], spans: list[tuple[int, int, int]]) -> Suppression:
    comment = Directive("#", (match[0],), ("",), source, match.span())
    read = _IGNORE.fullmatch(match[1].strip())
    if read is None:
        return Suppression(comment, (), "", None, (), fault="not of the form ignore[RULE] REASON")
    until = _UNTIL.search(read[3])
    reason = _UNTIL.sub("", read[3]).strip()
    if until is not None and not _DAY.fullmatch(until[1]):
        fault = f'"{until[1]}" is not a date: until=YYYY-MM-DD'
        return Suppression(comment, (), reason, None, (), fault=fault)
    return Suppression(
        comment,
        tuple(word.strip() for word in read[2].split(",") if word.strip()),
        reason,
        until[1] if until else None,
        ((0, len(source.text) + 1),) if read[1] else _covered(source.text, match.start(), spans),
    )


def _covered(
    text: str, comment: int, spans: list[tuple[int, int, int]]
) -> tuple[tuple[int, int], ...]:
    line_start = text.rfind("\n", 0, comment) + 1
    if text[line_start:comment].strip():  # after directives: those that touch this line
        return tuple(
            (start, end) for start, words_end, end in spans if line_start < words_end <= comment
        )
    index = bisect_right(spans, comment, key=lambda span: span[0])
    if index == len(spans) or _closes_before(text, comment, spans[index][0]):
        return ()
    return ((spans[index][0], spans[index][2]),)


def _closes_before(text: str, start: int, end: int) -> bool:
    """True if the block ends before the next directive."""
    return any(not line.lstrip().startswith("#") and "}" in line
               for line in text[start:end].split("\n"))  # fmt: skip


def silencing(
    suppressions: Iterable[Suppression], rule: str, hit: Hit, today: str | None
) -> Suppression | None:
    """The comment that suppresses a hit; every comment that covers it counts as used."""
    found = None
    for suppression in suppressions:
        if suppression.covers(rule, hit):
            suppression.used = True
            if found is None and suppression.is_in_force(today):
                found = suppression
    return found


def _check(_: object) -> Iterator[Hit | MissingFacts]:
    return iter(())


def _conf(comment: str, pool: str = "") -> Example:
    return Example(
        f"{pool}\nevents {{}}\nhttp {{ server {{ location / {{\n"
        f"    root /w;\n    {comment}\n    aio threads=p;\n}} }} }}\n"
    )


_SOURCE = ("nginx-tune: suppression comments",)
_GOOD = _conf("# nginx-tune: ignore[io-pool-literal-unknown] a test of the start-up failure")

MALFORMED = Rule(
    id="su-malformed",
    severity="warning",
    title="a suppression comment that cannot be parsed",
    why="A comment that cannot be parsed suppresses nothing, so its finding is reported.",
    fix="Write # nginx-tune: ignore[RULE-ID] REASON, optionally with until=YYYY-MM-DD",
    sources=_SOURCE,
    proof="source-only",
    bad=_conf("# nginx-tune: ignore[io-pool-litral-unknown] on purpose"),
    good=_GOOD,
    check=_check,
)
NO_REASON = Rule(
    id="su-no-reason",
    severity="warning",
    title="a suppression comment without a reason",
    why="It suppresses nothing: later readers could not tell whether it still applies.",
    fix="Write the reason why the finding does not matter here after the bracket.",
    sources=_SOURCE,
    proof="source-only",
    bad=_conf("# nginx-tune: ignore[io-pool-literal-unknown]"),
    good=_GOOD,
    check=_check,
)
EXPIRED = Rule(
    id="su-expired",
    severity="warning",
    title="a suppression comment past its date",
    why="It suppresses nothing any more: the finding was to be reviewed by that date.",
    fix="Fix the finding and remove the comment, or set a later date and a reason.",
    sources=_SOURCE,
    proof="source-only",
    bad=_conf(
        "# nginx-tune: ignore[io-pool-literal-unknown] until the disks come until=2020-01-31"
    ),
    good=_conf(
        "# nginx-tune: ignore[io-pool-literal-unknown] until the disks come until=2999-12-31"
    ),
    check=_check,
)
UNUSED = Rule(
    id="su-unused",
    severity="info",
    title="an unused suppression comment",
    why="The rule reports nothing here any more, or the comment is not at the finding. Left in "
    "place, it would hide a new fault.",
    fix="Remove the comment, or move it before the directive of the finding.",
    sources=_SOURCE,
    proof="source-only",
    bad=_conf(
        "# nginx-tune: ignore[io-pool-literal-unknown] it was not declared",
        "thread_pool p threads=8;",
    ),
    good=_GOOD,
    check=_check,
)

NOTICES: tuple[Rule, ...] = (MALFORMED, NO_REASON, EXPIRED, UNUSED)


def notices_of(
    suppression: Suppression,
    known_rules: frozenset[str],
    answered: frozenset[str],
    today: str | None,
) -> Iterator[tuple[Rule, Hit]]:
    """The faults of a comment, found after all rules have run.

    ``answered`` lists the rules that had all the facts they need.
    """
    unknown = [rule for rule in suppression.rules if rule not in known_rules]
    if not suppression.rules:
        yield MALFORMED, _hit(suppression, suppression.fault, suppression.comment.value)
    elif unknown:
        near = name_meant(unknown[0], sorted(known_rules))
        message = f'there is no rule "{unknown[0]}"{f"; {near}" if near else ""}'
        yield MALFORMED, _hit(suppression, message, unknown[0])
    elif not suppression.reason:
        yield NO_REASON, _hit(suppression, "a suppression without a reason", "none")
    elif suppression.is_expired(today):
        yield (
            EXPIRED,
            _hit(
                suppression,
                f"this suppression expired on {suppression.until}",
                str(suppression.until),
            ),
        )
    elif not suppression.used and answered.issuperset(suppression.rules):
        yield (
            UNUSED,
            _hit(
                suppression, f"nothing to suppress for {', '.join(suppression.rules)}", "0 findings"
            ),
        )


def _hit(suppression: Suppression, message: str, value: str) -> Hit:
    return Hit(
        suppression.comment,
        message,
        [Evidence(fact="suppression", value=value, provenance="declared")],
    )


class Compared(NamedTuple):
    """The findings, known ones suppressed, and the number of known faults no longer found."""

    findings: Findings
    gone: int


def baseline_of(findings: Findings, main: str) -> Baseline:
    """A baseline with the findings as known faults, sorted; files are relative to ``main``."""
    counts = Counter(map(_key, findings.findings))
    files = {_key(finding): relative_to_main(finding.file, main) for finding in findings.findings}
    return Baseline(
        faults=[
            KnownFault(rule=key[0], file=file, fingerprint=key[1], count=counts[key])
            for key, file in sorted(files.items(), key=lambda item: (item[1], item[0]))
        ]
    )


def without_known(
    findings: Findings, known: Baseline, *, by: SuppressedBy, reason: str
) -> Compared:
    """The findings that are not in the baseline; known ones move to ``suppressed``.

    A known fault counts as often as the baseline lists it: a copy of a faulty server is a new
    finding.
    """
    left: Counter[tuple[str, str]] = Counter()
    for fault in known.faults:
        left[fault.rule, fault.fingerprint] += fault.count
    fresh: list[Finding] = []
    suppressed: list[Suppressed] = []
    for finding in findings.findings:
        key = _key(finding)
        if left[key] > 0:
            left[key] -= 1
            suppressed.append(suppressed_finding(finding, by=by, reason=reason))
        else:
            fresh.append(finding)
    return Compared(
        replace(findings, findings=fresh, suppressed=[*findings.suppressed, *suppressed]),
        sum(count for count in left.values() if count > 0),
    )


def suppressed_finding(finding: Finding, *, by: SuppressedBy, reason: str) -> Suppressed:
    """The record of a suppressed finding: the finding, what silenced it, and why."""
    return Suppressed(
        rule=finding.rule,
        file=finding.file,
        line=finding.line,
        reason=reason,
        by=by,
        fingerprint=finding.fingerprint,
        severity=finding.severity,
        message=finding.message,
    )


def relative_to_main(file: str, main: str) -> str:
    """A file's name relative to the main file's directory, the same in every copy of a tree."""
    directory = posixpath.dirname(main)
    return file.removeprefix(directory + "/") if directory else file


def _key(finding: Finding) -> tuple[str, str]:
    """Rule and fingerprint, without the number that tells identical faults apart."""
    return finding.rule, finding.fingerprint.rpartition("-")[0]
