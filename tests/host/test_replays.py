"""The same capture gives the same bytes wherever it is read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import RunCli
from needs import lacks
from recorded_hosts import capture_file, facts_bytes
from rows import each_row
from tiers import draws

ROOT = Path(__file__).resolve().parents[2]

NAMES = ["three-disk-node", "container-nginx", "kvm-guest", "silent-sysfs"]


def replayed(capture: Path, *, environment: dict[str, str], directory: Path) -> bytes:
    said = subprocess.run(
        [sys.executable, "-m", "nginx_tune", "inspect", "--host", capture, "-f", "json"],
        capture_output=True, check=True, timeout=120, cwd=directory,
        env={"PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    assert said.stderr == b""
    return said.stdout


@pytest.mark.long
@each_row("name", NAMES[: draws(2, 4)])
def test_with_no_environment_and_from_elsewhere(name: str, tmp_path: Path) -> None:
    golden = facts_bytes(name)
    capture = capture_file(name, tmp_path)
    assert replayed(capture, environment={}, directory=Path("/")) == golden
    odd = {"LC_ALL": "C", "PYTHONHASHSEED": "1", "TZ": "Asia/Kathmandu", "HOME": "/nowhere"}
    assert replayed(capture, environment=odd, directory=tmp_path) == golden


@pytest.mark.needs("root")
def test_this_host_in_a_container_that_has_nothing(run_cli: RunCli, tmp_path: Path) -> None:
    """No /sys, nothing of /proc but an own process, no network, another name, an empty /tmp."""
    capture = tmp_path / "host.json"
    live = run_cli("inspect", "--capture", capture, "-f", "json")
    assert live.returncode == 0
    script = (
        'umount -l /sys; hostname elsewhere; cd /; exec "$@"'
    )  # fmt: skip
    said = subprocess.run(
        ["unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--mount-proc",
         "sh", "-e", "-c", script, "sh", sys.executable, "-m", "nginx_tune", "inspect", "--host",
         capture, "-f", "json"],
        capture_output=True, check=True, timeout=120, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert said.stdout.decode() == live.stdout


OTHERS = [
    path
    for name in ("3.10", "3.12", "3.13")
    for path in sorted(Path.home().glob(f".pyenv/versions/{name}.*/bin/python"))[:1]
]


@each_row("python", lambda: OTHERS or lacks("other-pythons", "none of them"), ids=str)
def test_by_another_python(python: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ready = subprocess.run(
        [python, "-c", "import click, msgspec"], capture_output=True, check=False, env=environment
    )
    if ready.returncode:
        lacks("other-pythons", "no click and msgspec for them")
    for name in NAMES:
        said = subprocess.run(
            [python, "-m", "nginx_tune", "inspect", "--host", capture_file(name, tmp_path),
             "-f", "json"],
            capture_output=True, check=True, env=environment,
        )  # fmt: skip
        assert said.stdout == facts_bytes(name)
