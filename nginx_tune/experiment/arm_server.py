"""The server of a block, nginx or a bare one in its place, and what is done to it meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nginx_tune.documents.scenario import StandIn
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.instance import BareInstance, start_bare
from nginx_tune.nginx.lab.mounts import own_file
from nginx_tune.nginx.lab.raw_accept import How, raw_accept_command

_HOW: dict[StandIn, How] = {"raw-blocking-accept": "blocking", "raw-epoll-accept": "epoll"}


def start_stand_in(
    which: StandIn,
    *,
    port: int,
    workers: int,
    log: Path,
    stderr_path: Path,
    cpus: Sequence[int],
) -> BareInstance:
    """A bare server that accepts connections."""
    command = raw_accept_command(
        _HOW[which], python=sys.executable, port=port, workers=workers, log=log
    )
    return start_bare(
        command,
        stderr_path=stderr_path,
        address=("127.0.0.1", port),
        cpus=cpus,
        workers=workers,
        ahead=True,
    )


@contextlib.contextmanager
def kernel_settings(values: Mapping[str, str]) -> Iterator[None]:
    """Have sysctls of this network namespace at these values; then as they were.

    Errors: UndecidedError for one that this kernel does not have or take.
    """
    before: dict[Path, str] = {}
    try:
        for name, value in values.items():
            path = Path("/proc/sys", *name.split("."))
            try:
                before[path] = path.read_text()
                path.write_text(value)
            except OSError as error:
                raise UndecidedError(
                    f"sysctl {name} = {value}: {error.strerror}",
                    hint="the experiment needs a kernel that has it",
                ) from None
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


@contextlib.contextmanager
def reloading(
    pid: int, conf_path: str, texts: Sequence[str], every_seconds: float
) -> Iterator[None]:
    """Reload a master with one text after the other, over and over, until the block ends."""
    ended = threading.Event()

    def reload() -> None:
        turn = 0
        while not ended.wait(every_seconds):
            turn += 1
            own_file(conf_path).write_text(texts[turn % len(texts)])
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)

    thread = threading.Thread(target=reload, daemon=True)
    if texts:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if texts:
            thread.join()
