"""The first example of docs/server.md: each line runs as it stands, on an nginx of the test."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from recorded_hosts import facts_file

ROOT = Path(__file__).resolve().parents[2]
FACTS = facts_file("raid10-4hdd")
Run = Callable[..., "subprocess.CompletedProcess[str]"]
QUICK = {
    "audit": ["--fail-on", "never"],  # of this configuration there is something to be found
    "plan": ["--facts", str(FACTS), "--only", "connections"],
    "validate": ["--dry-run"],
    "rehearse": ["--help"],
    "apply": [],
    "confirm": [],
    "rollback": [],
}
"""What the test adds, to be short: the proofs in the sandbox have tests of their own."""


def commands() -> list[list[str]]:
    text = (ROOT / "docs" / "server.md").read_text()
    block = re.search(r"## Change your nginx\n\n.+\n\n((?:    .+\n)+)", text)
    assert block
    lines = (line.partition("  #")[0] for line in block[1].splitlines())
    return [shlex.split(line.strip().removeprefix("sudo ")) for line in lines]


@pytest.mark.needs("root", "nginx")
def test_each_line_does_what_it_says(make_site: Callable[..., Site], run_cli: Run) -> None:
    site = make_site()
    before = snapshot(site.tree)
    plan = site.root / "plan.json"
    places = {"/etc/nginx/nginx.conf": str(site.conf), "plan.json": str(plan), "30s": "200ms"}
    places["json=plan.json"] = f"json={plan}"
    said = {}
    for program, verb, *rest in commands():
        assert program == "nginx-tune"
        given = [places.get(one, one) for one in rest] + QUICK[verb]
        if verb in ("apply", "confirm", "rollback"):
            given += ["--state-dir", str(site.state.path)]
        run = run_cli(verb, *given)
        assert run.returncode == 0, (verb, run.stderr)
        said[verb] = run.stdout
        if verb == "rehearse":
            options = [one for one in rest if one.startswith("-")]
            assert all(one in run.stdout for one in options)
        if verb == "confirm":
            assert snapshot(site.tree) != before
    assert set(said) == set(QUICK)
    assert snapshot(site.tree) == before
    assert site.ask() == "old\n"
