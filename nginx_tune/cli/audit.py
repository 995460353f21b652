"""``nginx-tune audit``."""

from __future__ import annotations

import gc
import shutil
import sys
from typing import cast

import click

from nginx_tune.audit.engine import audit, reaches
from nginx_tune.cli.inputs import read_document
from nginx_tune.cli.output import output_options, write_result
from nginx_tune.conf.directive import as_utf8
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings, Severity
from nginx_tune.errors import ExitStatus, worst
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.subject import Subject, find_subject, place_of, read_subject
from nginx_tune.report.text import plain

_HOST_FREE = (
    "this is not the configuration of this host's nginx, so it is audited by its text alone "
    "(--facts FILE gives the facts of its host, --facts live those of this one)"
)


@click.command()
@click.argument("conf", required=False)
@click.option("-c", "conf_option", metavar="CONF", help="Configuration file (the same as CONF).")
@click.option("-p", "prefix", metavar="PREFIX", help="Prefix path, as nginx's own -p.")
@click.option(
    "--facts",
    "facts_source",
    metavar="FILE|live|none",
    help="Facts of the host it is for; default: live for the configuration of this host's nginx, "
    "otherwise none.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "advice", "info", "never"]),
    default="error",
    show_default=True,
    help="Exit 1 when a finding is at least as bad.",
)
@click.option("--require-facts", is_flag=True, help="Exit 4 when a rule lacks facts.")
@click.option("--nginx", "nginx_binary", metavar="BIN", help="The nginx it is for.")
@output_options("console", "json")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    conf: str | None,
    conf_option: str | None,
    prefix: str | None,
    facts_source: str | None,
    fail_on: str,
    require_facts: bool,
    nginx_binary: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """What is wrong with a configuration on this host, with evidence and the safe fix.

    Without CONF: the running nginx's, else the installed one's. Only reads; never runs nginx -t.
    """
    if conf is not None and conf_option is not None:
        raise click.UsageError("give CONF or -c, not both")
    gc.disable()  # a tree is millions of small objects, none of them garbage
    host = LiveHost()
    named = conf or conf_option
    facts: Facts | None = None
    if facts_source not in {None, "live", "none"}:
        facts = read_document(Facts, str(facts_source))
    if named is not None and facts_source is not None and facts_source != "live":
        subject = Subject(place_of(named, prefix), prefix or _prefix(facts), is_hosts=False)
    else:
        subject = find_subject(host, named, prefix=prefix, nginx_binary=nginx_binary)
    tree = read_subject(host, subject)
    if facts_source == "live" or (facts_source is None and subject.is_hosts):
        from nginx_tune.measure.live_facts import gather_live_facts  # noqa: PLC0415  # slow to load

        facts = gather_live_facts(host, tree, nginx_binary=nginx_binary)
    findings = audit(tree, facts)
    write_result(
        {"console": lambda: _console(ctx, findings, output), "json": lambda: encode(findings)},
        formats,
        output,
    )
    if facts_source is None and facts is None and not ctx.obj["quiet"]:
        click.echo(f"nginx-tune: {plain(as_utf8(str(named)))}: {_HOST_FREE}", err=True)
    return worst(
        ExitStatus.CONFIGURATION if findings.files_unparsed else ExitStatus.OK,
        ExitStatus.UNDECIDED if require_facts and findings.needs_facts else ExitStatus.OK,
        ExitStatus.FOUND if _fails(findings, fail_on) else ExitStatus.OK,
    )


def _fails(findings: Findings, fail_on: str) -> bool:
    return fail_on != "never" and reaches(findings, cast("Severity", fail_on))


def _prefix(facts: Facts | None) -> str | None:
    if facts is None:
        return None
    running = facts.nginx.running
    return (running.prefix if running else None) or facts.nginx.prefix


def _console(ctx: click.Context, findings: Findings, output: str | None) -> bytes:
    from nginx_tune.report.findings import render_findings  # noqa: PLC0415  # not for JSON

    is_screen = output is None and sys.stdout.isatty()
    text = render_findings(
        findings,
        color=is_screen and ctx.color is not False,
        width=shutil.get_terminal_size().columns if is_screen else None,
    )
    return text.encode()
