"""``findings`` for people: the worst first, each rule explained once, one screen where it fits."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from nginx_tune.documents.findings import Finding, Findings, MissingInclude, Severity
from nginx_tune.documents.units import plural
from nginx_tune.report.evidence import evidence_text
from nginx_tune.report.excerpt import Sources, excerpt
from nginx_tune.report.folding import fold
from nginx_tune.report.same_block import grouped, others_text
from nginx_tune.report.text import plain, weaker_walls_text

PLACES_SHOWN = 5
"""Of one rule; the rest is counted."""
_LEAST_WIDTH = 40

_COLORS: dict[Severity, str] = {"error": "31", "warning": "33", "advice": "36", "info": "2"}


def render_findings(
    findings: Findings,
    *,
    color: bool = False,
    width: int | None = None,
    verbose: bool = False,
    sources: Sources | None = None,
) -> str:
    """The findings as text; ``width`` wraps long lines, which stay whole without it.

    ``verbose`` names the rules that lack facts and gives the command for each; ``sources`` are the
    lines to show findings in.
    """
    parts = [_unparsed(findings), _missing(findings, width)]
    for _, group in groupby(findings.findings, key=lambda one: (one.severity, one.rule, one.fix)):
        parts.append(_rule(list(group), sources or {}, color=color, width=width))
    parts.append(_wrapped(summary_text(findings), width))
    parts.append(_wrapped(_line(findings.nginx_choice), width) if findings.nginx_choice else "")
    parts.append(_nginx_test(findings, width))
    parts.append(_needs(findings, width=width, verbose=verbose))
    return "\n".join(part for part in parts if part)


def _rule(findings: list[Finding], sources: Sources, *, color: bool, width: int | None) -> str:
    first = findings[0]
    lines = []
    groups = grouped(findings)
    for group in groups[:PLACES_SHOWN]:
        finding = group[0]
        label = f"{finding.severity}[{finding.rule}]"
        if color:
            label = f"\x1b[1;{_COLORS[finding.severity]}m{label}\x1b[0m"
        lines.append(f"{_line(finding.file)}:{finding.line}: {label}")
        lines += excerpt(finding, sources, width=width)
        lines.append(_field("", finding.message, width))
        lines.append(_field("evidence", "; ".join(map(evidence_text, finding.evidence)), width))
        if others := others_text(group):
            lines.append(_field("", others, width))
    if left := sum(map(len, groups[PLACES_SHOWN:])):
        lines.append(f"  and {plural(left, 'more place')} (-f json lists them)")
    lines += [_field("why", first.why, width), _field("fix", first.fix, width), ""]
    return "\n".join(lines)


def _field(name: str, text: str, width: int | None) -> str:
    label = f"  {name}: " if name else "  "
    text = _line(text)
    if width is None:
        return label + text
    return "\n".join(fold(label + text, max(width, _LEAST_WIDTH), hang=4))


def _unparsed(findings: Findings) -> str:
    return "".join(
        f"{_line(one.file)}:{one.line or 1}: not parsed: {_line(one.reason)}\n"
        for one in findings.files_unparsed
    )


def _missing(findings: Findings, width: int | None) -> str:
    taken = [one for one in findings.files_missing if one.accepted]
    lines = [_named("not here, and so not judged", findings.unread, width)]
    if findings.unread:
        lines.append(_wrapped(f"  {unread_hint(findings)}", width))
    lines.append(_named("not here, as is accepted", taken, width))
    return "".join(lines)


def _named(head: str, includes: Sequence[MissingInclude], width: int | None) -> str:
    names = list(dict.fromkeys(one.reason.removesuffix(": not here") for one in includes))
    if not names:
        return ""
    more = f" and {len(names) - PLACES_SHOWN} more" if len(names) > PLACES_SHOWN else ""
    return _wrapped(f"{head}: {', '.join(map(_line, names[:PLACES_SHOWN]))}{more}", width)


def unread_hint(findings: Findings) -> str:
    """The way to have includes read that were not, as one line."""
    likely = " ".join(f"--map {shlex.quote(one)}" for one in findings.likely_maps)
    found = f"likely: {likely}" if likely else "--map PREFIX=DIR says where they are here"
    return _line(f"{found}; --accept-missing GLOB takes what need not be here")


def summary_text(findings: Findings) -> str:
    """How many findings of which severity in how many files, in one line."""
    counts = {
        severity: sum(one.severity == severity for one in findings.findings)
        for severity in ("error", "warning", "advice", "info")
    }
    found = ", ".join(_counted(severity, count) for severity, count in counts.items() if count)
    files = len(findings.files_parsed)
    lost = len(findings.files_unparsed)
    return (
        f"{found or 'no findings'} in {files} {'file' if files == 1 else 'files'}"
        + (f", {lost} not parsed" if lost else "")
        + (f", {plural(len(findings.unread), 'include')} not read" if findings.unread else "")
        + _silenced(findings)
    )


def _nginx_test(findings: Findings, width: int | None) -> str:
    test = findings.nginx_test
    if test is None:
        return ""
    weaker = test.weaker_walls
    without = _wrapped(_line(weaker_walls_text(weaker)), width) if weaker else ""
    if test.accepted:
        return f"nginx -t accepts it\n{without}"
    words = [line for line in test.messages if "[emerg]" in line] or test.messages[-1:]
    said = "".join(_wrapped(f"nginx -t rejects it: {_line(line)}", width) for line in words)
    step = _wrapped(f"  {_line(test.next_step)}", width) if test.next_step else ""
    return said + step + without


def _silenced(findings: Findings) -> str:
    names = {"comment": "by comments", "baseline": "in the baseline", "revision": "not new"}
    counts = [
        f"{count} {name}"
        for by, name in names.items()
        if (count := sum(one.by == by for one in findings.suppressed))
    ]
    return f"; silenced: {', '.join(counts)}" if counts else ""


def _counted(severity: str, count: int) -> str:
    ending = "s" if count > 1 and severity in {"error", "warning"} else ""
    return f"{count} {severity}{ending}"


def _needs(findings: Findings, *, width: int | None, verbose: bool) -> str:
    if findings.needs_facts and not verbose:
        ways = Counter(one.how for one in findings.needs_facts)
        count = len(findings.needs_facts)
        rules = "rule was" if count == 1 else "rules were"
        how = _line(ways.most_common(1)[0][0])
        names = "nginx-tune -v audit names them"
        return _wrapped(f"{count} {rules} not checked for want of facts ({names}): {how}", width)
    lines = []
    for how in dict.fromkeys(one.how for one in findings.needs_facts):
        rules = ", ".join(one.rule for one in findings.needs_facts if one.how == how)
        lines.append(_wrapped(f"not checked for want of facts: {rules}", width))
        lines.append(_wrapped(f"  {_line(how)}", width))
    return "".join(lines)


def _wrapped(text: str, width: int | None) -> str:
    if width is None:
        return text + "\n"
    return "".join(f"{line}\n" for line in fold(text, max(width, _LEAST_WIDTH)))


def _line(text: str) -> str:
    """Text from outside as one harmless line."""
    return plain(" ".join(text.split()))
