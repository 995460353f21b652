"""``-f/--format`` and ``-o/--output``: the format and the destination of a document."""

import errno
import functools
import os
import re
import select
import shutil
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

import click

from nginx_tune.errors import UsageError, name_meant
from nginx_tune.host.paths import check_writable
from nginx_tune.report.terminal.saying import clear_progress, columns, discard, say
from nginx_tune.report.text import commandless

_STEERING = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\xc2[\x80-\x9f]")
"""Control characters, including those of C1 in UTF-8, except tabs and line ends."""

_ENDS = re.compile(rb"\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
"""Characters (UTF-8) that JSON does not need to escape, but that end a line for some readers."""
_COMMAND = re.compile(rb"##([a-z]*)\[")

_ALSO = {"markdown": "md"}
"""Other names of formats."""
_TEXTS = frozenset({"console", "csv", "md"})
_JSONS = frozenset({"crossplane", "gitlab", "json", "sarif"})
READER_SECONDS = 10.0
"""Longest wait for the reader of a pipe."""
_RESULTS = "nginx_tune.results"
"""Key in ``Context.meta`` for the names of the results."""
SETTINGS_FILE = "nginx_tune.settings_file"
"""Key in ``Context.meta`` for the name of the settings file that was read."""
F = TypeVar("F", bound=Callable[..., Any])


class ResultFile(click.types.StringParamType):
    """The type of an option, other than ``-f``, whose value is a file to write.

    By this type, `output_options` finds these options, and refuses a file that the command reads or
    that two results share.
    """


RESULT_FILE = ResultFile()


def output_options(*formats: str, owner: str = "", has_formats: bool = True) -> Callable[[F], F]:
    """Add ``-f`` (may repeat; ``NAME`` or ``NAME=FILE``) and ``-o``; the first is the default.

    Both are checked before the command begins, so that minutes of work are not lost to a typo. If
    the command is called with the option ``owner``, ``-o`` names the file for that option's result.
    Without ``has_formats`` there is no ``-f``.
    """

    def add(function: F) -> F:
        @functools.wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            call = click.get_current_context()
            owned = options["output"] if options.get(owner) else None
            own = {
                param.name: options[param.name]
                for param in call.command.params
                if isinstance(param.type, ResultFile) and param.name not in {"output", None}
            }
            further = [file for file in (owned, *own.values()) if file is not None]
            output = None if owned is not None else options["output"]
            named = output_files(options.get("formats", ()), output, formats, further)
            for file in named:
                _check_directory(Path(file))
            given = {**call.params, **options}  # other decorators may have replaced options
            read = {name: value for name, value in given.items() if name not in own}
            if named:
                from nginx_tune.nginx.overwriting import refuse_overwriting  # noqa: PLC0415

                refuse_overwriting(named, [*_read_files(read), *call.meta.get(SETTINGS_FILE, ())])
            call.meta[_RESULTS] = named
            return function(*args, **options)

        command = click.option(
            "-o",
            "--output",
            type=RESULT_FILE,
            metavar="FILE",
            help="Write there instead of standard output.",
        )(checked)
        if not has_formats:
            return cast("F", command)
        return click.option(
            "-f",
            "--format",
            "formats",
            multiple=True,
            metavar="FORMAT[=FILE]",
            help=f"{', '.join(formats)} (default {formats[0]}); may repeat with files.",
        )(cast("F", command))

    return add


def output_files(
    wanted: Sequence[str], output: str | None, known: Sequence[str], further: Iterable[str] = ()
) -> list[str]:
    """The files of all results, including the ``further`` files of other options.

    Errors: UsageError if two results share a file.
    """
    places = _places(wanted or known[:1], output, known)
    named = [*(file for _, file in places), *further]
    files = [_in_directory(file) for file in named if file is not None and file not in {"", "-"}]
    if len(files) > 1:
        from nginx_tune.nginx.overwriting import is_same  # noqa: PLC0415  # rarely several
    for number, file in enumerate(files):
        is_special = Path(file).exists() and not Path(file).is_file()
        if not is_special and any(is_same(file, other) for other in files[:number]):
            raise UsageError(f"{file}: two results have the same file", hint="name a file for each")
    return files


def _in_directory(file: str) -> str:
    """The file of a result; in a directory it is ``nginx.conf``, as for ``generate -o``."""
    return os.path.join(file, "nginx.conf") if os.path.isdir(file) else file  # noqa: PTH112, PTH118


def refuse_results(read: Iterable[str], asked: Iterable[str]) -> None:
    """Refuse results of this command that are, or would become, files of a configuration.

    Each command calls this after it has read a tree. Errors: UsageError that names the file.
    """
    if results := named_results():
        from nginx_tune.nginx.overwriting import refuse_in_tree  # noqa: PLC0415

        refuse_in_tree(results, read, asked)


def named_results() -> list[str]:
    """The files that this command writes; empty outside a command."""
    call = click.get_current_context(silent=True)
    return [] if call is None else list(call.meta.get(_RESULTS, ()))


def result_files(formats: Sequence[str], output: str | None) -> list[str]:
    """The files of a command's formats; empty if one of them goes to standard output."""
    files = [item.partition("=")[2] or output or "-" for item in formats or ("",)]
    return [] if {"-", "/dev/stdout"} & {*files} else files


def file_of(name: str, formats: Sequence[str], output: str | None) -> str:
    """The file to which one format is written; empty if there is none."""
    parts = (item.partition("=") for item in formats)
    return next((file or output or "" for form, _, file in parts if form == name), "")


def tell_written(
    what: str, formats: Sequence[str], output: str | None, next_command: str = ""
) -> None:
    """Print which files have the results, unless ``-q`` or one went to standard output."""
    files = [file for file in result_files(formats, output) if Path(file).is_file()]
    if files and not click.get_current_context().obj["quiet"]:
        say(f"{what} is in {', '.join(files)}", next_command and f"next: {next_command}")


def _read_files(options: Mapping[str, Any]) -> Iterator[str]:
    """Values of options and arguments that may be names of files to read."""
    for name, value in options.items():
        if name not in {"output", "formats"}:
            parts = value if isinstance(value, tuple) else (value,)
            yield from (str(part) for part in parts if isinstance(part, str | Path) and str(part))
            if name == "overlays":
                yield from filter(None, (str(part).partition("=")[2] for part in parts))


def write_result(
    renderers: Mapping[str, Callable[[], bytes]],
    formats: tuple[str, ...],
    output: str | None,
    *,
    mode: int = 0o644,
) -> None:
    """Render the requested formats to standard output and files; the first renderer is the default.

    Files are replaced atomically.
    """
    jobs = _places(formats or tuple(renderers)[:1], output, renderers)
    clear_progress()
    for name, file in jobs:
        data = _commandless(renderers[name](), name)
        if file is None or file == "-":
            seen = data if name == "console" else shown_data(data, name)
            _write_standard_output(_paused(seen, name))
        else:
            write_file(Path(file), data, mode=mode)


def _commandless(data: bytes, form: str) -> bytes:
    """The data without commands to a CI runner, if the format can escape them."""
    if form in _TEXTS:
        return commandless(data.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )
    if form in _JSONS:  # only its strings have such characters
        data = _ENDS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), data)
        return _COMMAND.sub(rb"##\1\\u005b", data)
    return data


