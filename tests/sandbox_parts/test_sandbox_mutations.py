"""Sandbox taken away on purpose: each is missed by an attack, or another stands behind it.

The gate takes half of them away, one of each kind; `make test-all` each.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sandbox_attack import SYSTEM_NGINX, attack

pytestmark = pytest.mark.needs("root", "nginx", "loop", "nobody", "gcc")
Edit = tuple[str, str, str]
"""A file of the package, what stands there, what instead."""


class SandboxPart(NamedTuple):
    """A part and how to take it away."""

    name: str
    edits: tuple[Edit, ...]
    seen_by: tuple[str, ...] = ()
    """Attacks that are let then by their own sight."""
    changes: str = ""
    """What of the host is then changed, heard or sent."""
    refuses: str = ""
    """What is said where nginx is then not started."""
    how: str = "test"
    worker: str = "nobody"
    sockets: bool = False
    """Whether the configuration names a socket, so that nginx may open such."""


LAUNCH, ROOT_FILE, MOUNTS = "sandbox/launch.py", "sandbox/root.py", "nginx/lab/enclosure.py"
NO_FILTER = (LAUNCH, "calls.install_filter(program, listens=listens)", "0")
NO_LANDLOCK = (LAUNCH, "restrict_writes(writable, files)", "pass")
NO_READ_ONLY = (ROOT_FILE, "read_only=not place.writable", "read_only=False")
NO_IPC = (LAUNCH, "    | calls.CLONE_NEWIPC\n", "")
NO_COVER = (
    ROOT_FILE,
    'RootPlace(path, "directory", source, writable=True)',
    'RootPlace(path, "directory", path if os.path.isdir(path) else source, writable=True)',
)
NO_SEAL = (MOUNTS, "        if not flags & calls.MS_RDONLY:", "        if False:")
MUTATIONS = [
    SandboxPart("seccomp", (NO_FILTER,), ("unfiltered", "unshare_user", "netlink_socket"), "heard"),
    SandboxPart(
        "capabilities",
        ((LAUNCH, "drop_capabilities(is_root=is_root, transparent=wanted.transparent)", "pass"),),
        ("rights",),
    ),
    SandboxPart(
        "no new privileges",
        ((LAUNCH, "        calls.no_new_privileges()\n        writable", "        writable"),),
        refuses="the sandbox cannot be made",
    ),
    SandboxPart(
        "new root", ((LAUNCH, "build_root(self._prepared.plan)", "pass"),), ("see_hidden",)
    ),
    SandboxPart("network", (("nginx/lab/sandbox.py", '"--net", ', ""),), changes="packet: "),
    SandboxPart(
        "process namespace", ((LAUNCH, "    | calls.CLONE_NEWPID\n", ""),), ("see_processes",)
    ),
    SandboxPart("Landlock", (NO_LANDLOCK,), ("write_pipe",), changes="heard"),
    SandboxPart(
        "read-only mounts and the lab's seal behind them",
        (NO_READ_ONLY, NO_SEAL),
        ("chmod_file", "touch_file"),
        changes="file ",
    ),
    SandboxPart(
        "read-only mounts and both sandbox behind them",
        (NO_READ_ONLY, NO_SEAL, NO_LANDLOCK),
        ("write_file", "unlink_file", "write_map"),
        changes="file ",
    ),
    SandboxPart(
        "proc of processes alone", ((ROOT_FILE, ', "subset=pid"', ""),), ("write_settings",)
    ),
    SandboxPart(
        "overlays over what may hold sockets",
        ((ROOT_FILE, "and (is_unsafe or is_open)", "and False"),),
        ("path_sockets",),
        changes="heard",
        sockets=True,
    ),
    SandboxPart(
        "environment",
        (("nginx/instance.py", "inherits=sandbox is None", "inherits=True"),),
        ("see_environment",),
        how="serve",
    ),
    SandboxPart(
        "covers and the seal behind them",
        (NO_COVER, NO_SEAL),
        changes="file /var/log/nginx/",
        how="request",
        worker="root",
    ),
    SandboxPart(
        "both namespaces of shared memory and the filter before them",
        (NO_IPC, ("nginx/lab/sandbox.py", '"--ipc", ', ""), NO_FILTER),
        ("shared_memory",),
        changes="shared memory",
    ),
]

BELTS = [
    SandboxPart(
        "both namespaces of shared memory", (NO_IPC, ("nginx/lab/sandbox.py", '"--ipc", ', ""))
    ),
    SandboxPart("read-only mounts", (NO_READ_ONLY,)),
    SandboxPart("the seal of what is mounted", (NO_SEAL,), how="request", worker="root"),
    SandboxPart("host names of its own", ((LAUNCH, "    | calls.CLONE_NEWUTS\n", ""),)),
]
"""Behind each stands another: without it alone nothing is let."""


@contextmanager
def changed(package: Path, *edits: Edit) -> Iterator[Path]:
    """The package with other text."""
    place = Path(tempfile.mkdtemp(prefix="nginx-tune-parts-", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        copy = place / "package"
        shutil.copytree(package, copy, symlinks=True, copy_function=os.link)
        for name, old, new in edits:
            file = copy / "nginx_tune" / name
            text = file.read_text()
            assert old in text, f"{name} has changed: say anew how to change {old!r}"
            file.unlink()  # it is the package's own
            file.write_text(text.replace(old, new))
            file.chmod(0o644)
        yield copy
    finally:
        shutil.rmtree(place)


GATE = {"seccomp"}
"""The gate has one, so that attacks are known to be seen; `make test-all` has each."""


def each(sandbox: list[SandboxPart]) -> list[object]:
    """Values for a parameter."""
    return [
        pytest.param(one, id=one.name, marks=() if one.name in GATE else pytest.mark.thorough)
        for one in sandbox
    ]


def attack_without(package: Path, part: SandboxPart) -> dict[str, Any]:
    with changed(package, *part.edits) as copy:
        answer = attack(
            copy, kind="module", user="root", nginx=SYSTEM_NGINX, how=part.how,
            worker=part.worker, sockets=part.sockets,
        )  # fmt: skip
    answer["let"] = {name for name, error in answer["results"].items() if error == 0}
    told = f"without {part.name}: let {sorted(answer['let'])}, {len(answer['changes'])} changes"
    sys.stdout.write("\n".join([told, *answer["changes"][:5], answer["said"], ""]))
    return answer


@pytest.mark.parametrize("part", each(MUTATIONS))
def test_a_missing_part_is_seen(package: Path, part: SandboxPart) -> None:
    answer = attack_without(package, part)
    if part.refuses:
        assert not answer["results"]
        assert part.refuses in answer["said"]
        return
    assert set(part.seen_by) <= answer["let"]
    assert bool(part.changes) == bool(answer["changes"])
    assert any(change.startswith(part.changes) for change in answer["changes"] or [""])


@pytest.mark.parametrize("part", each(BELTS))
def test_another_part_stands_behind_it(package: Path, part: SandboxPart) -> None:
    answer = attack_without(package, part)
    assert answer["results"]
    assert not answer["let"]
    assert not answer["changes"]


SPEC = "sandbox/confinement.py"
LIMITS = {
    "processes": ("2048", "100", "1000"),
    "data_bytes": ("2 << 30", "128 << 20", "1 << 30"),
    "file_bytes": ("4 << 30", "32 << 20", "2 << 40"),
    "cover_bytes": ("1 << 30", "64 << 20", "128 << 20"),
    "cover_files": ("200_000", "2_000", "20_000"),
}
"""Each as it is, one that an attack goes past, and one that it does not: up to 512 MiB in all."""
STOPPED_BY = {
    "processes": "fork_without_end",
    "data_bytes": "fill_memory",
    "file_bytes": "fill_a_file",
    "cover_bytes": "fill_with_large_files",
    "cover_files": "fill_with_files",
}


ENOUGH = 2
"""The place of limits that stop nothing."""


@pytest.mark.parametrize(
    ("user", "place"),
    [
        ("root", 1),
        *(
            pytest.param(user, place, marks=pytest.mark.thorough)
            for user, place in (("root", ENOUGH), ("nobody", 1), ("nobody", ENOUGH))
        ),
    ],
)
def test_what_is_used_up_is_the_sandboxs_own(package: Path, user: str, place: int) -> None:
    edits = [
        (SPEC, f"{name}: int = {values[0]}", f"{name}: int = {values[place]}")
        for name, values in LIMITS.items()
    ]
    # New processes are counted apart from threads.
    edits += [("sandbox/confinement.py", "32 + 4 *", "2000 + 4 *")] if place == ENOUGH else []
    with changed(package, *edits) as copy:
        answer = attack(
            copy, kind="module", user=user, nginx=SYSTEM_NGINX, how="request", exhausts=True
        )
    sys.stdout.write(f"{answer['results']} in {answer['seconds']} s\n")
    assert not answer["changes"], answer["changes"]
    assert not answer["left"], "processes that stay"
    ended = {name: answer["results"].get(attack) for name, attack in STOPPED_BY.items()}
    assert None not in ended.values(), answer["said"]
    assert 999 not in ended.values(), "it went on for longer than it was given"
    # With room enough nothing stops them: it is the limit that did.
    assert [error != 0 for error in ended.values()] == [place != ENOUGH] * len(ended), ended
