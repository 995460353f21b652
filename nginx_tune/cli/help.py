"""Additions to click's help: examples, sections, complete summaries, shell completion."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from nginx_tune.report.folding import fold_command

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXAMPLES: dict[str, tuple[str, ...]] = {
    "check": ("nginx-tune check", "nginx-tune check nginx.conf --facts facts.json"),
    "inspect": (
        "nginx-tune inspect --dataset /srv/media -f json -o facts.json",
        "nginx-tune inspect --host web1.capture.json",
    ),
    "collector": ("nginx-tune collector | ssh HOST python3 - > host.capture.json",),
    "observe": (
        "sudo nginx-tune observe --duration 30s",
        "sudo nginx-tune observe --duration 60s -f console -f json=seen.json",
    ),
    "compare": ("nginx-tune compare before.json after.json", "nginx-tune compare 5f0a last"),
    "learn": (
        "nginx-tune learn /var/log/nginx/access.log* -f json -o workload.json",
        "nginx-tune learn access.log.gz -c /etc/nginx/nginx.conf --manifest requests.jsonl.gz",
        "nginx-tune learn edge7/access.log* --key-file learn.key --partial edge7.partial",
        "nginx-tune learn 's3://logs/*.gz' --key-file learn.key --partials s3://results/nginx",
    ),
    "recommend": (
        "nginx-tune recommend --kind media -c /etc/nginx/nginx.conf",
        "nginx-tune recommend --facts facts.json --workload workload.json",
    ),
    "size": (
        "nginx-tune size --facts facts.json --workload workload.json --objective 'p99 <= 50ms'",
        "nginx-tune size --memory 64G --disk hdd:4 --link 10G --data 1T --mean-size 1M --rate 500",
    ),
    "generate": (
        "nginx-tune generate --facts facts.json --kind media --root /srv/media -o nginx.conf",
        "nginx-tune generate --facts facts.json --kind media --root /srv/media --check nginx.conf",
    ),
    "rehearse": (
        "nginx-tune rehearse /etc/nginx/nginx.conf nginx.conf.new",
        "nginx-tune rehearse --plan plan.json --require 'reload.failed == 0'",
        "nginx-tune rehearse /etc/nginx/nginx.conf --new-nginx /opt/nginx/sbin/nginx --restart",
    ),
    "plan": (
        "nginx-tune plan /etc/nginx/nginx.conf --workload workload.json",
        "nginx-tune plan /etc/nginx/nginx.conf -f json -o plan.json",
    ),
    "audit": (
        "nginx-tune audit",
        "nginx-tune audit /etc/nginx/nginx.conf --facts facts.json --fail-on warning",
        "nginx-tune audit nginx.conf -f sarif=audit.sarif",
        "nginx-tune audit etc/nginx/nginx.conf --map /etc/nginx=etc/nginx",
    ),
    "explain": ("nginx-tune explain thread-pools", "nginx-tune explain hot.p99"),
    "probe": (
        "nginx-tune probe http://127.0.0.1/ --rate 2000 --duration 30s --allow-live",
        "nginx-tune probe http://127.0.0.1/ --objective 'p99 <= 20ms' --allow-live",
    ),
    "merge": (
        "nginx-tune merge host1.json host2.json -f json -o both.json",
        "nginx-tune merge edge7.partial edge8.partial -f json -o workload.json",
    ),
    "validate": (
        "sudo nginx-tune validate new.conf --against /etc/nginx/nginx.conf",
        "sudo nginx-tune validate new.conf --lab hdd --require 'hot.p99 <= 50ms'",
    ),
    "apply": (
        "sudo nginx-tune apply plan.json --dry-run --diff",
        "sudo nginx-tune apply plan.json",
    ),
    "confirm": ("sudo nginx-tune confirm",),
    "rollback": ("sudo nginx-tune rollback",),
    "history": ("nginx-tune history",),
    "scenario": ("nginx-tune scenario list", "sudo nginx-tune scenario run pool-overflow"),
    "scenario list": ("nginx-tune scenario list --rows",),
    "scenario show": ("nginx-tune scenario show pool-overflow > mine.toml",),
    "scenario run": (
        "sudo nginx-tune scenario run pool-overflow",
        "sudo nginx-tune scenario run mine.toml --pairs 8 --duration 10s",
    ),
    "runs": ("nginx-tune runs list", "nginx-tune runs show last"),
    "runs list": ("nginx-tune runs list",),
    "report": (
        "nginx-tune report last -o report.html",
        "nginx-tune report findings.json plan.json verdict.json -o ticket.md",
    ),
    "runs show": ("nginx-tune runs show last", "nginx-tune runs show last -f json"),
    "lab": ("nginx-tune lab list", "sudo nginx-tune lab clean"),
    "lab list": ("nginx-tune lab list",),
    "lab clean": ("sudo nginx-tune lab clean",),
    "doctor": ("nginx-tune doctor", "sudo nginx-tune doctor -f json"),
    "schema": ("nginx-tune schema verdict", "nginx-tune schema settings"),
}
"""Command lines by the words of their command."""


def add_examples(command: click.Command, words: str) -> None:
    """Add examples below the help of the command and of its subcommands."""
    lines = EXAMPLES.get(words)
    if lines and command.epilog is None:
        shown = "\n".join(f"  {line}" for line in lines)
        command.epilog = f"\b\nExamples:\n{shown}"
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            add_examples(below, f"{words} {name}")


_SECTIONS: dict[str, str] = {
    "What is changed or judged": "conf prefix overlay plan pid map accept-missing observation only "
    "except annotate against search upgrade-to",
    "The host, read or described": "facts host cpus memory disk link dataset",
    "The data and the site": "kind data mean-size workload site root cache-dir manifest speed",
    "nginx": "nginx nginx-version trust against-nginx test weaker-sandbox",
    "Findings": "select ignore profile baseline write-baseline diff-base fix-diff "
    "fail-on require-facts today",
    "The load": "connections rate arrivals max-connections think duration warmup timeout pairs "
    "starts max-time seed threads precise stripe start-at self-check dry-run lab scale",
    "Requests": "head header status range paths-from pick zipf replay document-root",
    "Protocols": "http2 http3 streams keepalive priority unix proxy-protocol proxy-source",
    "Other clients": "slow-read slow-read-of idle-connections new-connections",
    "TLS": "insecure cacert server-name no-sessionid tls-min tls-max ciphers cert key",
    "Objectives and gates": "objective max-rate require primary accept-worse accept-lost "
    "accept-inconclusive",
    "Targets and limits": "allow-target allow-live cap allow-plan-caps",
}
"""Section titles for the help of commands with many options, with the options of each section."""
_MANY_OPTIONS = 25


def section_of(option: str) -> str:
    """The section title of an option, by its long name; "Results" for an option in no section."""
    return next((title for title, names in _SECTIONS.items() if option in names.split()), "Results")


def _show_sections(command: click.Command) -> None:
    """Show the options of a command with many options in titled sections."""

    def write(ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in (*_SECTIONS, "Results")}
        for option in command.get_params(ctx):
            row = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if row is not None:
                rows[section_of(_name(option))].append(row)
        for title, found in rows.items():
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)

    command.format_options = write  # type: ignore[method-assign]  # of this command alone


def _name(option: click.Parameter) -> str:
    """The long name of an option, else its parameter's name (``-c``: conf, ``-p``: prefix)."""
    longest = max(option.opts, key=len)
    if longest.startswith("--"):
        return longest.removeprefix("--")
    return str(option.name).partition("_")[0]


