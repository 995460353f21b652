"""Versions of nginx that proofs run on.

The one that is installed, and those that ``tools/nginx-matrix`` has unpacked. The gate takes the
installed one and the newest of the matrix. A version that is not here skips.
"""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools" / "nginx-matrix"
SERIES = ("1.18", "1.22", "1.26", "1.30")
NEWEST = SERIES[-1]
SYSTEM = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")


class Nginx(NamedTuple):
    """A program, and the version it says it is."""

    program: str
    version: str
    build: str
    """All that ``nginx -V`` says."""

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))

    @property
    def series(self) -> str:
        return self.version.rpartition(".")[0]


@cache
def ask(program: str) -> Nginx:
    """What a program says of itself."""
    build = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stderr
    match = re.search(r"nginx/([0-9.]+)", build)
    assert match is not None, build
    return Nginx(program, match[1], build)


def installed() -> Nginx:
    """The nginx of this machine."""
    assert SYSTEM is not None, "a test that asks this needs nginx"
    return ask(SYSTEM)


@cache
def _installed_series() -> str:
    return installed().series if SYSTEM is not None else ""


def need(series: str) -> str:
    """The name of what a test of this series needs."""
    return f"nginx-{series}"


def since(series: str) -> pytest.MarkDecorator:
    """Run a test on this and every later version of the matrix."""
    return versions(*SERIES[SERIES.index(series) :])


def versions(*series: str) -> pytest.MarkDecorator:
    """Run a test on these versions of the matrix."""
    return pytest.mark.parametrize("nginx", marked(*series), indirect=True)


def marked(*series: str) -> list[object]:
    """Values for a parameter, a version each, with what they need and the tier they belong to."""
    return [pytest.param(one, marks=[pytest.mark.needs(need(one)), *_tier(one)]) for one in series]


def _tier(series: str) -> list[pytest.MarkDecorator]:
    return [] if series in {NEWEST, _installed_series()} else [pytest.mark.thorough]


every_version = versions(*SERIES)


def find_nginx(series: str) -> Nginx:
    """The nginx of a series that a test needs (`marked`)."""
    return ask(present()[series])


@cache
def present() -> dict[str, str]:
    """The program of each series that is here."""
    said = subprocess.run([TOOL, "--list"], capture_output=True, text=True, check=False)
    return dict(line.split(maxsplit=1) for line in said.stdout.splitlines())


@cache
def stream_modules() -> list[str]:
    """The modules stream and mail for the installed nginx, where they are here."""
    command = [TOOL, "--modules", "--list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.stdout.splitlines()
