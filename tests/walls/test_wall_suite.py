"""The walls, attacked: whatever a configuration or a module does, the host stays as it was.

By default every attack on the installed nginx, and the modules' on the others of the matrix;
NGINX_TUNE_WALLS=all tries everything on every version, in every place, by both users.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from unprivileged import NOBODY, ROOT, copy_package
from wall_arena import ENTER
from wall_requests import PIPES, all_but

HERE = Path(__file__).parent
SYSTEM_NGINX = "/usr/sbin/nginx"
EVERYTHING = os.environ.get("NGINX_TUNE_WALLS") == "all"
USERS = ("root", "nobody")
TURN = random.SystemRandom().randrange(6)
"""Which place each directive is tried in; six turns are all."""
HOW = ("test", "serve", "request")
"""When a module attacks: as ``nginx -t`` or a server loads it, or in a worker with a request."""
LEAST_REQUESTS = 190
LEAST_ATTACKS = 95
LEAST_CASES = 1200
MODULES = [
    name
    for name in ("lua", "perl")
    if Path(f"/usr/lib/nginx/modules/ngx_http_{name}_module.so").exists()
]

pytestmark = [
    pytest.mark.needs("root", "nginx", "loop", "nobody", "gcc"),
    pytest.mark.alone,
]


def versions() -> list[str]:
    """Other versions of nginx that are here."""
    listing = [ROOT / "tools" / "nginx-matrix", "--list"]
    said = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    programs = [line.split()[1] for line in said.splitlines()]
    return [program for program in programs if program != SYSTEM_NGINX]


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    """A copy of the package that every user may read."""
    path = Path(tempfile.mkdtemp(prefix="nginx-tune-walls-", dir="/var/tmp"))
    path.chmod(0o755)
    yield copy_package(path)
    shutil.rmtree(path)


def attack(package: Path, **request: Any) -> dict[str, Any]:
    """What an attack in an arena of its own told and changed."""
    base = Path(tempfile.mkdtemp(prefix="nginx-tune-walls-", dir="/srv"))
    try:
        run = subprocess.run(
            [*ENTER, sys.executable, HERE / "wall_run.py", package, json.dumps([request])],
            env={**os.environ, "WALLS_ARENA": str(base), "PYTHONPATH": f"{HERE.parent}:{HERE}"},
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
    finally:
        shutil.rmtree(base, ignore_errors=True)
    assert run.returncode == 0, run.stderr[-3000:]
    answer: dict[str, Any] = json.loads(run.stdout)[0]
    return answer


def check_unharmed(answer: dict[str, Any]) -> None:
    changes = answer["changes"]
    assert not changes, f"{len(changes)} changes:\n" + "\n".join(changes[:30])


@pytest.mark.parametrize("how", HOW[:2])
@pytest.mark.parametrize("user", USERS)
def test_a_module_attacks_in_vain(package: Path, user: str, how: str) -> None:
    answer = attack(package, kind="module", user=user, nginx=SYSTEM_NGINX, how=how)
    assert len(answer["results"]) >= LEAST_ATTACKS, answer["said"]
    let = [name for name, error in answer["results"].items() if error == 0]
    assert not let, f"by their own sight they were let: {let}"
    check_unharmed(answer)


@pytest.mark.parametrize(
    ("user", "worker"), [("root", "nobody"), ("root", "root"), ("nobody", "nobody")]
)
def test_a_module_attacks_in_vain_while_it_serves(package: Path, user: str, worker: str) -> None:
    answer = attack(
        package, kind="module", user=user, nginx=SYSTEM_NGINX, how="request", worker=worker
    )
    assert len(answer["results"]) >= LEAST_ATTACKS, answer["said"]
    assert answer["attacker"] == (0 if worker == "root" else NOBODY)
    let = [name for name, error in answer["results"].items() if error == 0]
    assert not let, f"by their own sight they were let: {let}"
    check_unharmed(answer)


@pytest.mark.needs("matrix")
@pytest.mark.parametrize("user", USERS)
def test_a_module_attacks_other_versions_in_vain(package: Path, user: str) -> None:
    attacked: set[str] = set()
    for nginx in versions():
        for how in HOW if EVERYTHING else ("request",):
            answer = attack(package, kind="module", user=user, nginx=nginx, how=how)
            if "GLIBC_" in answer["said"]:
                break  # it runs with a C library that is older than the one the module is for
            attacked.add(nginx)
            assert len(answer["results"]) >= LEAST_ATTACKS, (nginx, answer["said"])
            assert 0 not in answer["results"].values(), (nginx, answer["results"])
            check_unharmed(answer)
    assert attacked


@pytest.mark.parametrize("user", USERS)
def test_directives_reach_nothing(package: Path, user: str) -> None:
    sys.stdout.write(f"turn {TURN}\n")
    for nginx in (SYSTEM_NGINX, *(versions() if EVERYTHING else ())):
        for turn in range(6) if EVERYTHING else (TURN,):
            answer = attack(
                package,
                kind="directives",
                user=user,
                nginx=nginx,
                turn=turn,
                serves=True,
                without_devices=True,
            )
            check_unharmed(answer)
            assert answer["accepted"], answer["said"]
            assert answer["cases"] >= LEAST_CASES, answer["refused_before"][-3:]
            assert len(answer["refused_inside"]) <= 5, answer["refused_inside"]
            served = answer["served"]
            check_unharmed(served)
            assert served["answered"] == served["asked"], (nginx, turn, served)


STUBBED = ["device-socket", "run-socket"]
"""Sockets in directories that are the sandbox's own."""


