"""A decision over a range of each fact that may flip it."""

import subprocess
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from rows import each_row
from situations import GIBIBYTE, host, load, site

from nginx_tune.decide.engine import decide, sweep
from nginx_tune.documents.base import encode

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.thorough
@each_row("name", ["thread-pools", "open-file-cache", "backlog"])
def test_the_table_agrees_with_the_decision(name: str) -> None:
    facts, workload = host(), load(rate=500, cold_peak=20)
    (now,) = [d for d in decide(facts, workload, site=site()).decisions if d.id == name]
    steps = sweep(name, facts, workload, site())
    assert {s.fact for s in steps} >= {b.fact for b in now.break_evens}
    assert now.break_evens
    for fact, group in groupby(steps, lambda s: s.fact):
        rows = list(group)
        assert [s.value for s in rows] == sorted(s.value for s in rows)
        assert [s.verdict for s in rows if s.is_now] == [now.verdict], fact
        assert any(s.flips for s in rows) == any(b.fact == fact for b in now.break_evens)
        for one, before in zip(rows[1:], rows, strict=False):
            assert one.flips == (one.verdict != before.verdict)


@pytest.mark.thorough
@pytest.mark.long
def test_explain_shows_it(run_cli: Run, tmp_path: Path) -> None:
    facts, workload = tmp_path / "f.json", tmp_path / "w.json"
    facts.write_bytes(encode(host()))
    workload.write_bytes(encode(load(data_bytes=256 * GIBIBYTE)))
    run = run_cli("explain", "thread-pools", "--facts", facts, "--workload", workload)
    assert run.returncode == 0, run.stderr
    table = run.stdout[run.stdout.index("On this host, with other values") :]
    (now,) = [line for line in table.splitlines() if "256.0 GiB" in line]
    assert now.split()[-3:] == ["enable", "<-", "now"]
    assert any(line.split()[-3:] == ["enable", "<-", "flips"] for line in table.splitlines())
    run = run_cli("explain", "thread-pools", "--facts", "live", "--workload", workload)
    assert run.returncode == 0, run.stderr
    assert "On this host, with other values" in run.stdout


@each_row(
    ("arguments", "said"),
    [
        (["thread-pools", "--workload", "/no"], "--workload needs --facts"),
        (["hot.p99", "--facts", "/no"], "--facts needs the name of a decision"),
        (["thread-pools", "--facts", "/no"], "cannot read"),
    ],
)
def test_wrong_calls(run_cli: Run, arguments: list[str], said: str) -> None:
    run = run_cli("explain", *arguments)
    assert run.returncode == 2
    assert said in run.stderr
