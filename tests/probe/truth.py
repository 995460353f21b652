"""Starting the ground-truth server, and plans for it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Permit, Target
from nginx_tune.documents.measured_class import Latency
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.measure.proof.histogram import decode_histogram

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


def run_past_a_stop(plan: LoadPlan, pids: Sequence[int]) -> tuple[Measurement, float]:
    """What the probe measures of servers that stand still (SIGSTOP) for 1.4 s, and how long it was.

    From the end of the first second that it reports: by then it has begun, however late.
    """
    seconds: list[float] = []

    def stop(_: object) -> None:
        if not seconds:
            begun = time.monotonic()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(1.4)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            seconds.append(time.monotonic() - begun)

    return run_probe(plan, on_progress=stop), seconds[0]


def assert_stop_is_seen(latency: Latency, stopped_seconds: float, rate: float) -> None:
    """Tene's Ctrl-Z: of a stop of s seconds, rate × (s - x) requests take longer than x."""
    assert (latency.max or 0) > stopped_seconds - 0.02
    histogram = decode_histogram(latency.histogram)
    for beyond in (0.3, 0.7, 1.1):
        truth = rate * (stopped_seconds - beyond)
        count = histogram.count_above(int(beyond * 1e9))
        # More by what else the machine held up.
        assert truth - 10 < count < truth * 1.2 + 60, (beyond, truth, count)


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
