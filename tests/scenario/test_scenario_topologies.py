"""Scenarios over TLS and through a caching proxy, shortly, on a real nginx."""

from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.documents.base import decode
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.scenario import ScenarioRun

SHORT = """
name = "short"
title = "A short one"
kind = "{kind}"
primary_metric = "files.p99"
pairs = 1
warmup_seconds = 0.2
duration_seconds = 1.5
traces = false

[lab]
name = "short"
{lab}

[[lab.disks]]
name = "disk1"
class_name = "memory"
mount = "/srv/disk1"
{disk}

{data}

[baseline]

[candidate]
[[candidate.settings]]
context = "location"
directive = "aio"
args = ["threads"]

[[classes]]
name = "files"
source = "random"
connections = 8
keepalive = false
arrivals = {{ kind = "poisson", rate_per_second = 50.0 }}

[[classes]]
name = "memory"
source = "memory"
connections = 8
arrivals = {{ kind = "poisson", rate_per_second = 50.0 }}
"""

DATA = """
[[lab.data]]
disk = "disk1"
files = 16
file_bytes = 65536
"""
CACHE = "writable = true\nroom_bytes = 67108864"
PROXY = 'topology = "proxy"\norigin = { delay_seconds = 0.002, files = 20, file_bytes = 30000 }'


def run(run_cli: RunCli, tmp_path: Path, **parts: str) -> ScenarioRun:
    file = tmp_path / "short.toml"
    file.write_text(SHORT.format(**parts))
    result = run_cli("-q", "scenario", "run", file, "-f", "json", timeout=240)
    assert result.returncode in {0, 1, 4}, result.stderr
    return decode(ScenarioRun, result.stdout.encode())


def served(result: ScenarioRun, variant: str) -> dict[str, ClassMeasurement]:
    """What the variant's last block served; nothing failed in it."""
    block = [block for block in result.measurements if block.variant == variant][-1]
    for name, part in block.classes.items():
        assert part.requests > 0, name
        assert not part.errors, (name, part.errors)
    return block.classes


@pytest.mark.needs("root", "nginx", "loop", "probe", "openssl", "ip")
@pytest.mark.parametrize(
    "around", ['topology = "link"\n', pytest.param("", marks=pytest.mark.thorough)]
)
def test_clients_speak_tls(run_cli: RunCli, tmp_path: Path, around: str) -> None:
    result = run(run_cli, tmp_path, kind="static", lab=f"{around}tls = true", disk="", data=DATA)
    for variant in result.variants:
        assert " ssl;" in variant.nginx_conf
    for variant in ("baseline", "candidate"):
        assert served(result, variant)["files"].statuses.keys() == {"200"}


@pytest.mark.needs("root", "nginx", "loop", "probe")
def test_the_plain_variant_of_a_proxy_caches_what_the_origin_has(
    run_cli: RunCli, tmp_path: Path
) -> None:
    result = run(run_cli, tmp_path, kind="cache", lab=PROXY, disk=CACHE, data="")
    plain, threads = (variant.nginx_conf for variant in result.variants[:2])
    for text in (plain, threads):
        assert "proxy_pass http://origin;" in text
        assert "proxy_cache_path /srv/disk1" in text
    assert "aio threads;" in threads
    assert "aio" not in plain
    for variant in ("baseline", "candidate"):
        assert served(result, variant)["files"].bytes >= 30000
