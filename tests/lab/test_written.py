"""Reading what nginx wrote: nothing that it put in a file's place leads elsewhere or hangs."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.block import _NothingKeptError, _open_log
from nginx_tune.lab.written import open_written, written_bytes


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "sub" / "error.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"all of it")
    (tmp_path / "secret").write_bytes(b"the host's")
    return path


def test_a_file_is_read(log: Path) -> None:
    with open_written(log) as file:
        assert file.read() == b"all of it"
    with open_written(log.parent / ".." / "sub" / "error.log") as file:
        assert file.read() == b"all of it"
    assert written_bytes(log) == 9
    assert written_bytes(log.parent / "none") == 0


@pytest.mark.parametrize("what", ["link", "directory link", "pipe", "directory", "loop", "device"])
def test_what_nginx_put_in_its_place_is_not_opened(log: Path, what: str, tmp_path: Path) -> None:
    log.unlink()
    if what == "link":
        log.symlink_to(tmp_path / "secret")
    elif what == "directory link":
        log.parent.rmdir()
        log.parent.symlink_to(tmp_path)
        log = log.parent / "secret"
    elif what == "pipe":
        os.mkfifo(log)
    elif what == "directory":
        log.mkdir()
    elif what == "loop":
        log.symlink_to(log.name)
    else:
        log = Path("/dev/null")
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match=r"symbolic links|not a file|keeps nothing") as caught:
        open_written(log)
    assert caught.value.errno in {errno.ELOOP, errno.EINVAL, errno.ENODEV}
    assert (caught.value.errno == errno.ENODEV) is (what == "device")
    assert set(Path("/proc/self/fd").iterdir()) == before, "a descriptor stayed open"
    assert written_bytes(log) == 0
    refused = _NothingKeptError if what == "device" else UndecidedError
    with pytest.raises(refused, match=None if what == "device" else "of this block is not read"):
        _open_log(log, tmp_path / "secret")


def test_without_a_log_what_nginx_said_is_read(log: Path, tmp_path: Path) -> None:
    log.unlink()
    with _open_log(log, tmp_path / "secret") as file:
        assert file.read() == b"the host's"


@pytest.mark.needs("root")
def test_the_host_s_own_links_are_followed_where_nobody_can_write(tmp_path: Path) -> None:
    (tmp_path / "disk" / "deep" / "logs").mkdir(parents=True)
    (tmp_path / "disk" / "deep" / "logs" / "error.log").write_text("seen")
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "a").symlink_to("../disk/deep/../deep/logs")
    (tmp_path / "host" / "b").symlink_to(tmp_path / "host" / "a")
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from nginx_tune.lab.written import open_written
        print(open_written(Path(sys.argv[1])).read().decode())
    """)
    command = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    for name in ("a", "b"):
        argv = ["unshare", "-m", "sh", "-c", command, "sh", tmp_path / "host",
                sys.executable, "-c", script, tmp_path / "host" / name / "error.log"]  # fmt: skip
        run = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert run.stdout == "seen\n", run.stderr


@pytest.mark.parametrize("seed", range(20))
def test_only_what_is_no_link_opens(seed: int, tmp_path: Path) -> None:
    """Trees at random: the file opens exactly when its name is its real path."""
    draw = random.Random(seed)
    places = [tmp_path]
    for number in range(12):
        place = draw.choice(places) / f"n{number}"
        if draw.random() < 0.3:
            place.symlink_to(draw.choice(places), target_is_directory=True)
        else:
            place.mkdir()
        places.append(place)
    for place in places:
        path = place / "file"
        path.write_bytes(b"x")
        if Path(os.path.realpath(path)) == path:
            open_written(path).close()
        else:
            with pytest.raises(OSError, match="symbolic links"):
                open_written(path)
