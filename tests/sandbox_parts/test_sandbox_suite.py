"""The sandbox, attacked: whatever a configuration or a module does, the host stays as it was.

The gate tries every attack on the installed nginx, by root and by nobody; `make test-all` every
version, in every place.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from needs import lacks
from nginx_versions import present
from sandbox_attack import SYSTEM_NGINX, TURN, TURNS, USERS, attack
from sandbox_requests import PIPES, all_but
from tiers import ALL, REPEAT
from unprivileged import NOBODY

HOW = ("test", "serve", "request")
"""When a module attacks: as ``nginx -t`` or a server loads it, or in a worker with a request."""
NEWER = ("1.26", "1.30")
"""Of the matrix: one of them in each run."""
LEAST_REQUESTS = 190
LEAST_ATTACKS = 95
LEAST_CASES = 1200
HELD_SECONDS = 50
"""A worker that waits at a pipe is ended after more than that."""
MODULES = [
    name
    for name in ("lua", "perl")
    if Path(f"/usr/lib/nginx/modules/ngx_http_{name}_module.so").exists()
]

pytestmark = pytest.mark.needs("root", "nginx", "loop", "nobody", "gcc")


def versions() -> list[str]:
    """Other versions of nginx that are here."""
    return [program for program in present().values() if program != SYSTEM_NGINX]


def check_unharmed(answer: dict[str, Any]) -> None:
    changes = answer["changes"]
    assert not changes, f"{len(changes)} changes: " + "\n".join(changes[:30])


@pytest.mark.parametrize(
    ("user", "how"),
    [
        pytest.param("root", "test", marks=pytest.mark.thorough),
        pytest.param("nobody", "serve", marks=pytest.mark.thorough),
        pytest.param("root", "serve", marks=pytest.mark.thorough),
        pytest.param("nobody", "test", marks=pytest.mark.thorough),
    ],
)
def test_a_module_attacks_in_vain(package: Path, user: str, how: str) -> None:
    answer = attack(package, kind="module", user=user, nginx=SYSTEM_NGINX, how=how)
    assert len(answer["results"]) >= LEAST_ATTACKS, answer["said"]
    let = [name for name, error in answer["results"].items() if error == 0]
    assert not let, f"by their own sight they were let: {let}"
    check_unharmed(answer)


@pytest.mark.parametrize(
    ("user", "worker"),
    [
        ("root", "root"),
        pytest.param("nobody", "nobody", marks=pytest.mark.thorough),
        pytest.param("root", "nobody", marks=pytest.mark.thorough),
    ],
)
def test_a_module_attacks_in_vain_while_it_serves(package: Path, user: str, worker: str) -> None:
    answer = attack(
        package,
        kind="module",
        user=user,
        nginx=SYSTEM_NGINX,
        how="request",
        worker=worker,
        sockets=worker == "root",
    )
    assert len(answer["results"]) >= LEAST_ATTACKS, answer["said"]
    assert answer["attacker"] == (0 if worker == "root" else NOBODY)
    let = [name for name, error in answer["results"].items() if error == 0]
    assert not let, f"by their own sight they were let: {let}"
    check_unharmed(answer)


@pytest.mark.needs("nginx-1.30")
@pytest.mark.thorough
@pytest.mark.parametrize("user", USERS)
def test_a_module_attacks_other_versions_in_vain(package: Path, user: str) -> None:
    attacked: set[str] = set()
    if not versions():
        lacks("nginx-1.26", "the newest of the matrix is the installed one")
    for nginx in versions():
        for how in HOW:
            answer = attack(package, kind="module", user=user, nginx=nginx, how=how)
            if "GLIBC_" in answer["said"]:
                break  # it runs with a C library that is older than the one the module is for
            attacked.add(nginx)
            assert len(answer["results"]) >= LEAST_ATTACKS, (nginx, answer["said"])
            assert 0 not in answer["results"].values(), (nginx, answer["results"])
            check_unharmed(answer)
    assert attacked


@pytest.mark.parametrize("user", ["root", pytest.param("nobody", marks=pytest.mark.thorough)])
def test_directives_reach_nothing(package: Path, user: str) -> None:
    sys.stdout.write(f"turn {TURN} ({REPEAT})\n")
    for nginx in (SYSTEM_NGINX, *(versions() if ALL else ())):
        for turn in range(TURNS) if ALL else (TURN,):
            answer = attack(
                package,
                kind="directives",
                user=user,
                nginx=nginx,
                turn=turn,
                serves=True,
                without_devices=True,
            )
            check_directives(answer, nginx)


def check_directives(answer: dict[str, Any], nginx: str) -> None:
    check_unharmed(answer)
    assert answer["accepted"], answer["said"]
    least = LEAST_CASES if nginx == SYSTEM_NGINX else 1000  # older ones know fewer
    assert answer["cases"] >= least, answer["refused_before"][-3:]
    assert len(answer["refused_inside"]) <= 5, answer["refused_inside"]
    served = answer["served"]
    check_unharmed(served)
    assert served["answered"] == served["asked"], (nginx, served)


@pytest.mark.needs("nginx-1.30")
@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["directives", "requests"])
def test_an_ordinary_users_other_version_reaches_nothing(package: Path, kind: str) -> None:
    others = [nginx for nginx in versions() if Path(nginx).parent.name in NEWER]
    if not others:
        lacks("nginx-1.26", "the newest of the matrix is the installed one")
    nginx = others[TURN % len(others)]
    sys.stdout.write(f"{nginx}, turn {TURN} ({REPEAT})\n")
    wanted: dict[str, Any] = {"kind": kind, "user": "nobody", "nginx": nginx}
    if kind == "requests":
        check_requests(attack(package, **wanted, modules=[], without=PIPES), nginx)
    else:
        more = {"turn": TURN, "serves": True, "without_devices": True}
        check_directives(attack(package, **wanted, **more), nginx)


STUBBED = ["device-socket", "run-socket"]
"""Sockets in directories that are the sandbox's own."""