def _paused(data: bytes, form: str) -> bytes:
    """The data between two lines that turn commands off in a GitHub runner, if it has commands.

    A diff has a file's own bytes, which cannot be escaped; ``patch`` skips the two lines.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true" or form == "github":
        return data
    text = data.decode("utf-8", "surrogateescape")
    if commandless(text) == text or _is_file(sys.stdout):
        return data
    word = os.urandom(16).hex().encode()
    return b"::stop-commands::%b\n%b\n::%b::\n" % (word, data.rstrip(b"\n"), word)


def _is_file(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _places(
    wanted: Sequence[str], output: str | None, known: Collection[str]
) -> list[tuple[str, str | None]]:
    """Each requested format and its file; None is standard output."""
    jobs: list[tuple[str, str | None]] = []
    for item in wanted:
        name, equals, named = item.partition("=")
        if equals and not named:
            raise UsageError(f"-f {item}: the file name is missing", hint="is a variable not set?")
        name = _ALSO.get(name, name)
        if name not in known:
            raise UsageError(f"unknown format '{name}'", hint=_formats_hint(name, known))
        jobs.append((name, named or output))
    if output is not None and all("=" in item for item in wanted):
        raise UsageError(f"-o {output}: every format already has a file", hint="leave -o out")
    if len([file for _, file in jobs if file is None]) > 1:
        raise UsageError("only one format can go to standard output", hint="use -f FORMAT=FILE")
    return jobs


def _check_directory(path: Path) -> None:
    try:
        path.parent.stat()
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def _formats_hint(name: str, known: Collection[str]) -> str:
    near, every = name_meant(name, known), f"one of {', '.join(known)}"
    return f"{near} {every}" if near else every


def is_screen(output: str | None) -> bool:
    """True if ``output`` is a terminal."""
    return output is None and sys.stdout is not None and sys.stdout.isatty()


def console_width(output: str | None) -> int | None:
    """The width of a console's lines; None for lines of any length."""
    return None if output is not None else columns(sys.stdout)


