"""Starting the ground-truth server, and plans for it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Permit, Target

SERVER = Path(__file__).with_name("ground_truth.py")


class Truth:
    """A ground-truth server that runs."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def end(self) -> dict[str, Any]:
        """What it did."""
        self.process.terminate()
        output, _ = self.process.communicate(timeout=20)
        told: dict[str, Any] = json.loads(output)
        return told


@contextlib.contextmanager
def ground_truth(*options: object) -> Iterator[Truth]:
    """A server with these options; it is gone afterwards."""
    command = [sys.executable, SERVER, *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Truth(process, int(process.stdout.readline()))
        finally:
            if process.poll() is None:
                process.kill()


def truth_plan(port: int, **changes: Any) -> LoadPlan:
    """200 constant arrivals a second for two seconds, unless changed; one class named ``c``."""
    names = ("connections", "connection_use", "timeout_seconds")
    of_class = {name: changes.pop(name) for name in names if name in changes}
    arrivals = Arrivals(
        kind=changes.pop("kind", "constant"), rate_per_second=changes.pop("rate", 200.0)
    )
    only = LoadClass(
        name="c",
        arrivals=arrivals,
        paths=Paths(kind="fixed", paths=["/"]),
        **{"connections": 400, **of_class},
    )
    return LoadPlan(
        target=Target(address="127.0.0.1", port=port),
        classes=[only],
        permit=Permit(ports=[port]),
        **{"duration_seconds": 2.0, **changes},
    )
