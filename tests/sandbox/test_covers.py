"""What nginx writes to: reached from the lab by no path, and read without following a link."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tiers import REPEAT, dice, draws

from nginx_tune.sandbox.covers import open_below, open_files

PRELUDE = """
import json, os, sys
from pathlib import Path
from nginx_tune.nginx.lab.enclosure import Enclosure
lab, host = map(Path, sys.argv[1:])
enclosure = Enclosure()
enclosure.begin(lab)
"""


def inside(tmp_path: Path, script: str, host: Path) -> str:
    """What a process says that is a lab's."""
    (tmp_path / "lab").mkdir()
    code = PRELUDE + textwrap.dedent(script)
    run = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc",
         sys.executable, "-c", code, tmp_path / "lab", host],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.needs("root")
def test_no_path_of_the_lab_leads_to_what_nginx_writes(tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "kept").write_text("whole")
    said = inside(
        tmp_path,
        """
        enclosure.cover(str(host))
        enclosure.copy(str(host / "."))
        names = list(enclosure.covers.path(".").iterdir())
        for name in ("cover-1", "cover-2"):
            (enclosure.covers.path(name) / "planted").write_text("by nginx")
        found = [str(p) for top in (lab, host) for p in top.rglob("planted")]
        mounts = Path("/proc/self/mountinfo").read_text()
        try:
            (host / "kept").write_text("changed")
        except OSError as error:
            sealed = error.errno
        seen = sorted(p.name for p in enclosure.covers.path("cover-2").iterdir())
        print(json.dumps([found, "covers" in mounts, sealed, seen]))
        """,
        host,
    )
    assert json.loads(said) == [[], False, errno.EROFS, ["kept", "planted"]]
    assert (host / "kept").read_text() == "whole"


@pytest.mark.needs("root")
def test_directories_that_are_named_inside_a_covered_one_are_there(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "site" / "deep").mkdir(parents=True)
    (logs / "error.log").write_text("whole")
    said = inside(
        tmp_path,
        """
        enclosure.cover(str(host), [str(host), f"{host}/site/deep", f"{host}/none", str(lab)])
        root = enclosure.covers.path("cover-1")
        print(" ".join(sorted(str(path.relative_to(root)) for path in root.rglob("*"))))
        """,
        logs,
    )
    assert said == "site site/deep\n"


@pytest.mark.needs("root")
def test_a_mount_that_lies_under_another_keeps_nothing_from_being_sealed(tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (tmp_path / "lab").mkdir()
    script = f"""
        set -e
        mount --make-rprivate /
        mkdir {host}/a
        mount -t tmpfs under {host}/a
        mkdir {host}/a/hidden
        mount -t tmpfs hidden {host}/a/hidden
        mount -t tmpfs over {host}/a
        {sys.executable} -c '{PRELUDE}' {tmp_path}/lab {host} | cat
        ! touch {host}/a/file 2>/dev/null
        ! touch {host}/file 2>/dev/null
        touch {tmp_path}/lab/file
    """
    run = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


def make_root(place: Path) -> Path:
    log = place / "root" / "sub" / "error.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"all of it")
    (place / "secret").write_bytes(b"the host's")
    return place / "root"


def test_what_nginx_put_in_its_place_is_not_opened(tmp_path: Path) -> None:
    for what in ("link", "directory link", "pipe", "directory", "loop", "up", "nothing"):
        is_not_opened(make_root(tmp_path / what), what)


def is_not_opened(root: Path, what: str) -> None:
    log, path = root / "sub" / "error.log", "sub/error.log"
    log.unlink()
    if what == "link":
        log.symlink_to(root.parent / "secret")
    elif what == "directory link":
        log.parent.rmdir()
        log.parent.symlink_to(root.parent)
        path = "sub/secret"
    elif what == "pipe":
        os.mkfifo(log)
    elif what == "directory":
        log.mkdir()
    elif what == "loop":
        log.symlink_to(log.name)
    elif what == "up":
        path = "sub/../../secret"
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match=r".") as caught:
        open_below(root, path)
    refused = {errno.ENOENT} if what == "nothing" else {errno.ELOOP, errno.EINVAL}
    assert caught.value.errno in refused, what
    assert set(Path("/proc/self/fd").iterdir()) == before, f"a descriptor stayed open: {what}"


def test_only_what_is_no_link_opens(tmp_path: Path) -> None:
    """Trees at random: a file opens exactly when its name is its real path."""
    for number in range(draws(4, 60)):
        place = tmp_path / str(number)
        place.mkdir()
        only_what_is_no_link_opens(place, dice(f"links {number}"))


def only_what_is_no_link_opens(tmp_path: Path, draw: random.Random) -> None:
    places = [tmp_path]
    for number in range(12):
        place = draw.choice(places) / f"n{number}"
        if draw.random() < 0.3:
            place.symlink_to(draw.choice(places), target_is_directory=True)
        else:
            place.mkdir()
        places.append(place)
    there = {os.path.relpath(os.path.realpath(place / "file"), tmp_path) for place in places}
    for place in places:
        path = place / "file"
        path.write_bytes(b"x")
        name = str(path.relative_to(tmp_path))
        if Path(os.path.realpath(path)) == path:
            os.close(open_below(tmp_path, name))
        else:
            with pytest.raises(OSError, match="symbolic links"):
                open_below(tmp_path, name)
    (tmp_path / "linked").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert {name for name, _ in open_files(tmp_path)} == there, REPEAT
