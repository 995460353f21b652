"""Captures of hosts by name: recordings from their files, machines from ``machines*.py``."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

HOSTS = Path(__file__).resolve().parent / "host"
sys.path.insert(0, str(HOSTS))

import machines  # noqa: E402
import machines_more  # noqa: E402

from nginx_tune.documents.base import decode, encode  # noqa: E402
from nginx_tune.documents.inspection import Capture  # noqa: E402
from nginx_tune.observe.inspect.inspection import record_host  # noqa: E402

BUILDERS = {**machines.CAPTURES, **machines_more.CAPTURES}
RECORDINGS = sorted(path.stem for path in HOSTS.glob("*.json") if ".facts" not in path.name)
NAMES = sorted([*BUILDERS, *RECORDINGS])


@cache
def capture_bytes(name: str) -> bytes:
    """The file as ``inspect --capture`` writes it."""
    if name in BUILDERS:
        return encode(record_host(*BUILDERS[name]()))
    return (HOSTS / f"{name}.json").read_bytes()


def read_capture(name: str) -> Capture:
    return decode(Capture, capture_bytes(name), source=f"{name}.json")


def capture_file(name: str, directory: Path) -> Path:
    """The same as a file, for who reads one."""
    path = directory / f"{name}.json"
    path.write_bytes(capture_bytes(name))
    return path


def golden_facts(name: str) -> bytes:
    """What it must give, reviewed by a person."""
    return (HOSTS / "golden" / f"{name}.facts.json").read_bytes()
