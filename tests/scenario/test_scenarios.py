"""The built-in scenarios, short, through the command line on a real nginx in a real lab."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.audit.engine import audit
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.base import decode
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.experiment.scenario.files import list_scenarios

in_the_lab = pytest.mark.needs("root", "nginx", "loop", "blkio", "probe")


def run(run_cli: RunCli, *arguments: str) -> ScenarioRun:
    result = run_cli("-q", "scenario", "run", *arguments, "-f", "json", timeout=240)
    assert result.returncode in {0, 1, 4}, result.stderr
    assert "Traceback" not in result.stderr
    return decode(ScenarioRun, result.stdout.encode())


def held(result: ScenarioRun) -> dict[str, bool]:
    return {claim.expected: claim.held for claim in result.claims}


@in_the_lab
def test_thread_pools_free_the_hot_load(run_cli: RunCli) -> None:
    result = run(run_cli, "thread-pools", "--pairs", "1", "--duration", "4s")
    claims = held(result)
    assert claims["decision(thread-pools) == enable"]
    assert claims["predicted(ratio(hot.requests_per_second)) >= 10"]
    variants = {variant.variant: variant.nginx_conf for variant in result.variants}
    assert "aio threads" in variants["candidate"]
    assert "aio threads" not in variants["baseline"]
    blocks = {block.variant: block for block in result.measurements}
    before, after = blocks["baseline"].classes, blocks["candidate"].classes
    assert after["hot"].requests_per_second >= 10 * before["hot"].requests_per_second
    assert after["hot"].response_seconds.mean is not None
    assert before["hot"].response_seconds.mean is not None
    assert after["hot"].response_seconds.mean <= before["hot"].response_seconds.mean / 10
    # A hot file waits for one file of each random reader: 20 of 4 MiB at 80 MiB/s are a second.
    assert 0.5 <= before["hot"].response_seconds.mean <= 2
    for block in blocks.values():
        assert block.server.resident_bytes_before == 0, "the cache was cold"
        assert block.server.pool_overflow == 0
        assert sum(item.truncated for item in block.classes.values()) == 0
    # The audit, with the facts of this very host, says the right thing about each variant.
    rules = {
        variant: {finding.rule for finding in audit(parse_text(text), result.facts).findings}
        for variant, text in variants.items()
    }
    assert "io-no-pool-cold-dataset" in rules["baseline"]
    assert not {rule for rule in rules["candidate"] if rule.startswith("io-")}
    # The worker that reads in its loop sits in disk sleep; the one with a pool does not.
    assert (blocks["baseline"].server.workers[0].state_d_ratio or 0) > 0.3
    assert (blocks["candidate"].server.workers[0].state_d_ratio or 0) < 0.1


@in_the_lab
@pytest.mark.alone  # compares CPU times
@pytest.mark.thorough
def test_page_cache_fits_leaves_thread_pools_off(run_cli: RunCli) -> None:
    result = run(run_cli, "page-cache-fits", "--pairs", "2", "--duration", "2s")
    claims = held(result)
    assert claims["decision(thread-pools) == disable"]
    variants = {variant.variant: variant.nginx_conf for variant in result.variants}
    assert "aio threads;" in variants["candidate"]
    assert "aio threads;" not in variants["baseline"]
    cpu: dict[str, list[float]] = {"baseline": [], "candidate": []}
    for block in result.measurements:
        assert block.server.cpu_seconds_per_request is not None
        cpu[block.variant].append(block.server.cpu_seconds_per_request)
    assert min(cpu["candidate"]) > min(cpu["baseline"])


@pytest.mark.thorough
@in_the_lab
@pytest.mark.needs("fuse")
def test_what_caches_hold_is_known_and_not_fetched_anew(run_cli: RunCli) -> None:
    """As it is in the first minute of an nginx whose loader has not come yet."""
    result = run(run_cli, "cache-disks", "--pairs", "1", "--duration", "3s")
    for block in result.measurements:
        assert block.server.resident_bytes_before == 0, "of what they hold nothing is in memory"
        assert (block.server.disk_read_bytes or 0) > 0
        assert block.server.disk_written_bytes == 0, block.variant
        assert block.classes["healthy-a"].requests > 0


def test_an_unknown_scenario_is_a_usage_error(run_cli: RunCli) -> None:
    result = run_cli("scenario", "run", "thread-pool")
    assert result.returncode == 2
    assert "no scenario 'thread-pool'" in result.stderr
    assert "thread-pools" in result.stderr


def test_a_scenario_file_that_is_none_is_a_usage_error(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n')
    result = run_cli("scenario", "run", file)
    assert result.returncode == 2
    assert f"{file}: not a scenario" in result.stderr
    file.write_text("= 3")
    result = run_cli("scenario", "run", file)
    assert result.returncode == 2
    assert "not TOML" in result.stderr


FAKE = """#!/bin/sh
echo 'nginx version: nginx/1.22.1' >&2
echo 'configure arguments: --with-http_ssl_module' >&2
"""


def test_an_nginx_without_threads_is_said_before_anything_runs(
    run_cli: RunCli, tmp_path: Path
) -> None:
    binary = tmp_path / "nginx"
    binary.write_text(FAKE)
    binary.chmod(0o755)
    result = run_cli("scenario", "run", "thread-pools", "--nginx", binary, "--trust")
    assert result.returncode == 4
    assert "is built without --with-threads" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.needs("root")
def test_without_nginx_the_scenario_says_what_to_install() -> None:
    # Nothing on PATH, the sbin directories hidden and no nginx running: namespaces of its own.
    command = (
        "for place in /usr/sbin /sbin /usr/local/sbin; do mount -t tmpfs tmpfs $place; done; "
        "unset NGINX_TUNE_SCENARIO_RUN_NGINX; "
        f"exec {sys.executable} -m nginx_tune scenario run thread-pools"
    )
    result = subprocess.run(
        ["unshare", "-m", "-p", "--fork", "--mount-proc", "sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": "/usr/bin:/bin:/sbin"},
    )
    assert result.returncode == 4, result.stderr
    assert "nginx is not installed" in result.stderr


@pytest.mark.needs("userns", "nginx")
def test_without_root_the_lab_says_so() -> None:
    # The caller's files stay readable, but it is not root: a user namespace maps it to another id.
    result = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-user=1000",
            "--map-group=1000",
            sys.executable,
            "-m",
            "nginx_tune",
            "-q",
            "scenario",
            "run",
            "thread-pools",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 4, result.stderr
    assert "needs root" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_list_names_every_scenario(run_cli: RunCli) -> None:
    listed = run_cli("scenario", "list").stdout
    for scenario in list_scenarios():
        assert scenario.name in listed
