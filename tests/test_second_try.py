"""What the second try of a test sees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import pathlib, pytest
LOG = pathlib.Path(__file__).with_name("log")

def say(text):
    with LOG.open("a") as log:
        log.write(text)

@pytest.fixture(scope="session")
def whole():
    say("s")

@pytest.fixture(scope="module")
def measured(whole):
    say("+")
    yield LOG.read_text().count("+")
    say("-")

@pytest.fixture(scope="module")
def judged(measured):
    yield 10 * measured
    say("j")

def test_first(judged):
    assert judged == 10

def test_second(judged, measured):
    assert (judged, measured) == (20, 2)

def test_third(judged):
    assert judged == 20
"""


def test_what_a_module_measured_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "test_measured.py"
    file.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "second_try", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_ADDOPTS": ""}
    run = subprocess.run(
        [*command, "--reruns=1", f"--rootdir={tmp_path}", file],
        check=False, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60,
    )  # fmt: skip
    assert "3 passed, 1 rerun" in run.stdout, run.stdout
    assert (tmp_path / "log").read_text() == "s+j-+j-"
