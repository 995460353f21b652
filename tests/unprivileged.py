"""Running nginx-tune as an ordinary user from tests that run as root.

The checkout and the interpreter may lie where that user cannot look, so he gets a copy of the
package with what it needs, and an interpreter that he may run.
"""

import re
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
AS_NOBODY: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
"""For ``subprocess``: who runs it."""


@cache
def interpreter() -> str | None:
    """An interpreter of this version that an ordinary user may run; None for none."""
    same = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    version = f"python3.{sys.version_info.minor}"
    for program in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            run = subprocess.run(
                [program, "-I", "-c", same], capture_output=True, check=False, cwd="/", **AS_NOBODY
            )
        except OSError:
            continue
        if run.returncode == 0:
            return program
    return None


@cache
def has_namespaces() -> bool:
    """Whether an ordinary user may make namespaces here."""
    command = ["unshare", "-Urnmpif", "--mount-proc", "true"]
    run = subprocess.run(command, capture_output=True, check=False, cwd="/", **AS_NOBODY)
    return run.returncode == 0


def let_all_see(path: Path) -> None:
    """Let every user read a temporary directory, and get there; no right is taken away."""
    temporary = Path(tempfile.gettempdir())
    assert temporary in path.parents, f"{path} is no test's own"
    for directory in (path, *path.parents):
        if directory == temporary:
            return
        mode = stat.S_IMODE(directory.stat().st_mode)
        if mode & 0o055 != 0o055:
            directory.chmod(mode | 0o055)


def copy_package(place: Path) -> Path:
    """The package and what it needs, below a directory; what PYTHONPATH must be."""
    shutil.copytree(
        ROOT / "nginx_tune",
        place / "nginx_tune",
        ignore=shutil.ignore_patterns("__pycache__"),
        copy_function=_copy,
    )
    shutil.copytree(ROOT / "templates", place / "templates")
    for name in _needed("nginx-tune"):
        for file in metadata.distribution(name).files or []:
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            target = place / file
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(str(file.locate()), str(target))
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "_bin" else 0o644)
    return place


def _copy(source: str, target: str) -> None:
    """A file, and what Python made of it: who may not write there compiles it at each start."""
    shutil.copy2(source, target)
    if source.endswith(".py"):
        compiled = Path(cache_from_source(source))
        place = Path(target).parent / "__pycache__"
        if compiled.exists():
            place.mkdir(exist_ok=True)
            shutil.copyfile(compiled, place / compiled.name)


def _needed(name: str) -> set[str]:
    found: set[str] = set()
    wanted = [name]
    while wanted:
        for line in metadata.requires(wanted.pop()) or []:
            requirement, _, marker = line.partition(";")
            if "extra" in marker or "win32" in marker or "Windows" in marker:
                continue
            other = re.match(r"[\w.-]+", requirement)
            if other and other[0] not in found and _is_installed(other[0]):
                found.add(other[0])
                wanted.append(other[0])
    return found


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