def shown_data(data: bytes, form: str) -> bytes:
    """The data for a terminal, with control characters visible and long lines folded.

    A diff has the bytes of a configuration, which may be untrusted: escapes that move the cursor or
    name the window. Comments and sentences are folded. (The writer for consoles does both itself.)
    """
    if not is_screen(None):
        return data
    from nginx_tune.report.folding import fold_file  # noqa: PLC0415  # for a terminal only

    seen = _STEERING.sub(lambda found: f"\\x{found[0][-1]:02x}".encode(), data)
    text = seen.decode("utf-8", "surrogateescape")
    folded = fold_file(text, form, shutil.get_terminal_size().columns)
    return folded.encode("utf-8", "surrogateescape")


def _write_standard_output(data: bytes) -> None:
    if sys.stdout is None:
        raise UsageError("standard output is closed", hint="name a file with -o")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # the reader has read enough: no failure
    except OSError as error:
        discard(sys.stdout)  # the rest of the buffer would fail again at exit
        raise UsageError(f"standard output: cannot write: {error.strerror}") from None


def write_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace ``path`` atomically; special files (``/dev/stdout``) are written in place.

    A link stays, and its target is replaced. A new file has no more permissions than the old one.
    As root, links of other users are not followed.
    """
    check_writable(path)
    try:
        if path.is_fifo() and not os.path.realpath(path).startswith("/proc/"):
            _write_pipe(path, data)
            return
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))
        if target.exists():
            mode &= target.stat().st_mode
        _replace(target, data, mode)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def _write_pipe(path: Path, data: bytes) -> None:
    """Write to a named pipe while it has a reader, without waiting for ever.

    The pipe is opened only once, since a reader takes its closing for the end of the data.
    Errors: OSError, UsageError.
    """
    until = time.monotonic() + READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until:
                raise _unread(path) from None
            time.sleep(0.05)
    try:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLOUT)
        left = memoryview(data)
        while left:
            if not waiting.poll(READER_SECONDS * 1000):
                raise _unread(path)
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


def _unread(path: Path) -> UsageError:
    return UsageError(f"{path}: nothing was read from this pipe in {READER_SECONDS:g} s")


def _replace(path: Path, data: bytes, mode: int) -> None:
    fresh = path.with_name(f".{path.name[:200]}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)  # left by a process with the same id; O_EXCL follows no link
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
