"""``nginx-tune check``."""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.audit.engine import audit, reaching
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import select_rules
from nginx_tune.audit.suppression import NOTICES
from nginx_tune.change.plan.solver import Solver, configured_case
from nginx_tune.cli.audit_subject import AuditSubject, read_audit_subject, subject_notes
from nginx_tune.cli.configurations import tell_unread
from nginx_tune.cli.described import (
    GivenInputs,
    described_inputs,
    facts_for_tree,
    read_facts_and_workload,
    typed_words,
)
from nginx_tune.cli.options import (
    HOST_ALONE,
    LIVE,
    accept_missing_option,
    facts_option,
    host_options,
    kind_option,
    map_option,
    nginx_options,
    nginx_version_option,
    prefix_option,
    tell_choice,
)
from nginx_tune.conf.tree import Maps
from nginx_tune.decide.engine import case_of
from nginx_tune.documents.check import FirstLook
from nginx_tune.documents.described_host import DescribedHost
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import ExitStatus, worst
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.elsewhere import NONE_MISSING, MissingIncludes, missing_includes
from nginx_tune.nginx.subject import NoNginxError
from nginx_tune.report.check import check_screen, make_check
from nginx_tune.report.terminal.output import output_options, refuse_results
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen

_SCAN_SECONDS = 0.3
"""Seconds for counting the served files; an unfinished count is a lower bound."""


@click.command()
@click.argument("conf", required=False)
@click.option("-c", "conf_option", metavar="CONF", help="The configuration (the same as CONF).")
@facts_option("facts_path", HOST_ALONE)
@click.option(
    "--workload", "workload_path", metavar="FILE", help="Workload of the site ('learn -f json')."
)
@kind_option
@host_options
@nginx_version_option
@prefix_option
@map_option
@accept_missing_option
@nginx_options
@output_options(*SCREEN_FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    conf: str | None,
    conf_option: str | None,
    facts_path: str | None,
    workload_path: str | None,
    prefix: str | None,
    maps: Maps,
    accept_missing: tuple[str, ...],
    nginx_binary: str | None,
    kind: Kind | None,
    described: DescribedHost | None,
    nginx_version: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """A first look: the host, four switches, the worst findings, and the next command.

    Without CONF, it reads the configuration of the running nginx, else of the installed one. The
    switches are thread pools, a pool per disk, sendfile_max_chunk and reuseport. Nothing is
    changed or measured; served files are counted for a third of a second.
    """
    if conf and conf_option:
        raise click.UsageError("give CONF or -c, not both")
    inputs = read_facts_and_workload(
        facts_path, workload_path, described, kind=kind, nginx_version=nginx_version
    )
    if kind is not None:
        given = replace(inputs.workload or Workload(), kind=kind, kind_provenance="declared")
        inputs = inputs._replace(workload=given)
    looked = _look(
        conf or conf_option,
        inputs,
        prefix=prefix,
        maps=maps,
        accepted=accept_missing,
        nginx_binary=nginx_binary,
        is_for_host=facts_path == LIVE,
        options=typed_words(ctx),
    )
    for note in () if ctx.obj["quiet"] else looked.notes:
        say(note)
    tell_unread(looked.missing)
    if looked.is_live:
        tell_choice(ctx, looked.facts.nginx)
    check = looked.check
    write_screen(lambda: check_screen(check), check, formats, output)
    return looked.status


class _Looked(NamedTuple):
    check: FirstLook
    facts: Facts
    is_live: bool
    status: ExitStatus
    notes: list[str]
    missing: MissingIncludes = NONE_MISSING


def _look(
    conf: str | None,
    inputs: GivenInputs,
    *,
    prefix: str | None,
    maps: Maps,
    accepted: Sequence[str],
    nginx_binary: str | None,
    is_for_host: bool,
    options: list[str],
) -> _Looked:
    facts, given, described = inputs[:3]
    is_live = facts is None
    if described is not None and conf is None:
        return _host_alone(inputs, options)
    try:
        subject = read_audit_subject(
            LiveHost(),
            conf,
            prefix=prefix,
            facts=facts,
            wants_live_facts=is_live,
            nginx_binary=nginx_binary,
            replaced={},
            maps=maps,
            scan_seconds=_SCAN_SECONDS,
            is_for_host=is_for_host,
        )
    except NoNginxError:
        return _host_alone(inputs, options)
    refuse_results((subject.tree.path, *subject.tree.files), subject.tree.asked)
    facts = subject.facts
    notes: list[str] = []
    if described is not None:
        facts, notes = facts_for_tree(described, subject.tree)
    if facts is None:
        raise AssertionError("live facts were asked for")
    if is_live and not is_for_host and subject.tree.maps is not None:
        notes.append("the host shown is this machine (--facts FILE takes the server's)")
    missing = missing_includes(subject.tree, subject.host, accepted)
    looked = _configured(subject, inputs.completed(facts), given, missing, options, is_live=is_live)
    return looked._replace(notes=[*subject_notes(subject), *notes])


def _configured(
    subject: AuditSubject,
    facts: Facts,
    given: Workload | None,
    missing: MissingIncludes,
    options: list[str],
    *,
    is_live: bool,
) -> _Looked:
    """The first look at a configuration on its host."""
    tree = subject.tree
    case = configured_case(tree, facts, given)
    decided = case.decide()
    settled = None if tree.unparsed else Solver(case.decide, tree, facts).begin(decided)
    found = replace(
        audit(
            tree,
            facts,
            select_rules((*ALL, *NOTICES)),
            today=date.today().isoformat(),  # noqa: DTZ011  # the operator's own day
            decide=lambda: decided,
        ),
        files_missing=missing.files_missing,
        likely_maps=missing.likely_maps,
    )
    check = make_check(
        facts,
        conf_path=tree.path,
        data=case.workload.dataset,
        decided=settled.decided if settled else decided,
        held=settled.held if settled else None,
        findings=found,
        options=options,
        is_live=is_live,
    )
    return _Looked(check, facts, is_live, _status(found), [], missing)


def _host_alone(inputs: GivenInputs, options: list[str]) -> _Looked:
    """The first look at a host without a configuration: its switches for an ordinary site."""
    from nginx_tune.observe.inspect.facts import gather_facts  # noqa: PLC0415  # rarely

    given_facts, given, described = inputs[:3]
    facts = given_facts
    site, notes = Site(), list[str]()
    kind = given.kind if given else "static"
    if described is not None:
        facts, site, notes = described_inputs(described, site, kind)
    facts = inputs.completed(gather_facts(LiveHost()) if facts is None else facts)
    case = case_of(facts, given, site)
    check = make_check(
        facts,
        conf_path=None,
        data=case.workload.dataset,
        decided=case.decide(),
        held=None,
        findings=None,
        options=options,
        is_live=given_facts is None,
    )
    status = ExitStatus.UNDECIDED if described is None else ExitStatus.OK
    return _Looked(check, facts, described is None, status, notes)


def _status(found: Findings) -> ExitStatus:
    """The exit status, as for ``audit``."""
    return worst(
        ExitStatus.CONFIGURATION if found.files_unparsed else ExitStatus.OK,
        ExitStatus.UNDECIDED if found.unread else ExitStatus.OK,
        ExitStatus.FOUND if reaching(found, "error") else ExitStatus.OK,
    )