class _Formatter(click.HelpFormatter):
    """A formatter of help that continues long example commands with backslashes."""

    def write_text(self, text: str) -> None:
        """Write text as click does, and fold the long lines that click leaves."""
        if text.lstrip().startswith("\b"):
            room = self.width - self.current_indent
            text = "\n".join(part for line in text.split("\n") for part in _folded(line, room))
        super().write_text(text)


class _Context(click.Context):
    formatter_class = _Formatter


def _folded(line: str, room: int) -> list[str]:
    if len(line) <= room:
        return [line]
    text = line.lstrip(" ")
    indent = " " * (len(line) - len(text))
    return [indent + part for part in fold_command(text, room - len(indent))]


def show_wholly(command: click.Command) -> None:
    """Show help in full, including examples and summaries of subcommands."""
    command.context_class = _Context
    if sum(isinstance(param, click.Option) for param in command.params) > _MANY_OPTIONS:
        _show_sections(command)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            below.short_help = " ".join((below.help or "").partition("\n\n")[0].split())
            show_wholly(below)


COMPLETION_VARIABLE = "_NGINX_TUNE_COMPLETE"
"""The variable that click sets for shell completion."""

_FILES = {"FILE", "CONF", "LOADPLAN", "BIN", "BEFORE", "AFTER", "MEASUREMENT", "ACCESS_LOG", "SPEC"}
_FOLDERS = {"DIR", "PREFIX"}


class _PathText(click.types.StringParamType):
    """A text option that the shell completes as a path; it is checked only when it is read."""

    def __init__(self, completes_to: str) -> None:
        self.completes_to = completes_to

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415  # only for a shell

        return [CompletionItem(incomplete, type=self.completes_to)]


def complete_paths(command: click.Command) -> None:
    """Let the shell complete paths for parameters whose placeholder names a file or directory."""
    for parameter in command.params:
        if not isinstance(parameter.type, click.types.StringParamType):
            continue
        words = set(re.split(r"[^A-Z_]+", parameter.metavar or ""))
        if words & _FILES:
            parameter.type = _PathText("file")
        elif words & _FOLDERS:
            parameter.type = _PathText("dir")
    if isinstance(command, click.Group):
        for below in command.commands.values():
            complete_paths(below)