@pytest.mark.parametrize("user", ["root", pytest.param("nobody", marks=pytest.mark.thorough)])
def test_requests_reach_nothing(package: Path, user: str) -> None:
    for nginx in (SYSTEM_NGINX, *(versions() if ALL else ())):
        modules = MODULES if nginx == SYSTEM_NGINX else []
        answer = attack(package, kind="requests", user=user, nginx=nginx, modules=modules,
                        without=[*PIPES, *lacking(nginx)])  # fmt: skip
        check_requests(answer, nginx)


def lacking(nginx: str) -> list[str]:
    """The kinds of requests that a build has no module for."""
    said = subprocess.run([nginx, "-V"], capture_output=True, text=True, check=True).stderr
    return [] if "random_index_module" in said else ["index"]


def check_requests(answer: dict[str, Any], nginx: str) -> None:
    check_unharmed(answer)
    assert answer["answered"] == answer["asked"] > LEAST_REQUESTS, (nginx, answer)
    statuses = answer["statuses"]
    assert [statuses[f"/{kind}/x"] for kind in STUBBED] == [200, 200]
    for number in range(6):
        done = [statuses[f"/{kind}-{number}/x"] for kind in DONE_ON_COVERS]
        named = dict(zip(DONE_ON_COVERS, done, strict=True))
        assert {k: v for k, v in named.items() if not 200 <= v < 300} == {}, (nginx, number)


DONE_ON_COVERS = ["log", "log-old", "log-gzip", "store", "store-old", "store-uri", "temp", "cache",
                  "delete", "put", "put-old", "make", "move", "copy"]  # fmt: skip
"""They must have worked, or nothing was tried."""


@pytest.mark.parametrize("user", ["nobody", pytest.param("root", marks=pytest.mark.thorough)])
def test_a_pipe_of_the_host_is_no_log(package: Path, user: str) -> None:
    wanted = {"kind": "requests", "user": user, "nginx": SYSTEM_NGINX, "modules": []}
    answer = attack(package, **wanted, without=all_but("log-pipe"))
    check_unharmed(answer)
    assert "a FIFO, not a file" in answer["error"]
    answer = attack(package, **wanted, without=all_but("log-pipe-variable"))
    check_unharmed(answer)
    assert answer["answered"] == answer["asked"] == 1, answer
    assert answer["seconds"] < HELD_SECONDS, "a worker waited for a reader"
