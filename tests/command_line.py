"""Two ways to run the command line: in this process, and as a program of its own.

Starting Python and importing the package takes 0.5 to 1 CPU seconds a run, which is nearly all that
most tests of commands would take. What only a process has (signals, closed descriptors, a terminal,
imports on demand, the interpreter's exit) is tested with `start`.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

Run = subprocess.CompletedProcess[str]
RunCli = Callable[..., Run]
"""The fixtures ``run_cli`` and ``start_cli`` of ``conftest.py``."""

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM)

OF_A_RUN = (
    ("host.programs", "_vouched"), ("nginx.lab.sandbox", "_given_up"), ("cli.inputs", "_below"),
    ("report.terminal.saying", "displays"), ("report.terminal.progress", "_open"),
)  # fmt: skip
"""What modules of the package note of a run, as the operator's word for a program."""


def start(
    *arguments: str | Path,
    stdin: str | bytes = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 120,
) -> Run:
    """Run ``nginx-tune`` as a user does: a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "nginx_tune", *map(str, arguments)],
        input=stdin.decode() if isinstance(stdin, bytes) else stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )


def call(
    *arguments: str | Path,
    stdin: str | bytes = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 120,
) -> Run:
    """Run ``nginx-tune`` in this process, with descriptors, environment and directory of its own.

    Handlers of signals are put back, and what the package noted of a run. Its caches stay: they
    hold what depends on nothing but their arguments and its own files. In any other thread than
    the first it is `start`.
    """
    if threading.current_thread() is not threading.main_thread():
        return start(*arguments, stdin=stdin, env=env, cwd=cwd, timeout=timeout)
    words = ["nginx-tune", *map(str, arguments)]
    text = stdin.encode() if isinstance(stdin, str) else stdin
    out: list[str] = []
    err: list[str] = []
    with tempfile.TemporaryFile() as given, _gathered(out) as to_out, _gathered(err) as to_err:
        given.write(text)
        given.seek(0)
        with (
            _environment(env or {}, cwd),
            _signals(timeout, words),
            _standard_streams([given.fileno(), to_out, to_err]),
            _noted(),
        ):
            status = _main(words)
    return subprocess.CompletedProcess(words, status, out[0], err[0])


def on_terminal(width: int, *arguments: str | Path, encoding: str = "utf-8") -> str:
    """What a terminal of that width gets of ``nginx-tune`` in this process, of both streams."""
    words = ["nginx-tune", "--no-color", *map(str, arguments)]
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    seen = bytearray()

    def read() -> None:
        with suppress(OSError):  # EIO at the end
            while part := os.read(reading, 65536):
                seen.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with (
            open(os.devnull) as nothing,  # noqa: PTH123  # no path of a test
            _environment({"TERM": "xterm"}, None),
            _signals(120, words),
            _standard_streams([nothing.fileno(), writing, writing], encoding),
            _noted(),
        ):
            for name in ("COLUMNS", "LINES"):
                os.environ.pop(name, None)
            _main(words)
    finally:
        os.close(writing)
        reader.join()
        os.close(reading)
    return seen.decode().replace("\r\n", "\n")


def _main(words: list[str]) -> int:
    from nginx_tune.__main__ import main  # noqa: PLC0415  # coverage sees all of its imports

    before, sys.argv = sys.argv, words
    try:
        return main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before


@contextmanager
def _gathered(found: list[str]) -> Iterator[int]:
    """The entrance of a pipe; what came through it is in ``found`` when all have closed it."""
    way_out, way_in = os.pipe()

    def read() -> None:
        with open(way_out, encoding="utf-8") as file:  # noqa: PTH123  # a descriptor
            found.append(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield way_in
    finally:
        os.close(way_in)
        reader.join()


@contextmanager
def _noted() -> Iterator[None]:
    """Forget what modules of the package note of a run (``OF_A_RUN``)."""
    before = {where: noted.copy() for where, noted in _all_noted()}
    try:
        yield
    finally:
        for where, noted in _all_noted():
            noted.clear()
            if isinstance(noted, list):
                noted.extend(before.get(where, ()))
            else:
                noted.update(before.get(where, ()))


def _all_noted() -> Iterator[tuple[tuple[str, str], Any]]:
    for module, name in OF_A_RUN:
        if f"nginx_tune.{module}" in sys.modules:
            yield (module, name), getattr(sys.modules[f"nginx_tune.{module}"], name)


@contextmanager
def _environment(changes: Mapping[str, str], directory: Path | None) -> Iterator[None]:
    kept, mask = dict(os.environ), os.umask(0o022)
    os.umask(mask)
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.environ.update(changes)
        if directory is not None:
            os.chdir(directory)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
        os.umask(mask)
        os.environ.clear()
        os.environ.update(kept)


@contextmanager
def _signals(seconds: float, words: list[str]) -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise subprocess.TimeoutExpired(words, seconds)

    kept = {number: signal.getsignal(number) for number in HELD}
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def _standard_streams(given: list[int], encoding: str | None = None) -> Iterator[None]:
    """Descriptors 0 to 2 and Python's own streams on these."""
    streams: tuple[Any, Any, Any] = (sys.stdin, sys.stdout, sys.stderr)
    for stream in streams[1:]:
        stream.flush()
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, descriptor in enumerate(given):
            os.dup2(descriptor, number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)