@pytest.mark.parametrize("user", USERS)
def test_requests_reach_nothing(package: Path, user: str) -> None:
    for nginx in (SYSTEM_NGINX, *(versions() if EVERYTHING else ())):
        modules = MODULES if nginx == SYSTEM_NGINX else []
        answer = attack(package, kind="requests", user=user, nginx=nginx, modules=modules,
                        without=PIPES)  # fmt: skip
        check_unharmed(answer)
        assert answer["answered"] == answer["asked"] > LEAST_REQUESTS, (nginx, answer)
        statuses = answer["statuses"]
        assert [statuses[f"/{kind}/x"] for kind in STUBBED] == [200, 200]
        for number in range(6):
            done = [statuses[f"/{kind}-{number}/x"] for kind in DONE_ON_COVERS]
            assert all(200 <= status < 300 for status in done), (nginx, number, done)


DONE_ON_COVERS = ["log", "log-old", "log-gzip", "store", "store-old", "store-uri", "temp", "cache",
                  "delete", "put", "put-old", "make", "move", "copy"]  # fmt: skip
"""They must have worked, or nothing was tried."""


@pytest.mark.parametrize("user", USERS)
def test_a_pipe_of_the_host_is_no_log(package: Path, user: str) -> None:
    wanted = {"kind": "requests", "user": user, "nginx": SYSTEM_NGINX, "modules": []}
    answer = attack(package, **wanted, without=all_but("log-pipe"))
    check_unharmed(answer)
    assert "a FIFO, not a file" in answer["error"]
    if EVERYTHING:  # the worker waits for a reader, and every request for the worker
        answer = attack(package, **wanted, without=all_but("log-pipe-variable"))
        check_unharmed(answer)
        assert answer["asked"] == 1
        assert answer["faults"] == ["timed out"]


class Wall(NamedTuple):
    """A wall and how to take it away: a file of the package, what stands there, what instead."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    seen_by: tuple[str, ...] = ()
    """Attacks that are let then by their own sight; none where victims or a refusal must tell."""


LAUNCH, ROOT_FILE = "sandbox/launch.py", "sandbox/root.py"
NO_FILTER = (LAUNCH, "calls.install_filter(self._prepared.filter)", "pass")
NO_LANDLOCK = (LAUNCH, "restrict_writes(writable, files)", "pass")
MUTATIONS = [
    Wall("seccomp", (NO_FILTER,), ("unfiltered",)),
    Wall(
        "capabilities",
        ((LAUNCH, "drop_capabilities(is_root=is_root, transparent=wanted.transparent)", "pass"),),
        ("rights",),
    ),
    Wall(
        "no new privileges",
        ((LAUNCH, "        calls.no_new_privileges()\n        writable", "        writable"),),
    ),
    Wall("new root", ((LAUNCH, "build_root(self._prepared.plan)", "pass"),), ("see_hidden",)),
    Wall("network", (("lab/walls.py", '"--net", ', ""),)),
    Wall("process namespace", (NO_FILTER, (LAUNCH, "    | calls.CLONE_NEWPID\n", ""))),
    Wall(
        "read-only mounts, Landlock behind them",
        (NO_LANDLOCK, (ROOT_FILE, "read_only=not place.writable", "read_only=False")),
    ),
]


def without(package: Path, wall: Wall, place: Path) -> Path:
    """The package without a wall."""
    copy = place / "package"
    shutil.copytree(package, copy, symlinks=True)
    for name, old, new in wall.edits:
        file = copy / "nginx_tune" / name
        text = file.read_text()
        assert old in text, f"{name} has changed: say anew how to take away {wall.name}"
        file.write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize("wall", MUTATIONS, ids=lambda wall: wall.name)
def test_a_missing_wall_is_seen(package: Path, wall: Wall) -> None:
    place = Path(tempfile.mkdtemp(prefix="nginx-tune-walls-", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        copy = without(package, wall, place)
        answer = attack(copy, kind="module", user="root", nginx=SYSTEM_NGINX, how="test")
    finally:
        shutil.rmtree(place)
    let = {name for name, error in answer["results"].items() if error == 0}
    sys.stdout.write(f"without {wall.name}: let {sorted(let)}, {len(answer['changes'])} changes\n")
    sys.stdout.write("\n".join([*answer["changes"][:5], answer["said"]]))
    assert set(wall.seen_by) <= let
    assert let or answer["changes"] or not answer["results"], "nobody would have seen it"
