"""Two pages of docs/: their blocks are run as they stand, in a place of the test's own."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from command_line import RunCli
from free_ports import free_port
from recorded_hosts import facts_file

PAGE = Path(__file__).resolve().parents[2] / "docs" / "first-change.md"
QUICKER = {
    "validate --plan plan.json --max-time 5min": "validate --plan plan.json --dry-run",
    "rehearse --plan plan.json": "rehearse --plan plan.json --help",
    "--watch 5s": "--watch 200ms",
    "nginx-tune confirm": "nginx-tune confirm --state-dir $PWD/state",
    "nginx-tune history": "nginx-tune history --state-dir $PWD/state",
    "nginx-tune rollback": "cp nginx.conf applied; nginx-tune rollback --state-dir $PWD/state",
    "--confirm 60s": "--confirm 60s --state-dir $PWD/state",
    "cd / && rm -r /opt/first": "true",
}
"""What the test changes: proofs in the sandbox have tests of their own."""


@pytest.mark.needs("root", "nginx", "probe")
def test_the_first_change_can_be_followed_literally(root: Path) -> None:
    top = root / "first"
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    for old, new in QUICKER.items():
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    script = script.replace("/opt/first", str(top)).replace("8080", str(free_port()))
    (root / "nginx-tune").write_text(f'#!/bin/sh\nexec {sys.executable} -m nginx_tune "$@"\n')
    (root / "nginx-tune").chmod(0o755)
    path = {"PATH": f"{root}:{os.environ['PATH']}:/usr/sbin", "TMPDIR": str(root)}
    run = subprocess.run(
        ["bash", "-euc", f"trap 'kill $(cat {top}/nginx.pid)' ERR\n{script}"],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    before = script.partition("<<'END'\n")[2].partition("END\n")[0]
    assert (top / "applied").read_text() != before
    assert (top / "nginx.conf").read_text() == before
    assert "every file is as it was; nginx: reloaded" in run.stdout
    # As the page shows it.
    for said in ("nginx-tune: 1 file changed", "2 new workers, 2 seen to answer on 1 listener\n"):
        assert said in run.stderr
        assert said.strip() in PAGE.read_text()


ROOT = Path(__file__).resolve().parents[2]
FACTS = facts_file("raid10-4hdd")

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
def test_each_line_does_what_it_says(make_site: Callable[..., Site], run_cli: RunCli) -> None:
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
