"""Running the real nginx for a test."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator

PATH = {"PATH": "/usr/sbin:/usr/bin:/usr/local/sbin"}


def check(conf: str, program: str = "nginx") -> subprocess.CompletedProcess[str]:
    """What ``nginx -t`` says."""
    return subprocess.run(
        [program, "-t", "-c", conf],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=PATH,
    )


@contextlib.contextmanager
def serving(argv: list[str], port: int) -> Iterator[None]:
    """nginx in the foreground, accepting on the port; ended on leaving."""
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, env=PATH)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        else:
            raise AssertionError(f"nginx does not listen on 127.0.0.1:{port}")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)
