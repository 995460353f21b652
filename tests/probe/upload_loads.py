"""Servers that take bodies, of our own and of others, and loads for them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from nginx_tune.documents.lab import UPLOADS_PATH, LabOrigin
from nginx_tune.documents.loadplan import (
    Arrivals,
    LoadClass,
    LoadPlan,
    Paths,
    Permit,
    Target,
    Upload,
)
from nginx_tune.documents.measured_class import ClassMeasurement, Uploads
from nginx_tune.host.lab_mark import ENVIRONMENT_MARK
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.nginx.lab.keeper import new_mark
from nginx_tune.nginx.lab.origin import OriginRequest

SERVER = Path(__file__).parent / "upload_server.py"
LATE_READER = Path(__file__).parent / "http2_late_reader.py"
MARK = new_mark()
"""As if this process were a command that made a lab."""
MARKED = {**os.environ, ENVIRONMENT_MARK: MARK}
UNMARKED = {name: value for name, value in os.environ.items() if name != ENVIRONMENT_MARK}


@contextlib.contextmanager
def listening(
    *words: str, is_ours: bool = True, server: Path = SERVER
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server of known behaviour: its port and process."""
    with subprocess.Popen(
        [sys.executable, server, *words],
        stdout=subprocess.PIPE,
        env=MARKED if is_ours else UNMARKED,
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


@contextlib.contextmanager
def counting_origin() -> Iterator[int]:
    """The lab's origin, as a lab starts it: its port."""
    request = OriginRequest(address="127.0.0.1", origin=LabOrigin(), seed=1)
    argv = [
        sys.executable,
        "-m",
        "nginx_tune.nginx.lab.origin",
        msgspec.json.encode(request).decode(),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=MARKED) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def upload_class(path: str = UPLOADS_PATH, **changes: object) -> LoadClass:
    """Forty arrivals a second, each with a body of 300,000 bytes unless changed."""
    parts: dict[str, object] = {
        "name": "c",
        "arrivals": Arrivals(kind="constant", rate_per_second=40),
        "paths": Paths(kind="fixed", paths=[path]),
        "connections": 40,
        "method": "POST",
        "upload": Upload(bytes=[300_000]),
        "timeout_seconds": 20.0,
    }
    return LoadClass(**{**parts, **changes})  # type: ignore[arg-type]


def upload_plan(target: Target, item: LoadClass, **changes: object) -> LoadPlan:
    """Half a second of it: twenty requests."""
    ports = [] if target.unix is not None else [target.port]
    sockets = [target.unix] if target.unix is not None else []
    parts: dict[str, object] = {
        "target": target,
        "classes": [item],
        "duration_seconds": 0.5,
        "drain_seconds": 20.0,
        "permit": Permit(ports=ports, sockets=sockets),
    }
    return LoadPlan(**{**parts, **changes})  # type: ignore[arg-type]


def sent(target: Target, item: LoadClass, **changes: object) -> tuple[ClassMeasurement, Uploads]:
    """What came of a load with bodies."""
    found = run_probe(upload_plan(target, item, **changes)).classes["c"]
    assert found.upload is not None
    return found, found.upload
