"""The command line: a lazy group, so that ``--help`` imports no command."""

import errno
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from nginx_tune import __version__
from nginx_tune.cli.help import COMPLETION_VARIABLE, add_examples, complete_paths, show_wholly
from nginx_tune.cli.settings import (
    PREFIX,
    SITE_TABLE,
    check_variables,
    command_defaults,
    confined,
    name_variables,
    read_settings,
    refuse_empty,
    setting_names,
    tell_found,
)
from nginx_tune.cli.signals import ended_at_once
from nginx_tune.documents.units import listed
from nginx_tune.errors import ExitStatus, NginxTuneError, UsageError, name_meant

COMMANDS: dict[str, str] = {
    "check": "One screen: the host, four switches, the worst findings, the next command.",
    "inspect": "Facts of this host: CPUs, memory, disks, links, limits, nginx.",
    "collector": "A one-file program that records a host where nothing may be installed.",
    "observe": "Causes of delay in the running nginx, under its own traffic.",
    "compare": "Compare two stored runs, two observations or two measurements.",
    "learn": "The workload in access logs.",
    "recommend": "The settings that help on this host, and why.",
    "size": "The request rate that a host can serve, or the memory and disks for a rate.",
    "generate": "An nginx.conf with a reason for every tuned line.",
    "plan": "Changes to a configuration, as a diff of its own files.",
    "audit": "Faults of a configuration on this host, with the fix.",
    "explain": "The page of a rule, a decision, a scenario, a metric or a cause.",
    "probe": "Measure a load, with exact latency quantiles and checks of itself.",
    "merge": "Add the measurements of several load hosts.",
    "validate": "Compare two configurations on a scratch nginx, with gates.",
    "rehearse": "Make a change in the sandbox: a reload under load, and its losses.",
    "apply": "Change the files of the running nginx, and put them back if it does not serve.",
    "confirm": "Keep a change that waits for confirmation.",
    "rollback": "Put back the files that a change replaced, and reload nginx.",
    "history": "The changes that apply made on this host, and their outcomes.",
    "scenario": "Built-in experiments that reproduce published claims on this host.",
    "runs": "Stored runs of validate, rehearse and scenario run: list, show, judge again.",
    "report": "A page of results to send to others: the answer, plots and evidence.",
    "lab": "Files that labs keep or left behind on this machine: list, remove.",
    "doctor": "The measurements that this host allows, and how to allow the rest.",
    "schema": "JSON Schema of a document.",
}
"""Every command with its one-line help; its module has the same name."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Look": ("check", "inspect", "collector", "observe", "learn", "doctor"),
    "Decide": ("recommend", "size", "generate", "audit", "explain"),
    "Prove": ("probe", "merge", "validate", "scenario", "compare"),
    "Change": ("plan", "rehearse", "apply", "confirm", "rollback"),
    "Keep": ("history", "runs", "report", "lab", "schema"),
}
"""The commands by purpose, for ``--help``."""

_MOST_OWNERS = 3
"""Maximum number of commands that a message lists as having an option."""


_FLAG = re.compile(r"-v+|-q|--verbose|--quiet|--(?:no-)?color")
"""Global options without a value."""


class _ReaderGoneError(Exception):
    """A broken pipe; click would turn a BrokenPipeError into exit status 1."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Make the context as click does; ``--help`` and ``--version`` are printed here."""
        try:
            return super().make_context(*args, **options)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; without a command, the command is ``check``."""
        if not ctx.resilient_parsing and all(map(_FLAG.fullmatch, args)):
            args = [*args, "check"]
        return super().parse_args(ctx, self._flags_first(ctx, args))

    def _flags_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with all global flags moved to the front, even from after a command.

        The value of an option stays in place, and so does everything after ``--``.
        """
        flags, rest = list[str](), list[str]()
        command: click.Command | None = self
        words = iter(args)
        for word in words:
            if word == "--":
                return [*flags, *rest, word, *words]
            if _FLAG.fullmatch(word):
                flags.append(word)
                continue
            rest.append(word)
            if not any(map(_FLAG.fullmatch, args[len(flags) + len(rest) :])):
                continue  # usually no flag is left, so no command is imported
            if _takes_next(command, word):
                rest += [value for value in (next(words, None),) if value is not None]
            elif isinstance(command, click.Group) and not word.startswith("-"):
                command = command.get_command(ctx, word)
        return [*flags, *rest]

    def invoke(self, ctx: click.Context) -> object:
        """Invoke the command as click does."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The command names, in the order of the workflow."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command; returns the command."""
        if cmd_name not in COMMANDS:
            return None
        with ended_at_once():
            command: click.Command = import_module(f"nginx_tune.cli.{cmd_name}").command
        name_variables(command, f"NGINX_TUNE_{cmd_name}")
        refuse_empty(command)
        tell_found(command)
        add_examples(command, cmd_name)
        show_wholly(command)
        if COMPLETION_VARIABLE in os.environ:
            complete_paths(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands by purpose, without importing any."""
        widest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), COMMANDS[name]) for name in names])


def _takes_next(command: click.Command | None, word: str) -> bool:
    """True if a word is an option of the command, and the next word is its value."""
    options = [
        param for param in (command.params if command else ()) if isinstance(param, click.Option)
    ]
    option = next((option for option in options if word in option.opts), None)
    return option is not None and not option.is_flag and not option.count


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "NGINX_TUNE"},
    epilog="Exit codes: 0 fine, 1 findings or a gate failed, 2 wrong usage, 3 a configuration "
    "could not be parsed, 4 something needed could not be measured or decided, 5 a change "
    "could neither be kept nor taken back, 130 interrupted.",
)
@click.version_option(__version__, prog_name="nginx-tune")
@click.option("-v", "--verbose", count=True, help="Show all notes, and more messages on stderr.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr.")
@click.option(
    "--color/--no-color",
    "color",
    default=None,
    help="Colors on a terminal, even with NO_COLOR; or none, as with NO_COLOR.",
)
@click.option(
    "--config",
    "config_path",
    envvar="NGINX_TUNE_CONFIG",
    type=click.Path(path_type=Path),
    help="Settings file for any option; default: nginx-tune.toml here or in a parent directory, "
    "for preferences.",
)
@click.pass_context
def cli(
    ctx: click.Context, *, verbose: int, quiet: bool, color: bool | None, config_path: Path | None
) -> None:
    """Find the I/O and concurrency settings of nginx that help on this host, and prove it."""
    is_plain = any(map(os.environ.get, ("NO_COLOR", f"{PREFIX}NO_COLOR")))
    is_dumb = os.environ.get("TERM") == "dumb"
    ctx.color = False if is_dumb or (color is None and is_plain) else color
    from nginx_tune.host.paths import settle_places  # noqa: PLC0415  # not for --help

    name = ctx.invoked_subcommand or ""
    from nginx_tune.report.terminal.saying import say  # noqa: PLC0415

    notes = settle_places()
    if any(variable.startswith(PREFIX) for variable in os.environ):
        called = cli.get_command(ctx, name)
        notes += check_variables(os.environ, COMMANDS, name, called)
    settings = read_settings(config_path)
    if settings.file is not None:
        from nginx_tune.report.terminal.output import SETTINGS_FILE  # noqa: PLC0415  # not for --help

        ctx.meta[SETTINGS_FILE] = [str(settings.file)]
    for told in [*notes, *filter(None, [settings.passed_over])]:
        if not quiet:
            say(told)
    tables = settings.tables
    for table in tables:
        if table not in COMMANDS and table != SITE_TABLE:
            known = [*COMMANDS, SITE_TABLE]
            raise UsageError(
                f"settings file: no table or setting '{table}'",
                hint=name_meant(table, known) or f"tables are {', '.join(known)}",
            )
    command = cli.get_command(ctx, name) if name in tables else None
    found = settings.file if settings.is_found and tables else None
    if found is not None:
        own = {*setting_names(command, name)} if command is not None else ()
        tables = confined(tables, found, name, own)
    if command is not None:
        ctx.default_map = {name: command_defaults(command, tables[name], name)}
    ctx.obj = {
        "verbose": verbose,
        "quiet": quiet,
        "settings": tables,
        "found": found,
        "arguments": ctx.obj or [],
    }


_HELP_FOR_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""The error of a call without arguments, which exists since click 8.2."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status. Prints no traceback unless ``-v`` is given."""
    _hold_standard_descriptors()
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        result = cli.main(
            args=arguments, prog_name="nginx-tune", standalone_mode=False, obj=[*arguments]
        )
        if sys.stdout is not None:
            sys.stdout.flush()
    except NginxTuneError as error:
        return _say(error.message, error.hint, error.status)
    except _HELP_FOR_NO_ARGUMENTS as error:
        click.echo(error.format_message(), err=True)
        return int(ExitStatus.USAGE)
    except click.ClickException as error:
        return _say(*_told_by(error), ExitStatus.USAGE)
    except (click.Abort, KeyboardInterrupt) as stopped:
        return _say_stopped(stopped)
    except (BrokenPipeError, _ReaderGoneError):
        # The reader has read enough (head, less): success, as in ripgrep.
        _discard_result()
        return int(ExitStatus.OK)
    except Exception as error:
        if isinstance(error, OSError) and (error.errno in _LACKS or error.errno == errno.EACCES):
            return _say_lacking(error)
        # The last line of defence against a traceback.
        if any(argument.startswith("-v") for argument in arguments):
            raise
        text = f"internal error: {type(error).__name__}: {error}"
        return _say(text, "run it again with -v and report what it prints", ExitStatus.UNDECIDED)
    return int(result) if isinstance(result, int) else int(ExitStatus.OK)


def _hold_standard_descriptors() -> None:
    """Open the descriptors 0, 1 and 2 if they are closed (``<&-``, some service managers).

    Otherwise the next file or pipe would get one of these numbers, and a child program would use it
    as standard input or output. Messages to a closed standard error are lost. ``sys.stdin`` and
    ``sys.stdout`` stay None, since a result that nobody can read is a failure.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  # as long as we run


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_SHORT = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Errors when descriptors, processes or memory run out."""
_LACKS = (*_FULL, *_SHORT)


def _say_stopped(stopped: BaseException) -> int:
    """Report an interruption, or a damaged module of this installation; returns the exit status.

    Click treats an EOFError as Ctrl-C at a prompt. No command here prompts, so the error comes from
    a compiled module that Python before 3.12.8 and 3.13.1 left incomplete on a full disk (CPython
    gh-126606).
    """
    error = stopped.__cause__ or stopped.__context__  # click 8.1 hides it
    if not isinstance(error, EOFError):
        return _say("interrupted", "", ExitStatus.INTERRUPTED)
    hint = f"remove the directories __pycache__ below {Path(__file__).parent.parent}"
    text = "a compiled Python module of this installation is truncated"
    if not re.match("marshal data|EOF read where", str(error)):  # Source: CPython's marshal.c
        text, hint = f"internal error: {error!r}", "run it again with -v and report what it prints"
    return _say(text, hint, ExitStatus.UNDECIDED)


def _say_lacking(error: OSError) -> int:
    """Report the resource that has run out, or the file that this user may not read.

    Returns the exit status.
    """
    if error.errno == errno.EACCES:
        return _say(f"{error.filename}: {error.strerror}", "", ExitStatus.USAGE)
    if error.errno in _FULL:
        _discard_result()
        return _say(f"cannot write: {error.strerror}", "", ExitStatus.USAGE)
    hint = "see free -m" if error.errno == errno.ENOMEM else "see ulimit -n and ulimit -u"
    return _say(
        f"too few files, processes or memory for this process: {error}", hint, ExitStatus.UNDECIDED
    )


def _discard_result() -> None:
    from nginx_tune.report.terminal.saying import discard  # noqa: PLC0415  # only on the way out

    discard(sys.stdout)


def _say(message: str, hint: str, status: ExitStatus) -> int:
    from nginx_tune.report.terminal.saying import say  # noqa: PLC0415  # only on the way out

    say(message, hint)
    return int(status)


def _told_by(error: click.ClickException) -> tuple[str, str]:
    """Click's message in this program's style, and a hint, which may be empty.

    The hint suggests similar names. Click's own suggestions are too remote, and it knows a group's
    commands only after it has imported them.
    """
    text = " ".join(error.format_message().split())
    hint = _meant(error, text)
    if getattr(error, "possibilities", None):
        text = error.message
    if isinstance(error, click.NoSuchOption):
        text = f"no such option '{error.option_name}'"
        hint = "" if error.ctx is None else _option_meant(error.ctx, error.option_name)
    if isinstance(error, click.MissingParameter):
        hint = hint or (f"{error.ctx.command_path} --help" if error.ctx is not None else "")
        choices = re.search(r"\.\s*Choose from:?\s*", text)
        if choices is not None:
            hint = f"one of {text[choices.end() :]}"
            text = text[: choices.start()]
    text = text.removesuffix(".")
    return text[:1].lower() + text[1:], hint


def _option_meant(context: click.Context, name: str) -> str:
    """The option or format of this command that ``name`` probably means.

    Otherwise, the commands that have such an option.
    """
    formats = next((one for one in context.command.params if one.name == "formats"), None)
    word = name.lstrip("-")
    if formats is not None and word in re.findall(r"\w+", formats.help or ""):
        return f"-f {word}"
    names = [one.lstrip("-") for option in context.command.params for one in option.opts]
    if near := name_meant(word, names):
        return near.replace("is ", "is --", 1)
    owners = _owners(context, name)
    if not owners:
        return ""
    if len(owners) > _MOST_OWNERS:
        return f"{', '.join(owners[:_MOST_OWNERS])}, … have it"
    return f"{listed(owners)} {'has' if len(owners) == 1 else 'have'} it"


def _owners(context: click.Context, name: str) -> list[str]:
    """The commands that have an option; if some of them are in this command's group, only those."""
    owners = {
        command
        for command in COMMANDS
        if (found := cli.get_command(context.find_root(), command)) is not None
        and any(name in option.opts for option in found.params)
    }
    groups = [commands for commands in GROUPS.values() if context.info_name in commands]
    near = [command for commands in groups for command in commands if command in owners]
    return near or sorted(owners)


def _meant(error: click.ClickException, text: str) -> str:
    context = getattr(error, "ctx", None)
    command = re.search(r"No such command '(.*?)'\.", text)
    if command and context is not None and isinstance(context.command, click.Group):
        return name_meant(command[1], context.command.list_commands(context))
    choice = re.search(r"'([^']*)' is not one of ", text)
    kind = getattr(getattr(error, "param", None), "type", None)
    if choice and isinstance(kind, click.Choice):
        return name_meant(choice[1], [str(choice_) for choice_ in kind.choices])
    return ""


__all__ = ["COMMANDS", "cli", "main"]
