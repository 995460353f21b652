"""Scenario files with a fault are refused before anything runs."""

from importlib import resources
from pathlib import Path

import pytest
from command_line import RunCli

GOOD = (resources.files("nginx_tune") / "scenarios" / "page-cache-fits.toml").read_text()
DISK = '[[lab.disks]]\nname = "disk1"\nclass_name = "memory"\nmount = "/srv/disk1"\n'
FAULTS = {
    "no disk": (DISK, "", "lab.disks: none"),
    "no such disk": ('disk = "disk1"', 'disk = "disk9"', "lab.data"),
    "no files": ("files = 2000", "files = 0", "lab.data"),
    "relative mount": ("/srv/disk1", "srv/disk1", "lab.disks.mount"),
    "mount of all": ("/srv/disk1", "/", "lab.disks.mount"),
    "mount above": ("/srv/disk1", "/srv/../etc", "lab.disks.mount"),
    "a path for a name": ('"disk1"', '"../x"', "lab.disks: not a valid name"),
    "no pairs": ("pairs = 8", "pairs = 0", "pairs"),
    "no such function": ("total.truncated == 0", "nonsense(x) =", "no function 'nonsense'"),
    "no such metric": ('"server.cpu_seconds_per_request"', '"foo"', "unknown metric 'foo'"),
    "hot and once": ('source = "random"', 'source = "hot"\nonce = true', "classes.once"),
    "misspelt": ("pairs = 8", "paris = 8", "a scenario has no 'paris'"),
}


@pytest.mark.needs("nginx")
def test_a_fault_is_named_in_one_line(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    for fault, (right, wrong, said) in FAULTS.items():
        assert right in GOOD, fault
        file.write_text(GOOD.replace(right, wrong))
        run = run_cli("-q", "scenario", "run", file)
        assert run.returncode == 2, (fault, run.stderr)
        assert said in run.stderr, fault
        assert len(run.stderr.splitlines()) == 1, fault
