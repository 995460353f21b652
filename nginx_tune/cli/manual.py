"""Manual pages and shell completions, generated from the commands into ``share/``."""

import inspect
from dataclasses import dataclass, field

import click
from click.shell_completion import get_completion_class

from nginx_tune import __version__
from nginx_tune.cli.help import COMPLETION_VARIABLE, EXAMPLES


@dataclass(frozen=True)
class ManPage:
    """A manual page; texts are plain, and an empty line separates paragraphs."""

    name: str
    """The page's name, such as ``nginx-tune-audit``."""
    version: str
    summary: str
    command: str
    """The command as typed, such as ``nginx-tune audit``."""
    usage: str
    description: str
    options: list[tuple[str, str]] = field(default_factory=list)
    commands: list[tuple[str, str]] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    """Command lines."""
    exit_codes: list[tuple[str, str]] = field(default_factory=list)
    environment: list[tuple[str, str]] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    see_also: list[str] = field(default_factory=list)


def render_man_page(page: ManPage) -> str:
    """The page as man(7) source.

    Source: groff_man_style(7); no date, so that the same program gives the same bytes.
    """
    lines = [
        f'.TH "{page.name.upper()}" 1 "" "nginx-tune {page.version}" "nginx-tune manual"',
        ".SH NAME",
        f"{_text(page.name)} \\- {_text(page.summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f"\\fB{_text(page.command)}\\fR {_text(page.usage)}",
        ".SH DESCRIPTION",
        *_paragraphs(page.description),
    ]
    for title, entries in (
        ("OPTIONS", page.options),
        ("COMMANDS", page.commands),
        ("EXIT STATUS", page.exit_codes),
        ("ENVIRONMENT", page.environment),
        ("FILES", page.files),
    ):
        if entries:
            lines.append(f".SH {title}")
        for term, text in entries:
            lines += [".TP", f"\\fB{_text(term)}\\fR", *_paragraphs(text)]
    if page.examples:
        lines += [".SH EXAMPLES", ".nf", *map(_text, page.examples), ".fi"]
    if page.see_also:
        names = [f"\\fB{_text(name)}\\fR(1)" for name in page.see_also]
        lines += [".SH SEE ALSO", ",\n".join(names)]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """The text as lines of roff; a paragraph with click's no-wrap mark keeps its lines."""
    lines: list[str] = []
    for paragraph in filter(None, (part.strip(" \n") for part in text.split("\n\n"))):
        lines += [".PP"] * bool(lines)
        if paragraph.startswith("\b\n"):
            lines += [".nf", *map(_text, paragraph.splitlines()[1:]), ".fi"]
        else:
            lines.append(_text(" ".join(paragraph.split())))
    return lines


_ESCAPES = str.maketrans(
    {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
)
_SYMBOLS = {
    "…": "...",
    "×": "\\(mu",
    "–": "\\(en",
    "µ": "\\(mc",
    "≥": "\\(>=",
    "≤": "\\(<=",
    "→": "\\(->",
    "·": "\\(md",
}


def _text(text: str) -> str:
    """Text escaped for roff: nothing in it is a request or an escape, and ``-`` can be copied."""
    escaped = text.translate(_ESCAPES)
    for symbol, roff in _SYMBOLS.items():
        escaped = escaped.replace(symbol, roff)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


PROGRAM = "nginx-tune"
_EXIT_CODES = [
    ("0", "Fine."),
    ("1", "Findings, a failed gate, a worse candidate, a claim that did not hold, a difference."),
    ("2", "Wrong usage, or an input that is missing or not a document."),
    ("3", "A configuration could not be parsed, or the target's nginx -t rejects it."),
    ("4", "Something needed could not be measured or decided."),
    ("5", "A change could neither be kept nor taken back."),
    ("130", "Interrupted."),
]
_ENVIRONMENT = [
    ("NGINX_TUNE_COMMAND_OPTION", "The value of an option that is not given."),
    ("NGINX_TUNE_CONFIG", "The settings file."),
    ("NO_COLOR", "Plain output when set and not empty."),
]
_SETTINGS_FILE = """\
Settings: a table per command with its options by their long names. It is searched upward from the
working directory, and may then only have preferences and inputs below its own directory. Its JSON
Schema: nginx-tune schema settings."""
_FILES = [("nginx-tune.toml", _SETTINGS_FILE)]


def manual_pages(cli: click.Group) -> dict[str, str]:
    """The man(7) source of the program's page and of each command's page, by file name."""
    pages: dict[str, str] = {}
    _add_pages(pages, cli, click.Context(cli, info_name=PROGRAM))
    return pages


def _add_pages(pages: dict[str, str], command: click.Command, ctx: click.Context) -> None:
    name = ctx.command_path.replace(" ", "-")
    below: list[tuple[str, click.Command]] = []
    if isinstance(command, click.Group):
        found = [
            (child_name, command.get_command(ctx, child_name))
            for child_name in command.list_commands(ctx)
        ]
        below = [
            (child_name, child)
            for child_name, child in found
            if child is not None and not child.hidden
        ]
    summary, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    page = ManPage(
        name=name,
        version=__version__,
        summary=" ".join(summary.split()),
        command=ctx.command_path,
        usage=" ".join(command.collect_usage_pieces(ctx)),
        description=rest or summary,
        options=[record for option in command.params if (record := _record(option, ctx))],
        commands=[(child_name, child.get_short_help_str(200)) for child_name, child in below],
        examples=[*EXAMPLES.get(ctx.command_path.removeprefix(f"{PROGRAM} "), ())],
        exit_codes=_EXIT_CODES,
        environment=_ENVIRONMENT if ctx.parent is None else [],
        files=_FILES if ctx.parent is None else [],
        see_also=[f"{name}-{child_name}" for child_name, _ in below]
        or [ctx.parent.command_path.replace(" ", "-") if ctx.parent else PROGRAM],
    )
    pages[f"{name}.1"] = render_man_page(page)
    for child_name, child in below:
        _add_pages(pages, child, click.Context(child, info_name=child_name, parent=ctx))


def _record(option: click.Parameter, ctx: click.Context) -> tuple[str, str] | None:
    return option.get_help_record(ctx) if isinstance(option, click.Option) else None


SHELLS = {
    "bash": "bash-completion/completions/nginx-tune",
    "zsh": "zsh/site-functions/_nginx-tune",
    "fish": "fish/vendor_completions.d/nginx-tune.fish",
}
"""The file in which each shell looks for completions, under a ``share`` directory."""


def completion_script(cli: click.Command, shell: str) -> str:
    """The completion script for a shell; it runs ``nginx-tune`` to get the possible words."""
    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(shell)
    source = kind(cli, {}, "nginx-tune", COMPLETION_VARIABLE)
    # Not source(): for bash, it would run the shell to find its version.
    return f"{(source.source_template % source.source_vars()).strip()}\n"
