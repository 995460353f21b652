"""The house of DESIGN §2, kept: imports run downward only, and the pure rooms do no I/O."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "nginx_tune"

LAYERS = [
    {"errors", "documents"},
    {"host"},
    {"conf", "workload", "observe", "lab", "nginx"},
    {"decide", "audit", "prove"},
    {"report", "apply", "measure", "emit"},
    {"cli"},
]
"""From the ground up. A room may import lower layers and itself, never a neighbour."""

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

PURE_ROOMS = ("documents", "decide", "audit", "prove", "report", "emit", "conf")
PURE_FILES = ("host/parse_*.py", "workload/model_*.py", "measure/plan_*.py", "observe/parse_*.py")
IMPURE_EXCEPTIONS: set[str] = {
    "emit/templates.py",
    "conf/tree.py",
    "conf/known_directives.py",
    "report/metric_pages.py",
}
"""Edges inside otherwise pure rooms: finding the templates; reading includes through a door; the
package's own table of directives and its own pages of metrics."""

FORBIDDEN_MODULES = {
    "os", "subprocess", "socket", "time", "random", "datetime", "shutil", "tempfile",
    "threading", "asyncio", "secrets", "psutil", "pyroute2", "ctypes", "signal", "glob",
    "http", "urllib", "select", "fcntl", "mmap", "resource",
}  # fmt: skip
FORBIDDEN_CALLS = {"open", "input", "exec", "eval", "__import__", "print"}
FORBIDDEN_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "unlink"}


def _files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def _imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_downward(path: Path) -> None:
    room = _room(path)
    if room in {"__init__", "__main__"}:
        return
    assert room in LEVEL, f"{path}: a room that DESIGN §2 does not know"
    for module in _imports(ast.parse(path.read_text())):
        parts = module.split(".")
        if parts[0] != "nginx_tune" or len(parts) < 2 or parts[1] == "__version__":
            continue
        other = parts[1]
        assert other in {room, "errors"} or LEVEL[other] < LEVEL[room], (
            f"{path}: {room} imports {other}"
        )


def _pure_files() -> list[Path]:
    files = {p for room in PURE_ROOMS for p in (PACKAGE / room).rglob("*.py")}
    files |= {p for pattern in PURE_FILES for p in PACKAGE.glob(pattern)}
    return sorted(p for p in files if str(p.relative_to(PACKAGE)) not in IMPURE_EXCEPTIONS)


@pytest.mark.parametrize("path", _pure_files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_pure_rooms_do_no_io(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for module in _imports(tree):
        assert module.split(".")[0] not in FORBIDDEN_MODULES, f"{path} imports {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, f"{path}:{node.lineno} calls it"
            if isinstance(node.func, ast.Attribute):
                assert node.func.attr not in FORBIDDEN_METHODS, f"{path}:{node.lineno}"


def test_netlink_and_psutil_stay_in_the_live_host() -> None:
    for path in _files():
        modules = {m.split(".")[0] for m in _imports(ast.parse(path.read_text()))}
        if modules & {"psutil", "pyroute2"}:
            assert path.relative_to(PACKAGE).parts[0] == "host", path
        if "crossplane" in modules:
            assert path.relative_to(PACKAGE).parts[0] == "conf", path
