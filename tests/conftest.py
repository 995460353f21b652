"""Fixtures for all tests, and the skips that NGINX_TUNE_REQUIRE turns into failures."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import free_ports
import pytest
from hypothesis import settings
from needs import has, required, untested
from second_try import pytest_runtest_setup

__all__ = ["pytest_runtest_setup"]

# Hypothesis fails an example that takes longer than 200 ms: no test here asserts a time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, and so would be the
# programs that tests stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent


SIDE_BY_SIDE = {
    "adopt", "audit", "cli", "conf", "emit", "learn", "page", "report", "secrets", "terminal",
    "bench/test_copied_advice.py", "bench/test_version_table.py", "experiment/test_trials.py",
    "nginx/test_split_clients.py", "probe/test_probe_packets.py", "sandbox/test_plan_filter.py",
    "scenario/test_scenario_files.py", "test_packaging.py",
}  # fmt: skip
"""Rooms, and files of other rooms, whose tests start an nginx each, and neither take time nor
devices."""
WAITING = {
    "apply", "examples", "store", "walls", "experiment/test_tls_lab.py", "host/test_trust.py",
    "lab/test_bounds.py", "lab/test_images.py", "lab/test_other_users_directories.py",
    "lab/test_special_files.py",
    "nginx/test_nginx_instance.py", "probe/test_conformance.py", "probe/test_probe_command.py",
    "probe/test_probe_far.py", "probe/test_probe_fits.py", "probe/test_probe_http2.py",
    "probe/test_probe_http2_paces.py", "probe/test_probe_http3.py", "probe/test_probe_migration.py",
    "probe/test_probe_plans.py", "probe/test_probe_tls.py", "probe/test_probe_transport.py",
    "probe/test_probe_upload_guard.py", "probe/test_probe_upload_link.py",
    "probe/test_probe_uploads.py", "probe/test_probe_waits.py", "probe/test_probe_websockets.py",
    "rehearse/test_rehearse_sites.py", "scenario/test_scenario_arms.py",
    "validate/test_asked_sites.py", "validate/test_lost_places.py",
    "validate/test_validate_searches.py", "validate/test_validate_sites.py",
    "validate/test_validate_whole_sites.py",
    "window/test_observed_causes.py", "window/test_observed_waits.py",
}  # fmt: skip
"""Those whose tests wait more than they compute and compare no times: four files at a time."""


STAGES = ("waiting", "alone")


def _stage(path: Path) -> str | None:
    """The stage of a file's tests that need something; None: they run with all others."""
    file = path.relative_to(ROOT / "tests")
    names = {file.parts[0], file.as_posix()}
    return None if names & SIDE_BY_SIDE else "waiting" if names & WAITING else "alone"


@functools.cache
def _may_have(path: Path, stage: str) -> bool:
    text = path.read_text()
    return f"mark.{stage}" in text or ("needs(" in text and _stage(path) == stage)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A stage reads the files with tests of its own: all take ten seconds in each process."""
    stage = config.option.markexpr
    if stage in STAGES and collection_path.name.startswith("test_"):
        return True if not _may_have(collection_path, stage) else None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        stage = _stage(item.path)
        if not item.get_closest_marker("alone") and item.get_closest_marker("needs") and stage:
            item.add_marker(stage)
        if not any(item.get_closest_marker(name) for name in ("needs", *STAGES)):
            item.add_marker(pytest.mark.flaky(reruns=0))  # what only computes has no second try
        for name in STAGES:
            if item.get_closest_marker(name) and not _may_have(item.path, name):
                raise pytest.UsageError(
                    f"{item.nodeid}: `-m {name}` would not read its file: mark it there, "
                    f"by pytest.mark.needs(...) or pytest.mark.{name}"
                )
    for item in items:
        for marker in item.iter_markers("needs"):
            for name in marker.args:
                if not has(name) and name not in required():
                    item.add_marker(pytest.mark.skip(reason=f"{name}: not on this host"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was not tested, at the end; `make test` keeps it in a file and prints all of it last."""
    skipped = terminalreporter.stats.get("skipped", [])
    lines = untested(report.longrepr[2] for report in skipped)
    again = _passed_again(terminalreporter.stats)
    for title, found in (("not tested on this host", lines), ("not at the first try", again)):
        if found:
            terminalreporter.section(title)
            for line in found:
                terminalreporter.line(line)
    lines += [f"{line} (passed at the second try)" for line in again]
    if not lines:
        return
    if file := os.environ.get("UNTESTED_FILE"):
        with Path(file).open("a") as kept:
            kept.writelines(f"{line}\n" for line in lines)


def _passed_again(stats: Mapping[str, Sequence[Any]]) -> list[str]:
    """Tests that failed, then passed: on a noisy machine, or seldom wrong. Both are to be seen."""
    failed = {report.nodeid for name in ("failed", "error") for report in stats.get(name, [])}
    rerun = {report.nodeid: report.longrepr for report in stats.get("rerun", [])}
    return [
        f"{name}: {str(getattr(why, 'reprcrash', why)).partition(chr(10))[0]}"
        for name, why in rerun.items()
        if name not in failed
    ]


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
def run_cli() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``nginx-tune`` as a user does: a process of its own."""

    def run(
        *arguments: str | Path,
        stdin: str | bytes = "",
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "nginx_tune", *map(str, arguments)],
            input=stdin.decode() if isinstance(stdin, bytes) else stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )

    return run
