"""Runs a drawn situation, and says what is wrong with what came of it.

As a program, ``python fitful_runs.py SEED COUNT [WAY]`` runs as many situations, three beside each
other, and prints what each came to.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from fitful_draws import BEHIND_NGINX, TIMEOUT_SECONDS, Situation, draw
from fitful_wire import Temper
from test_probe_http3 import listening as listening_quic

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.loadplan import LoadPlan, Tls
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.probe import find_probe
from nginx_tune.nginx.lab.network import make_certificate

SERVER = Path(__file__).parent / "fitful_server.py"
MAY_FAIL = {
    "drops": {"reset", "empty", "truncated"},
}
"""Kinds of failures that a server's temper gives."""
LEAST_CPU_SECONDS, CPU_RATIO = 0.4, 0.5
"""What a probe may use that has nothing to wait for, and of the time that it takes."""


@dataclass
class Serving:
    """A server that runs, and what it said at its end."""

    port: int
    said: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def serving(temper: Temper) -> Iterator[Serving]:
    words = msgspec.json.encode(asdict(temper)).decode()
    argv = [sys.executable, SERVER, words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            serves = Serving(int(process.stdout.readline()))
            yield serves
        finally:
            process.terminate()
        serves.said = msgspec.json.decode(process.stdout.readline())


@dataclass
class Came:
    """What came of a run."""

    measurement: Measurement
    server: dict[str, Any]
    wall_seconds: float
    cpu_seconds: float


def ask(plan: LoadPlan, seed: int | str = "of no draw") -> tuple[Measurement, float, float]:
    """Run the probe: what it saw, and the wall and CPU seconds of its process."""
    begun = time.monotonic()
    with (
        tempfile.TemporaryFile() as words,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        words.write(encode(plan))
        words.seek(0)
        process = subprocess.Popen([find_probe()], stdin=words, stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - begun
        out.seek(0)
        err.seek(0)
        assert process.returncode == 0, f"seed {seed}: {err.read().decode()}"
        return decode(Measurement, out.read()), wall, used.ru_utime + used.ru_stime


def run(situation: Situation, tls: list[str] | None) -> Came:
    """What comes of a situation; HTTP/2 and HTTP/3 are nginx's, in front of the server."""
    if situation.way in BEHIND_NGINX:
        return run_behind_nginx(situation)
    trust = Tls(ca_file=tls[0]) if tls and "tls" in situation.way else None
    with serving(situation.temper) as serves:
        found, wall, cpu = ask(situation.plan(serves.port, trust), situation.temper.seed)
    return Came(found, serves.said, wall, cpu)


def run_behind_nginx(situation: Situation) -> Came:
    dice = random.Random(situation.temper.seed)
    # With less in all nginx cannot say its SETTINGS.
    streams, buffer = dice.choice([(10, "4k"), (128, "4k"), (1, "16k"), (2, "64k"), (128, "64k")])
    with tempfile.TemporaryDirectory() as folder, serving(situation.temper) as serves:
        words = (
            f"http2 on; http2_max_concurrent_streams {streams};"
            f" http3_max_concurrent_streams {streams}; http3_stream_buffer_size {buffer};"
            f" keepalive_requests {dice.choice([2, 10, 1000, 1000])};"
            f" location / {{ proxy_pass http://127.0.0.1:{serves.port}; proxy_http_version 1.1;"
            f" proxy_buffering {dice.choice(['on', 'off'])}; }}"
        )
        with listening_quic("1.30", Path(folder), words) as quic:
            plan = situation.plan(quic.nginx.port, Tls(verify=False))
            found, wall, cpu = ask(plan, situation.temper.seed)
    return Came(found, serves.said, wall, cpu)


def complaints(situation: Situation, came: Came) -> list[str]:
    """What is not as it should be; nothing where all is."""
    wrong = list(came.server["faults"])
    wrong += [flag for flag in came.measurement.flags if "HTTP" in flag]
    may_fail: set[str] = set()
    for name, kinds in MAY_FAIL.items():
        if getattr(situation.temper, name):
            may_fail |= kinds
    if situation.way in BEHIND_NGINX:  # nginx in front resets some streams, one in some hundreds
        may_fail |= {"reset"}
    for name, found in came.measurement.classes.items():
        wrong += [f"{name}: {what}" for what in of_class(situation, found, may_fail)]
    if came.cpu_seconds > LEAST_CPU_SECONDS + CPU_RATIO * came.wall_seconds:
        wrong.append(f"{came.cpu_seconds:.2f} CPU s in {came.wall_seconds:.2f} s")
    wrong += of_server(situation, came)
    return wrong


def of_class(situation: Situation, found: ClassMeasurement, may_fail: set[str]) -> Iterator[str]:
    failed = sum(found.errors.values())
    if set(found.errors) - may_fail:
        yield f"failures {found.errors}, and may have {may_fail}"
    if found.censored or found.requests + failed != found.intended:
        yield f"{found.intended} are {found.requests}, {failed} and {found.censored} unfinished"
    for times in (found.response_seconds, found.failed_seconds):
        if times.max is not None and times.max > TIMEOUT_SECONDS / 2:
            yield f"{times.max:.1f} s"
    if found.bodies is not None and (found.bodies.differing or found.bodies.unread):
        yield f"{found.bodies}"


def of_server(situation: Situation, came: Came) -> Iterator[str]:
    """Both ends have seen the same."""
    classes = came.measurement.classes.values()
    is_plain = situation.is_harmless and not came.server["given"]
    is_plain = is_plain and not any(it.retried for it in classes)
    if not is_plain or situation.way in BEHIND_NGINX:
        return
    good = sum(found.requests for found in classes)
    if came.server["whole"] != good:
        yield f"{came.server['whole']} requests came, {good} were answered"


def try_one(seed: int, way: str, tls: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        situation = draw(seed, Path(folder), way, tls)
        try:
            came = run(situation, tls)
        except Exception as error:  # noqa: BLE001 — the next ones are to run
            return f"{seed} {situation.way} FAILED {error!r}"
    wrong = complaints(situation, came)
    classes = came.measurement.classes
    longest = max((it.response_seconds.max or 0.0) for it in classes.values())
    rested = situation.temper.rests_seconds - came.server["rests_left_seconds"]
    counts = {name: (it.requests, it.errors) for name, it in classes.items()}
    return (
        f"{seed} {situation.way} {'FAILED' if wrong else 'ok'} {came.wall_seconds:.1f} s, "
        f"CPU {came.cpu_seconds:.2f}, longest {longest:.2f}, rested {rested:.2f}, {counts} "
        f"{came.server['given']} {wrong or ''}"
    )


def main(first: int, count: int, way: str = "") -> None:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(3) as pool:
        made = make_certificate(Path(folder), names=["localhost"])
        tls = [str(made.certificate), str(made.key)]
        seeds = range(first, first + count)
        for line in pool.map(lambda seed: try_one(seed, way, tls), seeds):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
