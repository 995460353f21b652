"""A load generator that cannot keep up, and reports it."""

import argparse
import signal
import threading
import time
from collections.abc import Iterator

import psutil

from conforming.rows import PLACE, Row, ground_truth, milliseconds, run

STOP = 0.2


def stopped_generator(_options: argparse.Namespace) -> Iterator[Row]:
    """The probe itself is stopped for 200 ms (SIGSTOP)."""
    with ground_truth(*PLACE) as server:
        thread = threading.Thread(target=_stop_the_probe)
        thread.start()
        measurement, seen = run(server, duration_seconds=3.0)
        thread.join()
    lag = milliseconds(seen.lateness_seconds.max)
    yield Row("7", "lag shows 200 ms", f"{lag:.0f} ms", 195 <= lag <= 220)
    response = milliseconds(seen.response_seconds.max)
    asked = "so does the response from the intended start"
    yield Row("7", asked, f"{response:.0f} ms", 195 <= response <= 220)
    arrival = milliseconds(seen.arrival_seconds.max)
    asked = "the time until the kernel had the answer does not"
    yield Row(
        "7", asked, f"{arrival:.3f} ms at most, of {seen.arrival_seconds.count}", arrival < 50
    )
    told = [flag for flag in measurement.flags if flag.startswith("lateness: ")]
    yield Row("7", "flagged", "; ".join(told) or "no flag", bool(told))


def _stop_the_probe() -> None:
    time.sleep(1.5)
    for child in psutil.Process().children():
        if child.name().startswith("nginx-tune-prob"):
            child.send_signal(signal.SIGSTOP)
            time.sleep(STOP)
            child.send_signal(signal.SIGCONT)
