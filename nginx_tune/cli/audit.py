"""``nginx-tune audit``."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import click
from msgspec.structs import replace

from nginx_tune.audit.context import AuditProfile
from nginx_tune.audit.engine import audit, reaching
from nginx_tune.audit.hit import WHOLE_TREE
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule, select_rules
from nginx_tune.audit.suppression import NOTICES, baseline_of, without_known
from nginx_tune.cli.audit_formats import FORMATS, audit_renderers, write_fix_diff
from nginx_tune.cli.audit_subject import SUBJECT_OPTIONS, AuditSubject, named_subject, subject_notes
from nginx_tune.cli.configurations import tell_unread
from nginx_tune.cli.described import facts_for_tree, read_facts_and_workload, typed_words
from nginx_tune.cli.inputs import read_document
from nginx_tune.cli.options import (
    Whole,
    accept_missing_option,
    facts_option,
    host_options,
    kind_option,
    map_option,
    nginx_options,
    nginx_version_option,
    option_group,
    prefix_option,
    read_version,
    tell_choice,
    weaker_sandbox_option,
)
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts, with_nginx_version
from nginx_tune.documents.findings import Baseline, Findings, NeedsFacts, Severity
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import ExitStatus, UndecidedError, worst
from nginx_tune.nginx.elsewhere import missing_includes
from nginx_tune.report.findings import finding_lines, summary_text, unparsed_lines
from nginx_tune.report.terminal.output import (
    RESULT_FILE,
    output_options,
    refuse_results,
    result_files,
    write_file,
    write_result,
)
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.text import plain

_OPTIONS = (
    click.argument("conf", required=False),
    click.option("-c", "conf_option", metavar="CONF", help="Configuration file (same as CONF)."),
    prefix_option,
    facts_option(
        "facts_source", "live for the configuration of this host's nginx, else none", or_none=True
    ),
    click.option(
        "--workload",
        "workload_path",
        metavar="FILE",
        help="Workload of the site, so that advice agrees with recommend --workload.",
    ),
    kind_option,
    host_options,
    nginx_options,
    weaker_sandbox_option,
    nginx_version_option,
    click.option(
        "--upgrade-to",
        metavar="V",
        callback=lambda _ctx, option, value: read_version(option, value),
        help="Only findings that are new with this nginx version, and defaults that it changes.",
    ),
    click.option(
        "--pid",
        type=Whole(min=1),
        metavar="PID",
        help="Process id of the nginx master whose configuration and facts to read, if several "
        "run.",
    ),
    click.option(
        "--overlay",
        "overlays",
        multiple=True,
        metavar="PATH=NEW",
        help="Audit the tree with PATH replaced by NEW; may repeat.",
    ),
    click.option(
        "--plan",
        "plan_path",
        metavar="FILE",
        help="Audit the tree with the changes of a plan ('plan -f json').",
    ),
    map_option,
    accept_missing_option,
    click.option(
        "--select",
        multiple=True,
        metavar="RULES",
        help="Only these rules: ids, groups (io), patterns.",
    ),
    click.option("--ignore", multiple=True, metavar="RULES", help="All rules but these."),
    click.option(
        "--profile",
        type=click.Choice(["default", "strict", "cis"]),
        default="default",
        show_default=True,
        help="strict: advice counts as a warning; cis: rules that contradict security guides are "
        "left out.",
    ),
    click.option("--baseline", metavar="FILE", help="Leave out the findings that FILE lists."),
    click.option(
        "--write-baseline",
        type=RESULT_FILE,
        metavar="FILE",
        help="Write the findings to FILE, for --baseline.",
    ),
    click.option(
        "--diff-base", metavar="REV", help="Only findings that are new since this git revision."
    ),
    click.option(
        "--fix-diff",
        is_flag=True,
        help="Print the safe fixes as a diff (patch -p1), tested with nginx -t in the sandbox if "
        "possible; change nothing.",
    ),
    click.option(
        "--test/--no-test",
        "runs_test",
        default=None,
        help="Also run nginx -t, in the sandbox; default: only to test --fix-diff.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "advice", "info", "never"]),
        default="error",
        show_default=True,
        help="Exit 1 if a finding is at least this severe.",
    ),
    click.option("--require-facts", is_flag=True, help="Exit 4 if a rule lacks facts."),
    click.option(
        "--today",
        metavar="YYYY-MM-DD",
        callback=lambda _ctx, _option, value: _day(value),
        help="The date by which suppressions expire; default: today.",
    ),
)


_HOST_FREE = (
    "this is not the configuration of this host's nginx, so only its text is audited (--facts "
    "FILE adds the facts of its host, --facts live those of this host)"
)


@click.command()
@option_group(_OPTIONS)
@output_options(*FORMATS, owner="fix_diff")
@click.pass_context
def command(
    ctx: click.Context, /, *, formats: tuple[str, ...], output: str | None, **options: Any
) -> ExitStatus:
    """Faults of a configuration on this host, with evidence and the safe fix.

    Without CONF, it audits the configuration of the running nginx, else of the installed one. CONF
    may also be the output of nginx -T or of crossplane parse, as a file or as - for standard input.
    Nothing is changed. nginx -t runs only for --test and --fix-diff, in the sandbox.
    """
    gc.disable()  # a tree is millions of small objects, none of them garbage
    if options["fix_diff"] and any("=" not in form for form in formats):
        raise click.UsageError(
            "--fix-diff needs standard output or -o: write the findings with -f FORMAT=FILE"
        )
    source = options["facts_source"]
    given = read_facts_and_workload(
        None if source == "none" else source,
        options["workload_path"],
        options["described"],
        kind=options["kind"],
        nginx_version=options["nginx_version"],
    )
    options["workload"] = _of_kind(given.workload, options["kind"])
    asked = _Asked(**{name: options[name] for name in _Asked._fields})
    rules = select_rules(
        (*ALL, *NOTICES), select=asked.select, ignore=asked.ignore, profile=asked.profile
    )
    subject = named_subject(given, **{key: options[key] for key in SUBJECT_OPTIONS})
    notes: list[str] = []
    if given.described is not None:
        facts, notes = facts_for_tree(given.described, subject.tree)
        subject = subject._replace(facts=facts)
    if given.completes:
        subject = subject._replace(facts=given.completed(subject.facts or Facts()))
    files = (subject.tree.path, *subject.tree.files)
    refuse_results(files, subject.tree.asked)
    run = partial(_audit, subject.facts, rules, asked)
    findings = _judged(subject, rules, asked, run, notes)
    findings = _tried(ctx, findings, subject, options, notes)
    if given.described is not None:
        findings = _to_describe(findings)
    words = typed_words(ctx, _REPEATED)
    findings = _repeatable(findings, words, is_elsewhere=subject.facts is None)
    if options["fix_diff"]:
        tests = options["runs_test"] is not False
        notes += write_fix_diff(
            subject, findings, run, output, options["nginx_binary"], tests=tests
        )
    if formats or not options["fix_diff"]:
        shown = None if options["fix_diff"] else output
        write_result(audit_renderers(ctx, findings, shown, subject.tree), formats, shown)
    notes = [*subject_notes(subject), *notes]
    if subject.facts is None and options["facts_source"] is None:
        notes.insert(0, f"{plain(as_utf8(subject.subject.path))}: {_HOST_FREE}")
    reports = [] if options["fix_diff"] else result_files(formats, output)
    _tell(ctx, findings, reports, notes, fail_on=asked.fail_on)
    return _status(findings, asked)


def _tell(
    ctx: click.Context,
    findings: Findings,
    reports: Sequence[str],
    notes: Sequence[str],
    *,
    fail_on: str,
) -> None:
    """Print the notes; if every report goes to a file, also the faults and the summary."""
    if reports:
        tell_unread(findings)
        for line in unparsed_lines(findings):
            say(line)
    if ctx.obj["quiet"]:
        return
    for note in notes:
        say(note)
    if not reports:
        return
    least = cast("Severity", "error" if fail_on == "never" else fail_on)
    for line in finding_lines(reaching(findings, least), reports[0]):
        say(line)
    say(summary_text(findings), f"see {', '.join(reports)}")


def _judged(
    subject: AuditSubject,
    rules: Sequence[Rule],
    asked: _Asked,
    run: partial[Findings],
    notes: list[str],
) -> Findings:
    """Audit the tree; returns findings that the baseline, old revision or old version lacks."""
    findings = run(subject.tree)
    if asked.upgrade_to is not None:
        findings = _upgraded(findings, subject, rules, asked)
    if asked.write_baseline is not None:
        write_file(Path(asked.write_baseline), encode(baseline_of(findings, subject.subject.path)))
    findings = _compared(findings, asked, subject, run, notes)
    missing = missing_includes(subject.tree, subject.host, asked.accept_missing)
    return replace(findings, files_missing=missing.files_missing, likely_maps=missing.likely_maps)


def _tried(
    ctx: click.Context,
    findings: Findings,
    subject: AuditSubject,
    options: dict[str, Any],
    notes: list[str],
) -> Findings:
    """The findings, with the chosen nginx and, if requested, the result of its ``nginx -t``."""
    if options["runs_test"] and any(unparsed.is_fifo for unparsed in findings.files_unparsed):
        notes.append("nginx -t was not run: an include is a FIFO, and nginx would wait for it")
    elif options["runs_test"] and findings.unread:
        notes.append("nginx -t was not run: some included files are not here")
    elif options["runs_test"]:
        test, nginx = subject.test(options["nginx_binary"])
        findings = replace(findings, nginx_test=test, nginx_choice=nginx.choice)
        tell_choice(ctx, nginx)
    elif options["facts_source"] in {None, "live"} and subject.facts is not None:
        findings = replace(findings, nginx_choice=subject.facts.nginx.choice)
        tell_choice(ctx, subject.facts.nginx)
    return findings


_REPEATED = (
    *("prefix", "maps", "workload_path", "kind", "nginx_binary", "trusts_named", "nginx_version"),
    *("upgrade_to", "overlays", "plan_path", "accept_missing", "select", "ignore", "profile"),
    *("baseline", "diff_base", "require_facts", "fail_on"),
)
"""The parameters to repeat for the same audit with facts."""


def _repeatable(findings: Findings, words: Sequence[str], *, is_elsewhere: bool) -> Findings:
    """The findings, with commands for missing facts that repeat the options of this call.

    ``is_elsewhere``: true if the facts must be read on another machine.
    """

    def repeated(one: NeedsFacts) -> NeedsFacts:
        inspect, both, audit = one.how.partition(" && ")
        if not both:
            return one
        audit = " ".join([audit, *map(shlex.quote, words)])
        way = f"on its host: {inspect}; then here: {audit}"
        return replace(one, how=way if is_elsewhere else f"{inspect} && {audit}")

    return replace(findings, needs_facts=list(map(repeated, findings.needs_facts)))


def _to_describe(findings: Findings) -> Findings:
    """The findings, with missing facts named as parts that the host's description lacks.

    A described host cannot be inspected.
    """
    wanting = [
        needs_fact for needs_fact in findings.needs_facts if WHOLE_TREE not in needs_fact.facts
    ]
    names = list(dict.fromkeys(fact for needs_facts in wanting for fact in needs_facts.facts))
    how = f"the description lacks {', '.join(names)} ([facts] of --host FILE)"
    needs = [
        replace(needs_fact, how=how) if needs_fact in wanting else needs_fact
        for needs_fact in findings.needs_facts
    ]
    return replace(findings, needs_facts=needs)


class _Asked(NamedTuple):
    """The options that select findings and judge them."""

    select: Sequence[str]
    ignore: Sequence[str]
    profile: AuditProfile
    baseline: str | None
    write_baseline: str | None
    diff_base: str | None
    fail_on: str
    require_facts: bool
    today: str
    upgrade_to: str | None
    accept_missing: Sequence[str]
    workload: Workload | None
    """The requests of the site, if known; decisions take them into account."""


def _of_kind(workload: Workload | None, kind: Kind | None) -> Workload | None:
    if kind is None:
        return workload
    return replace(workload or Workload(), kind=kind, kind_provenance="declared")


def _audit(facts: Facts | None, rules: Sequence[Rule], asked: _Asked, tree: ConfTree) -> Findings:
    return audit(
        tree,
        facts,
        rules,
        profile=asked.profile,
        today=asked.today,
        decide=None if facts is None else partial(_decide, tree, facts, asked),
    )


def _decide(tree: ConfTree, facts: Facts, asked: _Asked) -> Decisions:
    from nginx_tune.change.plan.solver import configured_case  # noqa: PLC0415  # rarely needed

    return configured_case(tree, facts, asked.workload).decide()


def _upgraded(
    before: Findings, subject: AuditSubject, rules: Sequence[Rule], asked: _Asked
) -> Findings:
    """The findings that are new with the version of ``--upgrade-to``, and its changed defaults."""
    since = None if subject.facts is None else subject.facts.nginx.nginx_version
    if since is None or asked.upgrade_to is None:
        raise UndecidedError(
            "--upgrade-to: the current nginx version is not known",
            hint="name it with --nginx-version, or its facts with --facts",
        )
    facts = with_nginx_version(subject.facts, asked.upgrade_to)
    after = audit(
        subject.tree,
        facts,
        rules,
        profile=asked.profile,
        today=asked.today,
        upgrade_from=since,
        decide=partial(_decide, subject.tree, facts, asked),
    )
    findings, _ = without_known(
        after,
        baseline_of(before, subject.subject.path),
        by="revision",
        reason=f"the same with nginx {since}",
    )
    return findings


def _compared(
    findings: Findings,
    asked: _Asked,
    subject: AuditSubject,
    run: partial[Findings],
    notes: list[str],
) -> Findings:
    """The findings that are in neither the baseline file nor the revision of ``--diff-base``."""
    if asked.baseline is not None:
        known = read_document(Baseline, asked.baseline)
        reason = f"in {asked.baseline}"
        findings, gone = without_known(findings, known, by="baseline", reason=reason)
        if gone:
            notes.append(
                f"{gone} of the findings in {plain(asked.baseline)} are gone (update it "
                "with "
                "--write-baseline)"
            )
    if asked.diff_base is not None:
        before = run(subject.tree_at(asked.diff_base))
        findings, _ = without_known(
            findings,
            baseline_of(before, subject.subject.path),
            by="revision",
            reason=f"was there in {asked.diff_base}",
        )
    return findings


def _status(findings: Findings, asked: _Asked) -> ExitStatus:
    test = findings.nginx_test
    is_refused = bool(findings.files_unparsed) or (test is not None and not test.accepted)
    fails = asked.fail_on != "never" and reaching(findings, cast("Severity", asked.fail_on))
    return worst(
        ExitStatus.CONFIGURATION if is_refused else ExitStatus.OK,
        ExitStatus.UNDECIDED if asked.require_facts and findings.needs_facts else ExitStatus.OK,
        ExitStatus.UNDECIDED if findings.unread else ExitStatus.OK,
        ExitStatus.FOUND if fails else ExitStatus.OK,
    )


def _day(value: str | None) -> str:
    if value is None:
        return date.today().isoformat()  # noqa: DTZ011  # the operator's own day
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise click.BadParameter(f"{value}: not a date of the form YYYY-MM-DD") from None
