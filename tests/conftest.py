"""Fixtures for all tests, and the skips that NGINX_TUNE_REQUIRE turns into failures."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import command_line
import free_ports
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from needs import has, required, untested
from tiers import ALL, SEED

# Hypothesis fails an example that takes longer than 200 ms: no test asserts a time. In the gate
# it draws the same each time.
settings.register_profile("gate", max_examples=40, deadline=None, derandomize=True, database=None)
settings.register_profile("all", deadline=None, print_blob=True)
settings.load_profile("all" if ALL else "gate")
# Hypothesis also draws constants that it finds in the loaded modules, so what a test draws would
# depend on which tests ran before it. Looking for them takes 3 CPU seconds in each process.
providers._get_local_constants = lambda: providers._local_constants

# Pytest imports readline, which puts COLUMNS into the environment of the programs that tests start.
for _name in ("COLUMNS", "LINES"):
    if _name not in os.environ:
        os.unsetenv(_name)

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, and so would be the
# programs that tests stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_report_header() -> str:
    return f"tests: {'all' if ALL else 'the gate'}, SEED={SEED}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not ALL:
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    for item in items:
        for marker in item.iter_markers("needs"):
            for name in marker.args:
                if not has(name) and name not in required():
                    item.add_marker(pytest.mark.skip(reason=f"{name}: not on this host"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was not tested, at the end; `make test` keeps it in a file and prints all of it last."""
    if hasattr(config, "workerinput"):  # a worker's part of it is in the whole
        return
    skipped = terminalreporter.stats.get("skipped", [])
    lines = untested(report.longrepr[2] for report in skipped)
    if not lines:
        return
    terminalreporter.section("not tested on this host")
    for line in lines:
        terminalreporter.line(line)
    if file := os.environ.get("UNTESTED_FILE"):
        with Path(file).open("a") as kept:
            kept.writelines(f"{line}\n" for line in lines)


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs that tests store are not among the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def free_port() -> int:
    """A port that nobody has."""
    return free_ports.free_port()


@pytest.fixture
def run_cli() -> Callable[..., command_line.Run]:
    """Run ``nginx-tune`` in this process."""
    return command_line.call


@pytest.fixture
def start_cli() -> Callable[..., command_line.Run]:
    """Run ``nginx-tune`` as a process of its own: for what only a process has."""
    return command_line.start
