"""Disks on disks: what is asked of both counts once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_hosts import read_capture
from tiers import REPEAT, dice, draws

from nginx_tune.host.live import LiveHost
from nginx_tune.host.recording import RecordedHost
from nginx_tune.host.storage import read_storage
from nginx_tune.observe.accounting import DelayReading
from nginx_tune.observe.parse_counters import DiskCounters
from nginx_tune.observe.window.moment import Moment, Subjects
from nginx_tune.observe.window.observation import watched_disks
from nginx_tune.observe.window.window import read_bytes

ASK = (
    "import json, sys; from nginx_tune.host.live import LiveHost; "
    "from nginx_tune.observe.window.observation import watched_disks; "
    "print(json.dumps(watched_disks(LiveHost(), sys.argv[1:])))"
)
LOOPS = (
    "truncate -s 64M one.img; mkfs.ext4 -q -F one.img; mkdir one; mount -o loop one.img one; "
    "truncate -s 24M one/two.img; mkfs.ext4 -q -F one/two.img; mkdir two; "
    "mount -o loop one/two.img two"
)


@pytest.mark.needs("root", "loop")
def test_a_loop_on_a_loop_on_a_disk(tmp_path: Path) -> None:
    """Mounts live in a namespace that ends with the test, and with it the loop devices."""
    command = f'set -e; cd {tmp_path}; {LOOPS}; "$@"'
    paths = [str(tmp_path / name) for name in ("two", "one", ".")]
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh", sys.executable, "-c", ASK, *paths],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    names, on = json.loads(said.stdout)
    loops = [name for name in names if name.startswith("loop")]
    assert len(loops) == 2
    # The upper loop is right on the lower one, and only that on the disk.
    [lower] = [name for name in loops if name in on]
    [upper] = [name for name in loops if name != lower]
    assert on[lower] == [upper]
    below = read_storage(LiveHost(), [str(tmp_path)])[0].paths[0].leaf_disks
    assert set(names) - set(loops) == set(below)
    for disk in below:
        assert on[disk] == [lower]


def test_members_of_an_array_stand_beside_each_other() -> None:
    for name in ("lvm-on-md", "raid10-4hdd"):
        host = RecordedHost(read_capture(name).answers)
        mounts = [path.path for path in read_storage(host, [])[0].paths]
        names, on = watched_disks(host, mounts)
        assert len(names) >= 2, name
        assert on == {}, name
    assert watched_disks(LiveHost(), []) == ((), {})


def moment(**bytes_read: int) -> Moment:
    disks = {name: DiskCounters(0, count, 0, 0, 0, 0) for name, count in bytes_read.items()}
    return Moment(at=0.0, delays=DelayReading(0.0, {}), disks=disks)


def test_what_is_asked_of_both_is_read_once() -> None:
    deal = dice("disks on disks")
    for _ in range(draws(100, 1000)):
        own = {name: deal.randrange(1 << 30) for name in ("upper", "lower", "disk", "other")}
        through = {
            "upper": own["upper"],
            "lower": own["upper"] + own["lower"],
            "disk": own["upper"] + own["lower"] + own["disk"],
            "other": own["other"],
        }
        subjects = Subjects(
            master=1, workers=[], disks=tuple(own), below={"lower": ("upper",), "disk": ("lower",)}
        )
        before = moment(**dict.fromkeys(own, 7))
        after = moment(**{name: 7 + count for name, count in through.items()})
        assert read_bytes(before, after, subjects) == sum(own.values()), REPEAT
        gone = moment(upper=7)
        assert read_bytes(gone, after, subjects) is None
    # The page cache of the image answers some of what the loop asks for.
    subjects = Subjects(master=1, workers=[], disks=("l", "d"), below={"d": ("l",)})
    assert read_bytes(moment(l=0, d=0), moment(l=100, d=30), subjects) == 100
