"""The Indexed Job: valid for Kubernetes, and its own command run in three namespaces.

No cluster runs here: `stand_in_kubectl.py` stands for the control plane.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fleet import Fleet, adds_up, fleet_of, load_plan

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/kubernetes"
JOB: Any = yaml.safe_load((EXAMPLE / "load-job.yaml").read_text())

pytestmark = pytest.mark.thorough


@pytest.mark.needs("kubernetes-validate")
def test_the_manifest_is_strictly_valid() -> None:
    import kubernetes_validate  # noqa: PLC0415

    for version in ("1.29", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(JOB, version, strict=True)


def test_as_many_stripes_as_pods() -> None:
    spec = JOB["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    hosts = {one["name"]: one.get("value") for one in container["env"]}["HOSTS"]
    assert int(hosts) == spec["completions"] == spec["parallelism"]


@pytest.mark.needs("shellcheck")
def test_the_script_is_sound() -> None:
    run = subprocess.run(["shellcheck", EXAMPLE / "load"], capture_output=True, check=False)
    assert run.returncode == 0, run.stdout.decode()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_of(tmp_path_factory.mktemp("pods"), 4) as running:
        yield running


def load(
    fleet: Fleet, folder: Path, namespaces: list[str]
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """What ./load says, and the directory of its results."""
    tools = folder / "bin"
    tools.mkdir()
    target = fleet.hosts[3].address
    program = f'exec {sys.executable} {Path(__file__).with_name("stand_in_kubectl.py")} "$@"'
    for name, line in (
        ("kubectl", program),
        ("nginx-tune", f'exec {sys.executable} -m nginx_tune "$@"'),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    (folder / "plan.json").write_text(json.dumps(load_plan(target)))
    (folder / "state").mkdir()
    run = subprocess.run(
        [EXAMPLE / "load", "plan.json", target, "8"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}",
             "PODS_STATE": str(folder / "state"), "PODS_NAMESPACES": ",".join(namespaces)},
    )  # fmt: skip
    (results,) = (folder / "results").iterdir()
    return run, results


@pytest.mark.alone
@pytest.mark.needs("root", "nginx", "ip", "sshd", "bwrap", "probe")
def test_three_pods_are_one_load(fleet: Fleet, tmp_path: Path) -> None:
    names = [fleet.namespace(host.name) for host in fleet.hosts[:3]]
    run, results = load(fleet, tmp_path, names)
    assert run.returncode == 0, run.stdout + run.stderr
    merged = json.loads((results / "merged.json").read_text())
    adds_up([json.loads(one.read_text()) for one in results.glob("nginx-*.json")], merged)


@pytest.mark.alone
@pytest.mark.needs("root", "nginx", "ip", "sshd", "bwrap", "probe")
def test_a_pod_that_failed_is_a_stripe_that_is_lost(fleet: Fleet, tmp_path: Path) -> None:
    names = [fleet.namespace(host.name) for host in fleet.hosts[:3]]
    run, results = load(fleet, tmp_path, [names[0], "no-such-namespace", names[2]])
    assert run.returncode == 4, run.stdout + run.stderr
    assert "part of the load is lost: of seed 1, stripes 1 of 3 are missing" in run.stderr
    merged = json.loads((results / "merged.json").read_text())
    assert [one["stripe"]["index"] for one in merged["agents"]] == [0, 2]
