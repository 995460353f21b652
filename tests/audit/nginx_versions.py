"""Versions of nginx that proofs run on.

The one that is installed, and those that ``tools/nginx-matrix`` has unpacked. A version that is
not there skips with a reason; with ``matrix`` in NGINX_TUNE_REQUIRE it is fetched, or the test
fails.
"""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest
from needs import lacks, required
from scratch_nginx import NGINX

TOOL = Path(__file__).resolve().parents[2] / "tools" / "nginx-matrix"
SERIES = ("1.18", "1.22", "1.26", "1.30")


class Nginx(NamedTuple):
    """A program, and the version it says it is."""

    program: str
    version: str
    build: str
    """All that ``nginx -V`` says."""

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))


def since(series: str) -> pytest.MarkDecorator:
    """Run a test on this and every later version of the matrix."""
    return versions(*SERIES[SERIES.index(series) :])


def versions(*series: str) -> pytest.MarkDecorator:
    """Run a test on these versions of the matrix."""
    return pytest.mark.parametrize(
        "nginx",
        [pytest.param(one, marks=pytest.mark.needs("matrix")) for one in series],
        indirect=True,
    )


every_version = versions(*SERIES)


def find_nginx(series: str) -> Nginx:
    """The nginx of a series, or a skip."""
    program = _present().get(series)
    if program is None and "matrix" in required():
        said = subprocess.run([TOOL, series], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
        program = said.stdout.split()[1]
    if program is None:
        lacks("matrix", f"no nginx {series} here (tools/nginx-matrix gets it)")
    return _ask(program)


@lru_cache(maxsize=1)
def installed() -> Nginx:
    """The nginx of this machine."""
    return _ask(NGINX)


@lru_cache(maxsize=1)
def _present() -> dict[str, str]:
    said = subprocess.run([TOOL, "--list"], capture_output=True, text=True, check=True)
    return dict(line.split(maxsplit=1) for line in said.stdout.splitlines())


@lru_cache(maxsize=8)
def _ask(program: str) -> Nginx:
    build = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stderr
    match = re.search(r"nginx/([0-9.]+)", build)
    assert match is not None, build
    return Nginx(program, match[1], build)
