"""The formats in which ``nginx-tune audit`` writes its findings."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click
from msgspec.structs import replace

from nginx_tune.cli.audit_subject import AuditSubject
from nginx_tune.cli.configurations import link_targets
from nginx_tune.conf.directive import Source, as_utf8
from nginx_tune.conf.secrets import redact_tree
from nginx_tune.conf.tree import ConfTree, Maps
from nginx_tune.documents.base import encode
from nginx_tune.documents.findings import Finding, Findings
from nginx_tune.documents.units import plural
from nginx_tune.errors import ConfigurationError, UndecidedError
from nginx_tune.host.paths import from_here
from nginx_tune.report.terminal.output import console_width, is_screen, write_result
from nginx_tune.report.text import plain

_WRITERS = {
    "sarif": "sarif.render_sarif",
    "junit": "findings_ci.render_junit",
    "checkstyle": "findings_ci.render_checkstyle",
    "gitlab": "findings_ci.render_gitlab",
    "github": "findings_ci.render_github",
    "prometheus": "prometheus.render_findings_prometheus",
    "md": "findings.render_findings_markdown",
}
"""Formats for other programs, with their module and function in ``report``."""
_AS_ON_SCREEN = frozenset({"junit", "md"})
"""Formats for people, with the names of the configuration; the others have the repository's."""

MOST_SHOWN = 1 << 20
"""Characters of a tree above which no lines are shown, since the search for secrets would take
long."""

FORMATS = ("console", "json", *_WRITERS)


def audit_renderers(
    ctx: click.Context, findings: Findings, output: str | None, tree: ConfTree
) -> Mapping[str, Callable[[], bytes]]:
    """A renderer for each format, by name."""

    def written(name: str) -> bytes:
        module, _, function = _WRITERS[name].partition(".")
        render = getattr(import_module(f"nginx_tune.report.{module}"), function)
        shown = findings if name in _AS_ON_SCREEN else _seen_from_here(findings, tree.maps)
        made: bytes = render(shown)
        return made

    return {
        "console": lambda: _console(ctx, findings, output, tree),
        "json": lambda: encode(findings),
        **{name: (lambda name=name: written(name)) for name in _WRITERS},  # type: ignore[misc]
    }


def write_fix_diff(
    subject: AuditSubject,
    findings: Findings,
    run: Callable[[ConfTree], Findings],
    output: str | None,
    nginx_binary: str | None = None,
    *,
    tests: bool = True,
) -> list[str]:
    """Write the safe fixes as a diff; returns notes on the diff.

    If nginx accepts the tree as it is, it must also accept it with the fixes. ``tests``: true if
    nginx may be run even if the findings have no test result yet.
    """
    from nginx_tune.audit.fixes import fix_findings  # noqa: PLC0415  # only with this format
    from nginx_tune.report.plan import render_diff  # noqa: PLC0415

    def accepts(files: dict[str, bytes]) -> bool:
        return subject.test(nginx_binary, files)[0].accepted

    why_untried = _why_untried(subject, findings, nginx_binary, tests=tests)
    is_tried = not why_untried
    fixed = fix_findings(
        subject.tree,
        findings,
        lambda files: run(subject.tree_with(files)),
        accepts if is_tried else None,
    )
    real = link_targets((change.file for change in fixed.changes), subject.tree.maps)
    diff = render_diff(
        (from_here(real.get(change.file, change.file)), change.old, change.new)
        for change in fixed.changes
    )
    write_result({"diff": lambda: diff}, (), output)
    left = len(findings.findings) - fixed.cured
    if not findings.findings:
        return ["there are no findings, so there is nothing to fix"]
    if not fixed.changes:
        return [f"no finding has a safe fix; {left} need your decision"]
    root = " -d /" if any(change.file.startswith("/") for change in fixed.changes) else ""
    tried = (
        ", and nginx -t accepts it"
        if is_tried
        else f" (each by a rule proven on a real nginx; not tried with this tree: {why_untried})"
    )
    cured = plural(fixed.cured, "finding")
    return [f"{cured} fixed by the diff, {left} left: patch -p1{root} applies it{tried}"]


def _why_untried(
    subject: AuditSubject, findings: Findings, nginx_binary: str | None, *, tests: bool
) -> str:
    """The reason not to test the fixes with nginx; empty if it accepts the tree before them."""
    if not any(finding.edits for finding in findings.findings):
        return "there is nothing to try"
    test = findings.nginx_test
    if test is None:
        if not tests:
            return "--no-test"
        if why := subject.why_not_testable():
            return why
        try:
            test, nginx = subject.test(nginx_binary)
        except (ConfigurationError, UndecidedError) as error:  # no nginx, no sandbox, foreign code
            return plain(error.message)
        meant = None if subject.facts is None else subject.facts.nginx.nginx_version
        if meant not in {None, nginx.nginx_version}:
            return (
                f"the facts have nginx {plain(str(meant))}, but this host has {nginx.nginx_version}"
            )
    return "" if test.accepted else "nginx -t rejects it without the fixes too"


def _console(ctx: click.Context, findings: Findings, output: str | None, tree: ConfTree) -> bytes:
    from nginx_tune.report.findings import render_findings  # noqa: PLC0415  # not for JSON

    text = render_findings(
        findings,
        verbose=bool(ctx.obj["verbose"]),
        sources=_sources(findings, tree),
        color=is_screen(output) and ctx.color is not False,
        width=console_width(output),
    )
    return text.encode()


def _sources(findings: Findings, tree: ConfTree) -> dict[str, list[tuple[str, str]]]:
    """The lines of each file with findings, each as (original, without secrets)."""
    wanted = {finding.file for finding in findings.findings}
    sizes = sum(len(file.source.text) for file in tree.parsed)
    if not wanted or sizes > MOST_SHOWN:
        return {}
    shown = redact_tree(tree)
    found = {}
    for source, _ in tree.parsed:
        if (name := as_utf8(source.file)) in wanted:
            without = Source.decode(name, shown[source.file]).text
            pairs = zip(source.text.split("\n"), without.split("\n"), strict=False)
            found[name] = [(as_utf8(line), as_utf8(other)) for line, other in pairs]
    return found


def _seen_from_here(findings: Findings, maps: Maps | None) -> Findings:
    """The findings with file names as CI systems need them, relative to this directory.

    Files below this directory get relative names. A link gets the name of its target,
    unless the link is below this directory and the target is not.
    """
    parts = (findings.findings, findings.suppressed, findings.files_unparsed)
    names = {place.file for part in (*parts, findings.files_missing) for place in part}
    names |= {*findings.files_parsed}
    named = {name: from_here(name) for name in names}
    for name, real in link_targets(names, maps).items():
        shorter = from_here(real)
        if not os.path.isabs(shorter) or os.path.isabs(named[name]):  # noqa: PTH117
            named[name] = shorter

    def moved(one: Any) -> Any:
        return replace(one, file=named[one.file])

    def finding(one: Finding) -> Finding:
        edits = [replace(edit, file=named.get(edit.file, edit.file)) for edit in one.edits]
        return replace(one, file=named[one.file], edits=edits)

    return replace(
        findings,
        findings=list(map(finding, findings.findings)),
        suppressed=list(map(moved, findings.suppressed)),
        files_parsed=list(dict.fromkeys(named[file] for file in findings.files_parsed)),
        files_unparsed=list(map(moved, findings.files_unparsed)),
        files_missing=list(map(moved, findings.files_missing)),
    )
