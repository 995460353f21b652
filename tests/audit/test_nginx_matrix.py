"""``tools/nginx-matrix`` where it cannot do what it is for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nginx_versions import TOOL, find_nginx, marked


def _run(*arguments: str, cache: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "PATH": path or os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, TOOL, *arguments], capture_output=True, text=True, check=False, env=env
    )


def test_nothing_is_listed_that_is_not_there(tmp_path: Path) -> None:
    said = _run("--list", cache=tmp_path)
    assert said.returncode == 0
    assert all(Path(line.split()[1]).exists() for line in said.stdout.splitlines())
    assert str(tmp_path) not in said.stdout
    assert list(tmp_path.iterdir()) == [], "nothing was downloaded"


def test_a_version_that_nobody_packs(tmp_path: Path) -> None:
    said = _run("0.9", cache=tmp_path)
    assert said.returncode == 2
    assert said.stderr.startswith("nginx-matrix: 0.9: one of 1.18,")


def test_without_apt_it_says_so(tmp_path: Path) -> None:
    said = _run("1.30", cache=tmp_path, path=str(tmp_path))
    assert said.returncode == 1
    assert said.stderr == "nginx-matrix: 1.30: there is no apt-get\n"
    assert said.stdout == ""


@pytest.mark.parametrize("series", marked("1.18", "1.26", "1.30"))
def test_a_version_says_what_it_is(series: str) -> None:
    assert find_nginx(series).version.startswith(f"{series}.")
