"""Captures of hosts by name: recordings from their files, machines from ``machines*.py``."""

import atexit
import json
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HOSTS = Path(__file__).resolve().parent / "host"
sys.path.insert(0, str(HOSTS))

import freebsd  # noqa: E402
import machines  # noqa: E402
import machines_more  # noqa: E402

from nginx_tune.documents.base import decode, encode  # noqa: E402
from nginx_tune.documents.inspection import Capture  # noqa: E402
from nginx_tune.observe.inspect.inspection import record_host, replay  # noqa: E402

BUILDERS = {**machines.CAPTURES, **machines_more.CAPTURES}
RECORDINGS = sorted(path.stem for path in HOSTS.glob("*.json"))
LIKE = {"kvm-nic": "kvm-guest"}
"""Recordings of one machine: the first has only the answers that the second does not have."""
NAMES = sorted([*BUILDERS, *RECORDINGS])
EXPECTED = HOSTS / "facts.txt"
"""What they give, reviewed by a person."""


@cache
def capture_bytes(name: str) -> bytes:
    """The file as ``inspect --capture`` writes it."""
    if name in BUILDERS:
        return encode(record_host(*BUILDERS[name]()))
    recorded = json.loads((HOSTS / f"{name}.json").read_bytes())
    if name in LIKE:
        recorded["answers"] = json.loads(capture_bytes(LIKE[name]))["answers"] | recorded["answers"]
    return json.dumps(recorded, ensure_ascii=False).encode()


def read_capture(name: str) -> Capture:
    return decode(Capture, capture_bytes(name), source=f"{name}.json")


def capture_file(name: str, directory: Path) -> Path:
    """The same as a file, for who reads one."""
    path = directory / f"{name}.json"
    path.write_bytes(capture_bytes(name))
    return path


@cache
def facts_bytes(name: str) -> bytes:
    """Its facts, as ``inspect --host`` writes them."""
    return encode(replay(read_capture(name)))


@cache
def facts_file(name: str) -> Path:
    """Its facts as a file that all may read, until the tests end."""
    path = _folder() / f"{name}.facts.json"
    path.write_bytes(facts_bytes(name))
    return path


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="nginx-tune-facts-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def freebsd_file(directory: Path) -> Path:
    """Facts of a FreeBSD host, which nothing reads: they are written by hand."""
    path = directory / "freebsd.facts.json"
    path.write_bytes(encode(freebsd.freebsd()))
    return path


def _objects(value: Any, place: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each object with the place where it stands and its values, as JSON."""
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from _objects(part, f"{place}[{index}]")
    elif isinstance(value, dict):
        nested = {
            key: part
            for key, part in value.items()
            if isinstance(part, dict)
            or (isinstance(part, list) and any(isinstance(one, dict) for one in part))
        }
        yield (place, {key: json.dumps(part) for key, part in value.items() if key not in nested})
        for key, part in nested.items():
            yield from _objects(part, f"{place}.{key}".lstrip("."))


def distinct_facts() -> str:
    """The facts of all hosts, a line for each object: each value where it comes first.

    A reader that gives another value on any host writes a line that was not there. Nulls, their
    reasons and what is copied as it is (sysctls, flags of a build) are left out.
    """
    seen: set[tuple[str, str, str]] = set()
    lines = []
    for name in NAMES:
        lines.append(f"[{name}]")
        facts = json.loads(facts_bytes(name))
        del facts["unknown"], facts["kernel"]["sysctls"]
        facts["nginx"].pop("flags", None)
        for place, values in _objects(facts, ""):
            kind = re.sub(r"\[\d+\]", "", place)
            new = {
                key: value
                for key, value in values.items()
                if value != "null" and (kind, key, value) not in seen
            }
            seen |= {(kind, key, value) for key, value in new.items()}
            if new:
                words = "; ".join(f"{key} {value}" for key, value in new.items())
                lines += textwrap.wrap(f"{place}: {words}", 160, subsequent_indent="    ")
        lines.append("")
    return "\n".join(lines)
