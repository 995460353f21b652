"""Ctrl-C while Python still imports: one line and 130, whichever module it meets."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rows import each_row

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTS = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from nginx_tune.__main__ import main
sys.argv = ["nginx-tune", "schema", "facts"]
sys.exit(main())
"""


def run(name: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", before + INTERRUPTS.format(name=name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize(
    "name",
    [
        "nginx_tune.cli.signals", "click", "nginx_tune.cli.main", "nginx_tune.errors",
        "nginx_tune.cli.schema", "nginx_tune.report.terminal.output", "msgspec",
        "nginx_tune.report.terminal.live_view",
        "nginx_tune.documents.registry",
    ],
)  # fmt: skip
def test_ctrl_c_amid_an_import_is_a_line_and_130(name: str) -> None:
    ended = run(name)
    if name == "nginx_tune.report.terminal.live_view":  # is not imported: nothing is shown
        assert ended.returncode == 0
        return
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "nginx-tune: interrupted\n"


def test_where_it_is_ignored_it_stays_so() -> None:
    """As in a background job of a shell."""
    ended = run("click", f"import signal; signal.signal({int(signal.SIGINT)}, signal.SIG_IGN)\n")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_program_begins_there() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    assert 'nginx-tune = "nginx_tune.__main__:main"' in lines


def test_python_m_begins_there_too() -> None:
    code = INTERRUPTS.format(name="click").partition("from nginx_tune")[0]
    code += "import runpy; sys.argv[1:] = ['schema']; "
    code += "runpy.run_module('nginx_tune', run_name='__main__')"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (130, "nginx-tune: interrupted\n")


@pytest.mark.long
@pytest.mark.parametrize("place", ["/proc", "/sys/class", "/dev", "/proc/../proc/1"])
@each_row("command", ["inspect", "recommend"])
def test_no_kernel_s_own_directory_is_a_dataset(command: str, place: str) -> None:
    argv = [sys.executable, "-m", "nginx_tune", command, "--dataset", place]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert ended.returncode == 2
    assert f"--dataset {place}: " in ended.stderr
    assert len(ended.stderr.splitlines()) <= 2
