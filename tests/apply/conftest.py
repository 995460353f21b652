"""A real nginx for each test that asks for one."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apply_site import Site
from left_running import end_all


@pytest.fixture
def root() -> Iterator[Path]:
    """Not below pytest's own directory, whose parents belong to who runs the tests.

    Whatever runs of it then, ends with the test.
    """
    path = Path(tempfile.mkdtemp(dir="/var/tmp" if os.geteuid() else "/root", prefix="nt-apply-"))
    yield path
    end_all(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_site(root: Path) -> Callable[..., Site]:
    """Start one; it ends with the test."""

    def make(
        top: str = "", http: str = "", *, server: str = "", binary: str = "/usr/sbin/nginx",
        user: str = "root",
    ) -> Site:  # fmt: skip
        site = Site(root, binary, user)
        site.conf.write_text(site.text(top, http))
        if server:
            (site.tree / "conf.d" / "site.conf").write_text(server)
        site.start()
        return site

    return make
