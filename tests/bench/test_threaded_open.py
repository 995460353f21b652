"""The scenario of benchmarks/threaded_open.py: one that can be run, about one switch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nginx_tune.experiment.scenario.files import check_scenario, load_scenario

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
FILE = BENCHMARKS / "threaded-open.toml"
sys.path.insert(0, str(BENCHMARKS))

import threaded_open  # noqa: E402


def test_its_arms_differ_by_the_pool_of_open_alone() -> None:
    scenario = load_scenario(str(FILE), lambda path: msgspec.toml.decode(path.read_bytes()))
    check_scenario(scenario)
    before = [(one.directive, *one.args) for one in scenario.baseline.settings]
    after = [(one.directive, *one.args) for one in scenario.candidate.settings]
    assert ("aio", "threads") in before
    assert after == [*before, ("vod_open_file_thread_pool", "default")]
    assert {claim.source_row for claim in scenario.claims} == {"C8"}


def test_the_module_is_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "module"
    module.mkdir()
    (module / "config").write_text("ngx_addon_name=one\n")
    git = ["git", "-C", module, "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "config"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)

    def build(source: str, version: str, work: Path, *, module: Path) -> str:
        assert (source, version, work.is_dir()) == ("nginx.git", "1.22.1", True)
        assert (module / "config").read_text() == "ngx_addon_name=one\n"
        (work / "built").write_text("program")
        return str(work / "built")

    monkeypatch.setattr(threaded_open, "build", build)
    made = threaded_open.build_threaded("nginx.git", str(module), "1.22.1", tmp_path / "to" / "it")
    assert made == tmp_path / "to" / "it" / "nginx"
    assert made.read_text() == "program"
