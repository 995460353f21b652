"""Two ways to run the command line: in this process, and as a program of its own.

Starting Python and importing the package takes 0.5 to 1 CPU seconds a run, which is nearly all that
most tests of commands would take. What only a process has (signals, closed descriptors, a terminal,
imports on demand, the interpreter's exit) is tested with `start`.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

Run = subprocess.CompletedProcess[str]

KEPT_BY_A_RUN = (
    ("nginx_tune.host.programs", "_vouched"),
    ("nginx_tune.cli.inputs", "_below"),
    ("nginx_tune.lab.walls", "_given_up"),
)
"""What the package keeps outside of its caches."""

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM)


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

    Nothing of the run stays: what the package keeps for the length of a run is forgotten, and
    handlers of signals are put back. In any other thread but the first it is `start`.
    """
    if threading.current_thread() is not threading.main_thread():
        return start(*arguments, stdin=stdin, env=env, cwd=cwd, timeout=timeout)
    words = ["nginx-tune", *map(str, arguments)]
    text = stdin.encode() if isinstance(stdin, str) else stdin
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(text)
        files[0].seek(0)
        stack.enter_context(_environment(env or {}, cwd))
        stack.enter_context(_signals(timeout, words))
        stack.enter_context(_standard_streams(files))
        stack.callback(_forget)
        status = _main(words)
        out, err = (_read_all(file) for file in files[1:])
    return subprocess.CompletedProcess(words, status, out, err)


def _main(words: list[str]) -> int:
    from nginx_tune.__main__ import main  # noqa: PLC0415  # coverage sees all of its imports

    before, sys.argv = sys.argv, words
    try:
        return main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before


def _read_all(file: IO[bytes]) -> str:
    file.seek(0)
    text = file.read().decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")  # as `subprocess` reads text


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
def _standard_streams(files: list[IO[bytes]]) -> Iterator[None]:
    """Descriptors 0 to 2 and Python's own streams on these files."""
    streams: tuple[Any, Any, Any] = (sys.stdin, sys.stdout, sys.stderr)
    for stream in streams[1:]:
        stream.flush()
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _forget() -> None:
    """Empty the caches of the package: a process of its own begins without."""
    for name, module in list(sys.modules.items()):
        if name.startswith("nginx_tune"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
    for room, kept in KEPT_BY_A_RUN:
        if room in sys.modules:
            getattr(sys.modules[room], kept).clear()
