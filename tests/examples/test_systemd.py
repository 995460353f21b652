"""The systemd units: systemd's own checks, and their commands run with the powers they keep."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

UNITS = Path(__file__).resolve().parents[2] / "examples" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
EXPOSURE_MOST = {"nginx-tune-audit.service": 30, "nginx-tune-recover.service": 50}
"""In tenths, as ``systemd-analyze security --threshold`` takes it; an ordinary unit has 96. The one
that puts files back has the host's own mounts."""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The units with the program where it is on this machine."""
    program = Path(sys.executable).parent / "nginx-tune"
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/usr/local/bin/nginx-tune", str(program))
        (tmp_path / unit.name).write_text(text)
    return tmp_path


@pytest.mark.needs("systemd")
def test_systemd_finds_no_fault(here: Path) -> None:
    units = [unit for unit in here.iterdir() if unit.suffix in {".service", ".timer"}]
    check = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr
    assert not [line for line in check.stderr.splitlines() if "nginx-tune" in line]


@pytest.mark.needs("systemd")
@pytest.mark.parametrize("service", [unit.name for unit in SERVICES])
def test_a_service_keeps_little_power(here: Path, service: str) -> None:
    check = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MOST[service]}",
         here / service],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert check.returncode == 0, check.stdout[-300:]


def _setting(unit: str, name: str) -> str:
    found = re.search(rf"^{name}=(.*)$", unit, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.needs("root", "nginx")
def test_the_audit_works_with_the_powers_it_keeps(here: Path, tmp_path: Path) -> None:
    unit = (here / "nginx-tune-audit.service").read_text()
    output = tmp_path / "nginx-tune.prom"
    folder = _setting(unit, "ReadWritePaths")
    command = _setting(unit, "ExecStart").replace(f"{folder}/nginx-tune.prom", str(output))
    kept = [f"+{name.lower()[4:]}" for name in _setting(unit, "CapabilityBoundingSet").split()]
    run = subprocess.run(
        ["setpriv", "--no-new-privs", f"--bounding-set={','.join(['-all', *kept])}",
         *command.split()],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode in {0, int(_setting(unit, "SuccessExitStatus"))}, run.stderr
    families = {one.name: one for one in text_string_to_metric_families(output.read_text())}
    assert len(families["nginx_tune_audit_findings"].samples) == 4
    (parsed,) = families["nginx_tune_audit_files_parsed"].samples
    assert parsed.value >= 1
