"""Each benchmark finds what it imports, and run-all knows it."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

EACH = """
import importlib, os, runpy, sys, traceback
scripts, modules = (words.split() for words in sys.argv[1:])
for module in modules:
    importlib.import_module(module)
for script in scripts:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # As where it is run by its name: its own directory comes first.
            sys.path[0] = os.path.dirname(os.path.abspath(script))
            sys.argv = [script]
            runpy.run_path(script, run_name="imported")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        print(script)
"""
"""Tries each in a process of its own, and names those that fail. What they share of the package is
imported once: that is what would take time."""


@pytest.mark.long
def test_a_benchmark_finds_what_it_imports() -> None:
    texts = {
        str(file.relative_to(ROOT)): file.read_text(encoding="utf-8")
        for file in sorted((ROOT / "benchmarks").rglob("*.py"))
    }
    scripts = [name for name, text in texts.items() if '__name__ == "__main__"' in text]
    assert "benchmarks/modelled_disks.py" in scripts
    found = re.compile(r"^from (nginx_tune[\w.]*) import", re.MULTILINE)
    shared = {module for name in scripts for module in found.findall(texts[name])}
    exists = [
        one for one in sorted(shared)
        if (ROOT / one.replace(".", "/")).is_dir()
        or (ROOT / f"{one.replace('.', '/')}.py").is_file()
    ]  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", EACH, " ".join(scripts), " ".join(exists)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_every_benchmark_is_run_or_left_out_with_a_reason() -> None:
    directory = ROOT / "benchmarks"
    run_all = runpy.run_path(str(directory / "run-all"))
    named = {*run_all["COMMANDS"], *run_all["LEFT_OUT"]}
    assert {path.stem for path in directory.glob("*.py")} <= named
    assert [name for name in named if not (directory / f"{name}.py").is_file()] == []
