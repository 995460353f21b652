"""What the shell completes: file names where an option takes a file."""

from __future__ import annotations

import re

import click
from click.shell_completion import CompletionItem, get_completion_class

COMPLETION_VARIABLE = "_NGINX_TUNE_COMPLETE"
"""What click sets when a shell asks for completions."""

_FILES = {"FILE", "CONF", "LOADPLAN", "BIN", "BEFORE", "AFTER", "MEASUREMENT", "ACCESS_LOG", "SPEC"}
_FOLDERS = {"DIR", "PREFIX"}


class _PathText(click.types.StringParamType):
    """Text that the shell completes to a path; what stands there is judged where it is read."""

    def __init__(self, completes_to: str) -> None:
        self.completes_to = completes_to

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type=self.completes_to)]


def complete_paths(command: click.Command) -> None:
    """Let every parameter whose placeholder names a file or a directory complete to one."""
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


SHELLS = {
    "bash": "bash-completion/completions/nginx-tune",
    "zsh": "zsh/site-functions/_nginx-tune",
    "fish": "fish/vendor_completions.d/nginx-tune.fish",
}
"""Where each shell looks for its completions, under a ``share`` directory."""


def completion_script(cli: click.Command, shell: str) -> str:
    """The script that a shell loads; it asks ``nginx-tune`` itself for the words."""
    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(shell)
    source = kind(cli, {}, "nginx-tune", COMPLETION_VARIABLE)
    # Not source(): for bash it runs the shell to learn its version, and this one is written once.
    return f"{(source.source_template % source.source_vars()).strip()}\n"
