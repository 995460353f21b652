"""A lab over TLS whose blocks start with a full page cache, on a real nginx."""

from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.documents.base import decode
from nginx_tune.documents.scenario import ScenarioRun

MEMORY_BYTES = 64 << 20
SCENARIO = f"""
name = "tls-full"
title = "Files over TLS, more than memory holds"
kind = "media"
starts = "full"
traces = false
drain_seconds = 1.0
primary_metric = "cold.mean"
[lab]
memory_bytes = {MEMORY_BYTES}
tls = true
[[lab.disks]]
name = "disk1"
class_name = "memory"
mount = "/srv/disk1"
[[lab.data]]
disk = "disk1"
files = 84
file_bytes = 1048576
[[classes]]
name = "cold"
source = "random"
connections = 8
arrivals = {{ kind = "poisson", rate_per_second = 20.0 }}
[[classes]]
name = "hot"
source = "hot"
connections = 8
arrivals = {{ kind = "poisson", rate_per_second = 20.0 }}
"""


@pytest.mark.needs("root", "nginx", "loop", "probe", "openssl")
def test_a_lab_speaks_tls_and_begins_with_a_full_page_cache(
    run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "tls.toml"
    file.write_text(SCENARIO)
    result = run_cli(
        "-q", "scenario", "run", str(file), "--pairs", "1", "--duration", "1s", "-f", "json",
        timeout=120,
    )  # fmt: skip
    run = decode(ScenarioRun, result.stdout.encode(), source=result.stderr)
    assert len(run.measurements) >= 2
    for variant in run.variants:
        assert "ssl_certificate" in variant.nginx_conf
    for block in run.measurements:
        resident = block.server.resident_bytes_before
        assert resident is not None
        assert 0.5 * MEMORY_BYTES < resident <= MEMORY_BYTES, "full, and not beyond the limit"
        for one in block.classes.values():
            assert one.requests > 0
            assert sum(one.errors.values()) == 0
    assert run.prediction.decisions[0].id == "thread-pools"
