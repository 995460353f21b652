"""Names that are made cold are read from the disk again, whoever else had the lab in sight."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("root", "loop")

_MAIN = """
import json, subprocess, sys
from pathlib import Path
from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.errors import UndecidedError
from nginx_tune.nginx.lab.building import LabDisks
from nginx_tune.nginx.lab import disks as lab_disks
from nginx_tune.nginx.lab.enclosure import Enclosure
from nginx_tune.sandbox.kernel_calls import enter_mounts

directory, holds_seconds = Path(sys.argv[1]), sys.argv[2]
disk = LabDisk(name="one", mount=str(directory / "mounted"))
data = LabData(disk="one", files=400, file_bytes=4096, directories=400)
enclosure = Enclosure()
lab = Lab(name="cold", disks=[disk], data=[data], cold_names=True)
disks = LabDisks(lab, directory, enclosure, str)
disks.prepare()
enclosure.begin(directory)
disks.open()

def reads_of_a_look():
    (number,) = disks.device_numbers.values()
    counted = Path("/sys/dev/block", number, "stat")
    before = int(counted.read_text().split()[0])
    disks.look_names_up()
    return int(counted.read_text().split()[0]) - before

said = {"first": reads_of_a_look(), "warm": reads_of_a_look()}
holder = subprocess.Popen(
    ["unshare", "--mount", "sh", "-c", "echo there; exec sleep " + holds_seconds],
    stdout=subprocess.PIPE,
    preexec_fn=lambda: enter_mounts(enclosure.covers.namespace),
)
holder.stdout.readline()
lab_disks._UNMOUNT_SECONDS = 2.0
try:
    disks.make_names_cold()
    said["cold"] = reads_of_a_look()
except UndecidedError as error:
    said["error"] = error.message
holder.kill()
holder.wait()
print(json.dumps(said))
"""


def run(directory: Path, holds_seconds: float) -> dict[str, int | str]:
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        "-c",
        _MAIN,
        str(directory),
    ]
    done = subprocess.run(
        [*command, str(holds_seconds)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_tracer_that_ends_late_is_waited_for(tmp_path: Path) -> None:
    """A sandbox that is about to go has a mount of its own, and keeps the names."""
    said = run(tmp_path, 0.5)
    assert said["warm"] == 0
    assert min(int(said["first"]), int(said["cold"])) >= 400, said


def test_names_that_cannot_be_made_cold_are_told(tmp_path: Path) -> None:
    said = run(tmp_path, 30)
    assert "still mounted in another mount namespace 2 s after" in str(said["error"])
