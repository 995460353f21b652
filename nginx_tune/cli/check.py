"""``nginx-tune check``."""

from __future__ import annotations

from typing import NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.audit.engine import audit, reaches
from nginx_tune.change.plan.settling import Settling, deciding
from nginx_tune.cli.audit_subject import AuditSubject, read_audit_subject
from nginx_tune.cli.inputs import read_document, read_workload
from nginx_tune.cli.options import nginx_options, prefix_option, tell_choice
from nginx_tune.conf.served import served_paths
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.engine import decide
from nginx_tune.decide.situation import ALL_AS_DECIDED
from nginx_tune.decide.workload.profiles import workload_for
from nginx_tune.documents.base import encode
from nginx_tune.documents.check import FirstLook
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import ServedData, Workload
from nginx_tune.errors import ExitStatus, worst
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.subject import NoNginxError, accept_missing
from nginx_tune.report.check import bounded_data, check_screen, make_check
from nginx_tune.report.terminal.output import output_options, refuse_results, write_result
from nginx_tune.report.terminal.writer import screen_bytes


@click.command()
@click.argument("conf", required=False)
@click.option("-c", "conf_option", metavar="CONF", help="The configuration (the same as CONF).")
@click.option(
    "--facts",
    "facts_path",
    metavar="FILE|-",
    help="Facts of the host, from inspect -f json; default: this host's, read now.",
)
@click.option(
    "--workload", "workload_path", metavar="FILE", help="What is served and asked for ('learn')."
)
@prefix_option
@nginx_options
@output_options("console", "json")
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
    nginx_binary: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """The first look: the host, four switches, the worst findings, and what to type next.

    Without CONF: the running nginx's configuration, else the installed one's. Reads only, counts
    no served file and measures nothing.
    """
    if conf and conf_option:
        raise click.UsageError("give CONF or -c, not both")
    given = read_workload(workload_path) if workload_path else None
    facts = None if facts_path is None else read_document(Facts, facts_path)
    named = (("--facts", facts_path), ("--workload", workload_path))
    options = [word for option, value in named if value for word in (option, value)]
    looked = _look(
        conf or conf_option,
        facts,
        given,
        prefix=prefix,
        nginx_binary=nginx_binary,
        options=options,
    )
    if looked.is_live:
        tell_choice(ctx, looked.facts.nginx)
    check = looked.check
    write_result(
        {
            "console": lambda: screen_bytes(check_screen(check), formats, output),
            "json": lambda: encode(check),
        },
        formats,
        output,
    )
    return looked.status


class _Looked(NamedTuple):
    check: FirstLook
    facts: Facts
    is_live: bool
    status: ExitStatus


def _look(
    conf: str | None,
    facts: Facts | None,
    given: Workload | None,
    *,
    prefix: str | None,
    nginx_binary: str | None,
    options: list[str],
) -> _Looked:
    is_live = facts is None
    try:
        subject = read_audit_subject(
            LiveHost(),
            conf,
            prefix=prefix,
            facts=facts,
            wants_live_facts=is_live,
            nginx_binary=nginx_binary,
            replaced={},
            scans=False,
        )
    except NoNginxError:
        return _host_alone(facts, given, options)
    refuse_results((subject.tree.path, *subject.tree.files), subject.tree.asked)
    if subject.facts is None:
        raise AssertionError("live facts were asked for")
    options = [*options, "-p", prefix] if prefix else options
    return _configured(subject, subject.facts, given, options, is_live=is_live)


def _configured(
    subject: AuditSubject,
    facts: Facts,
    given: Workload | None,
    options: list[str],
    *,
    is_live: bool,
) -> _Looked:
    """The first look at a configuration on its host."""
    tree = subject.tree
    roots = [one.root for one in served_paths(tree) if one.via != "cache"]
    # A directory that is not there tells nothing of the data that is to be served.
    there = [one for one in facts.datasets if one.files or one.bytes]
    known = replace(facts, datasets=there)
    given = _with_bound(given, bounded_data(known, roots))
    make = deciding(tree, known, given)
    decided = make(ALL_AS_DECIDED)
    held = None if tree.unparsed else Settling(make, tree, known).begin(decided).held
    found = accept_missing(audit(tree, facts, decide=lambda: decided), ())
    check = make_check(
        facts,
        conf_path=tree.path,
        data=_data(known, given),
        decided=decided,
        held=held,
        findings=found,
        options=options,
    )
    return _Looked(check, facts, is_live, _status(found))


def _host_alone(facts: Facts | None, given: Workload | None, options: list[str]) -> _Looked:
    """The first look at a host that has no nginx: its switches for an ordinary site."""
    from nginx_tune.observe.inspect.facts import gather_facts  # noqa: PLC0415  # seldom

    facts = gather_facts(LiveHost()) if facts is None else facts
    site = complete_site(Site(), facts, "static")
    workload = workload_for(None, facts, given, site=site)
    decided = decide(facts, workload, site=site)
    check = make_check(
        facts,
        conf_path=None,
        data=workload.dataset,
        decided=decided,
        held=None,
        findings=None,
        options=options,
    )
    return _Looked(check, facts, is_live=True, status=ExitStatus.UNDECIDED)


def _with_bound(given: Workload | None, bound: ServedData | None) -> Workload | None:
    """The workload with the bound on its data where nobody counted it."""
    if bound is None or (given is not None and given.dataset.bytes is not None):
        return given
    return replace(given or Workload(), dataset=bound)


def _data(facts: Facts, given: Workload | None) -> ServedData:
    return workload_for(None, facts, given).dataset


def _status(found: Findings) -> ExitStatus:
    """As that of ``audit``."""
    return worst(
        ExitStatus.CONFIGURATION if found.files_unparsed else ExitStatus.OK,
        ExitStatus.UNDECIDED if found.unread else ExitStatus.OK,
        ExitStatus.FOUND if reaches(found, "error") else ExitStatus.OK,
    )
