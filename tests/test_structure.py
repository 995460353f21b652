"""The house of DESIGN §2, kept: imports run downward only, and the pure rooms do no I/O."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "nginx_tune"

LAYERS = [
    {"errors", "documents"},
    {"host"},
    {"sandbox"},
    {"conf", "workload", "observe", "lab", "nginx"},
    {"model"},
    {"decide", "audit", "prove", "subject", "turnover"},
    {"adopt", "causes"},
    {"report", "apply", "emit", "window", "load", "store"},
    {"terminal"},
    {"inspect", "learn", "page"},
    {"experiment"},
    {"validate", "scenario", "audit_input"},
    {"rehearse"},
    {"cli"},
]
"""From the ground up. A room may import lower layers and itself, never a neighbour."""

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

PURE_ROOMS = (
    "documents", "conf", "model", "decide", "audit", "prove", "adopt", "causes", "report", "emit",
    "page",
)  # fmt: skip
PURE_FILES = (
    "host/parse_*.py", "workload/model_*.py", "observe/parse_*.py", "apply/model_*.py",
    "apply/parse_*.py",
)  # fmt: skip
EDGES = {
    "subject": {"configuration", "overwriting", "subject"},
    "turnover": {"asking", "generation", "host_refusals", "logs", "process", "workers"},
    "window": {"moment", "observation", "watch"},
    "load": {"asked_paths", "listening", "probe", "process", "target", "watched"},
    "inspect": {"disk_files", "disks", "live_facts"},
    "experiment": {
        "arm_server", "block", "first_answers", "held_clients", "held_kinds",
        "inside", "memory_watch", "one_request", "page_cache", "rehearsing",
        "scratch_server", "sequential", "session", "shown_files", "site_files", "survey", "taking",
        "ticking", "trial",
    },
    "validate": {"replay_data", "stage", "validation"},
    "scenario": {"files", "rows"},
    "rehearse": set(),
}  # fmt: skip
"""The files of a room that read, write, wait or draw; every other one of it does none of these."""
IMPURE_EXCEPTIONS: set[str] = {
    "emit/templates.py",
    "conf/tree.py",
    "conf/known_directives.py",
    "report/package_pages.py",
}
"""Edges inside otherwise pure rooms: finding the templates; reading includes through a door; the
package's own table of directives and its own pages of metrics and causes."""

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
    for room, edges in EDGES.items():
        files |= {p for p in (PACKAGE / room).glob("*.py") if p.stem not in edges}
    return sorted(p for p in files if str(p.relative_to(PACKAGE)) not in IMPURE_EXCEPTIONS)


def _machine_of(path: Path) -> str:
    """What of the machine a file uses by itself, or nothing."""
    tree = ast.parse(path.read_text())
    for module in sorted(_imports(tree)):
        if module.split(".")[0] in FORBIDDEN_MODULES:
            return f"imports {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                return f"line {node.lineno} calls {node.func.id}"
            if isinstance(node.func, ast.Attribute) and node.func.attr in FORBIDDEN_METHODS:
                return f"line {node.lineno} calls {node.func.attr}"
    return ""


@pytest.mark.parametrize("path", _pure_files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_pure_rooms_do_no_io(path: Path) -> None:
    assert not _machine_of(path)


@pytest.mark.parametrize("room", EDGES)
def test_each_edge_of_a_room_is_one(room: str) -> None:
    inward = {name for name in EDGES[room] if not _machine_of(PACKAGE / room / f"{name}.py")}
    assert not inward, "these do no input or output: no edges"


def test_a_name_of_a_class_has_one_meaning() -> None:
    found: dict[str, list[str]] = {}
    for path in _files():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: places for name, places in found.items() if len(places) > 1}


def test_netlink_and_psutil_stay_in_the_live_host() -> None:
    for path in _files():
        modules = {m.split(".")[0] for m in _imports(ast.parse(path.read_text()))}
        if modules & {"psutil", "pyroute2"}:
            assert path.relative_to(PACKAGE).parts[0] == "host", path
        if "crossplane" in modules:
            assert path.relative_to(PACKAGE).parts[0] == "conf", path


STARTERS = {"host/programs.py"}
"""The one place from which programs are started; what it runs as root nobody else has written."""
SUBPROCESS_NAMES = {
    "Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput",
}  # fmt: skip
OS_NAMES = {"system", "popen", "posix_spawn", "posix_spawnp", "startfile"}
CHECKED_BEFORE = {
    "lab/keeper.py", "lab/modelled.py", "lab/stubs.py", "lab/topology.py", "lab/walls.py",
    "learn/logs.py", "load/process.py", "nginx/instance.py",
    "host/program.py", "sandbox/launch.py", "apply/guardian.py",
}  # fmt: skip
"""Start parts of this installation, or what was looked at before the sandbox was entered."""
REPLACES_ITSELF = {"sandbox/"}
"""Inside the sandbox the last step is to become nginx."""


def _starts_a_program(node: ast.Call) -> bool:
    function = node.func
    if not isinstance(function, ast.Attribute):
        return False
    of = function.value.id if isinstance(function.value, ast.Name) else ""
    name = function.attr
    return (
        (of == "subprocess" and name in SUBPROCESS_NAMES)
        or (of == "os" and (name in OS_NAMES or name.startswith("spawn")))
        or (of == "pty" and name == "spawn")
        or (of == "asyncio" and name.startswith("create_subprocess"))
        or (of == "shutil" and name == "which")
        or (of == "multiprocessing")
    )


def _replaces_itself(node: ast.Call) -> bool:
    function = node.func
    return isinstance(function, ast.Attribute) and bool(
        re.fullmatch(r"f?exec[vl]\w*", function.attr)
    )


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_programs_are_started_in_one_place(path: Path) -> None:
    name = str(path.relative_to(PACKAGE))
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"subprocess", "os"}:
            starting = {alias.name for alias in node.names} & (SUBPROCESS_NAMES | OS_NAMES)
            assert not starting or name in STARTERS, f"{path}:{node.lineno}: {starting}"
        if not isinstance(node, ast.Call):
            continue
        place = f"{path}:{node.lineno}"
        if name not in STARTERS:
            assert not _starts_a_program(node), f"{place}: start it by host/programs.py"
        if not any(name.startswith(room) for room in REPLACES_ITSELF):
            assert not _replaces_itself(node), f"{place}: start it by host/programs.py"
        if name not in CHECKED_BEFORE | STARTERS:
            given = {keyword.arg for keyword in node.keywords}
            assert "is_checked" not in given, f"{place}: who looked at that program?"


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(['mount'])", "subprocess.Popen(argv, env=e)", "os.system('x')",
        "os.spawnvp(os.P_WAIT, 'x', [])", "os.posix_spawn('x', [], {})", "shutil.which('x')",
        "asyncio.create_subprocess_exec('x')", "pty.spawn('x')", "multiprocessing.Process()",
    ],
)  # fmt: skip
def test_every_way_to_start_one_is_known(text: str) -> None:
    call = ast.parse(text).body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    assert _starts_a_program(call.value)


def test_test_files_have_names_of_their_own() -> None:
    """pytest takes two of one name for one module, and ends before the first test."""
    names = [
        path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py"
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []
