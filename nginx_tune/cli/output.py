"""``-f/--format`` and ``-o/--output``: where a document goes and in which form."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from nginx_tune.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def output_options(*formats: str) -> Callable[[F], F]:
    """Add ``-f`` (may repeat; ``NAME`` or ``NAME=FILE``) and ``-o``; the first is the default."""

    def add(function: F) -> F:
        function = click.option(
            "-o", "--output", metavar="FILE", help="Write there instead of standard output."
        )(function)
        return click.option(
            "-f",
            "--format",
            "formats",
            multiple=True,
            metavar="FORMAT[=FILE]",
            help=f"{', '.join(formats)} (default {formats[0]}); may repeat with files.",
        )(function)

    return add


def write_result(
    renderers: Mapping[str, Callable[[], bytes]],
    formats: tuple[str, ...],
    output: str | None,
    *,
    mode: int = 0o644,
) -> None:
    """Render what was asked for. The first renderer is the default.

    Side effects: writes standard output and the named files (replaced atomically).
    """
    wanted = formats or (next(iter(renderers)),)
    jobs: list[tuple[str, str | None]] = []
    for item in wanted:
        name, _, named = item.partition("=")
        if name not in renderers:
            raise UsageError(f"unknown format '{name}'", hint=f"one of {', '.join(renderers)}")
        jobs.append((name, named or output))
    if len([file for _, file in jobs if file is None]) > 1:
        raise UsageError("only one format can go to standard output", hint="use -f FORMAT=FILE")
    for name, file in jobs:
        data = renderers[name]()
        if file is None or file == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            write_file(Path(file), data, mode=mode)


def write_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace ``path`` atomically; special files (``/dev/stdout``) are written in place."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None
