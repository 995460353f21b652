"""A real nginx for each test that asks for one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apply_site import Site


@pytest.fixture
def root() -> Iterator[Path]:
    """Not below pytest's own directory, whose parents belong to who runs the tests."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp" if os.geteuid() else "/root", prefix="nt-apply-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_site(root: Path) -> Iterator[Callable[..., Site]]:
    """Start one; it ends with the test."""
    pids = []

    def make(
        top: str = "", http: str = "", *, server: str = "", binary: str = "/usr/sbin/nginx",
        user: str = "root",
    ) -> Site:  # fmt: skip
        site = Site(root, binary, user)
        site.conf.write_text(site.text(top, http))
        if server:
            (site.tree / "conf.d" / "site.conf").write_text(server)
        site.start()
        pids.append(site.pid)
        sites.append(site)
        return site

    sites: list[Site] = []
    yield make
    for site, pid in zip(sites, pids, strict=True):
        site.stop(pid)
