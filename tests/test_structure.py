"""The house, kept: imports run downward only, and the pure rooms do no I/O."""

import ast
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "nginx_tune"

LAYERS = (
    ("documents",),
    ("host",),
    ("conf", "sandbox"),
    ("decide", "nginx"),
    ("audit", "measure"),
    ("change", "observe"),
    ("report",),
    ("experiment",),
    ("cli",),
)
"""Packages from the ground up. A package imports lower layers and itself, never a neighbour."""

LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}

WITHIN = {
    "decide": ("workload", "model", ""),
    "nginx": ("", "lab", "reload"),
    "measure": ("proof", "load"),
    "change": ("plan", "generate", "apply"),
    "observe": ("", "causes", "window", "inspect"),
    "report": ("", "page", "terminal"),
    "experiment": ("", "validate", "scenario", "rehearse"),
}
"""The parts of a package, lower ones first; "" is the package's own files."""

PURE = (
    "documents/", "conf/", "decide/", "audit/", "measure/proof/", "change/plan/",
    "change/generate/", "observe/causes/", "report/",
)  # fmt: skip
NOT_PURE = ("report/terminal/",)
PURE_FILES = (
    "host/parse_*.py", "observe/parse_*.py", "change/apply/model_*.py",
    "change/apply/parse_*.py",
)  # fmt: skip
EDGES = {
    "nginx/reload": {"generation", "host_refusals", "logs", "workers"},
    "observe/window": {"moment", "observation", "watch", "watched"},
    "measure/load": {"probe", "target"},
    "observe/inspect": {"disks", "live_facts"},
    "experiment": {
        "one_run", "held_clients", "held_requests", "inside", "rehearsing", "scratch_server",
        "session", "store", "survey", "trial",
    },
    "experiment/validate": {"replay", "workbench", "validation"},
    "experiment/scenario": {"files"},
    "experiment/rehearse": set(),
}  # fmt: skip
"""The files of a part that read, write, wait or draw; every other one of it does none of these."""
IMPURE_EXCEPTIONS: set[str] = {
    "change/generate/templates.py",
    "conf/tree.py",
    "conf/known_directives.py",
    "report/explained.py",
}
"""Edges inside otherwise pure packages: finding the templates; reading includes through a door; the
package's own table of directives and its own pages of metrics and causes."""

FORBIDDEN_MODULES = {
    "os", "subprocess", "socket", "time", "random", "datetime", "shutil", "tempfile",
    "threading", "asyncio", "secrets", "psutil", "pyroute2", "ctypes", "signal", "glob",
    "http", "urllib", "select", "fcntl", "mmap", "resource",
}  # fmt: skip
FORBIDDEN_CALLS = {"open", "input", "exec", "eval", "__import__", "print"}
FORBIDDEN_METHODS = {
    "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "unlink", "lstat", "stat",
    "exists", "is_file", "is_dir", "is_symlink", "readlink", "resolve", "mkdir", "touch", "glob",
    "rglob", "samefile", "chmod",
}  # fmt: skip

Nodes = list[ast.Import | ast.ImportFrom | ast.Call]


def nodes_of(tree: ast.Module) -> Nodes:
    """What laws look at, gathered once: to walk a tree takes longer than to parse it."""
    looked_at = (ast.Import, ast.ImportFrom, ast.Call)
    return [node for node in ast.walk(tree) if isinstance(node, looked_at)]


# Each law takes one file, by its name below the package, and says what there breaks it.


def _package(name: str) -> str:
    return name.partition("/")[0].removesuffix(".py")


def _part(package: str, below: str) -> int:
    """The place of a name below a package among the package's parts."""
    parts = WITHIN.get(package, ("",))
    first = below.partition("/")[0]
    return parts.index(first if first in parts else "")


def _imports(nodes: Nodes) -> set[str]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _imports_run_downward(name: str, nodes: Nodes) -> Iterator[str]:
    package, _, below = name.partition("/")
    if name in {"__init__.py", "__main__.py", "errors.py"}:
        return
    if package not in LEVEL:
        yield "a package that is on no layer"
        return
    for module in sorted(_imports(nodes)):
        parts = module.split(".")
        if parts[0] != "nginx_tune" or len(parts) < 2 or parts[1] == "__version__":
            continue
        if parts[1] == package:
            if _part(package, "/".join(parts[2:]) + "/") > _part(package, below):
                yield f"{name} imports {module}"
        elif parts[1] != "errors" and LEVEL[parts[1]] >= LEVEL[package]:
            yield f"{package} imports {module}"


def _is_pure(name: str) -> bool:
    room, _, file = name.rpartition("/")
    if name in IMPURE_EXCEPTIONS:
        return False
    return (
        (name.startswith(PURE) and not name.startswith(NOT_PURE))
        or any(fnmatch(name, pattern) for pattern in PURE_FILES)
        or (room in EDGES and file.removesuffix(".py") not in EDGES[room])
    )


def _machine_of(nodes: Nodes) -> str:
    """What of the machine a file uses by itself, or nothing."""
    for module in sorted(_imports(nodes)):
        if module.split(".")[0] in FORBIDDEN_MODULES:
            return f"imports {module}"
    for node in nodes:
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                return f"line {node.lineno} calls {node.func.id}"
            if isinstance(node.func, ast.Attribute) and node.func.attr in FORBIDDEN_METHODS:
                return f"line {node.lineno} calls {node.func.attr}"
    return ""


def _pure_rooms_do_no_io(name: str, nodes: Nodes) -> Iterator[str]:
    if _is_pure(name) and (used := _machine_of(nodes)):
        yield used


def _each_edge_of_a_room_is_one(name: str, nodes: Nodes) -> Iterator[str]:
    room, _, file = name.rpartition("/")
    if file.removesuffix(".py") in EDGES.get(room, ()) and not _machine_of(nodes):
        yield "does no input or output: no edge"


def _libraries_stay_in_their_rooms(name: str, nodes: Nodes) -> Iterator[str]:
    modules = {module.split(".")[0] for module in _imports(nodes)}
    for library, room in (("psutil", "host"), ("pyroute2", "host"), ("crossplane", "cli")):
        if library in modules and _package(name) != room:
            yield f"imports {library}"


STARTERS = {"host/programs.py"}
"""The one place from which programs are started; what it runs as root nobody else has written."""
SUBPROCESS_NAMES = {
    "Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput",
}  # fmt: skip
OS_NAMES = {"system", "popen", "posix_spawn", "posix_spawnp", "startfile"}
CHECKED_BEFORE = {
    "nginx/lab/keeper.py", "nginx/lab/building.py", "nginx/lab/stubs.py", "nginx/lab/sandbox.py",
    "observe/access_logs.py", "measure/load/probe.py", "nginx/instance.py",
    "host/program.py", "sandbox/launch.py", "change/apply/guardian.py",
}  # fmt: skip
"""Start parts of this installation, or what was looked at before the sandbox was entered."""
REPLACES_ITSELF = ("sandbox/",)
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


def _programs_are_started_in_one_place(name: str, nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in {"subprocess", "os"}:
            starting = {alias.name for alias in node.names} & (SUBPROCESS_NAMES | OS_NAMES)
            if starting and name not in STARTERS:
                yield f"line {node.lineno} imports {starting}"
        if not isinstance(node, ast.Call):
            continue
        if name not in STARTERS and _starts_a_program(node):
            yield f"line {node.lineno}: start it by host/programs.py"
        if not name.startswith(REPLACES_ITSELF) and _replaces_itself(node):
            yield f"line {node.lineno}: start it by host/programs.py"
        if name not in CHECKED_BEFORE | STARTERS:
            given = {keyword.arg for keyword in node.keywords}
            if "is_checked" in given:
                yield f"line {node.lineno}: who looked at that program?"


LAWS: tuple[Callable[[str, Nodes], Iterator[str]], ...] = (
    _imports_run_downward,
    _pure_rooms_do_no_io,
    _each_edge_of_a_room_is_one,
    _libraries_stay_in_their_rooms,
    _programs_are_started_in_one_place,
)


@pytest.mark.long
def test_every_file_of_the_package_keeps_every_law() -> None:
    """All laws in one pass: to parse the files is what takes time."""
    broken: list[str] = []
    classes: dict[str, list[str]] = {}
    edges = {f"{room}/{edge}.py" for room, edges in EDGES.items() for edge in edges}
    for path in sorted(PACKAGE.rglob("*.py")):
        name, tree = path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())
        edges.discard(name)
        nodes = nodes_of(tree)
        broken += [f"{law.__name__}: {name}: {why}" for law in LAWS for why in law(name, nodes)]
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.setdefault(node.name, []).append(name)
    broken += [f"no file is {edge}" for edge in sorted(edges)]
    broken += [f"{name} is a class of {at}" for name, at in classes.items() if len(at) > 1]
    assert broken == [], "\n".join(broken)


BREACHES = {
    _imports_run_downward: {
        "host/a.py": "from nginx_tune.cli import main",
        "conf/a.py": "import nginx_tune.decide.answer",
        "measure/proof/a.py": "from nginx_tune.audit import engine",
        "decide/model/a.py": "import nginx_tune.decide.answer",
        "nginx/a.py": "from nginx_tune.nginx.lab import sandbox",
        "nowhere/a.py": "X = 1",
    },
    _pure_rooms_do_no_io: {
        "decide/a.py": "import os.path",
        "measure/proof/deep/a.py": "print(1)",
        "host/parse_a.py": "import random",
        "decide/workload/a.py": "from time import sleep",
        "observe/window/a.py": "FILE.read_text()",
        "observe/inspect/a.py": "FILE.lstat()",
        "experiment/rehearse/a.py": "open(1)",
    },
    _each_edge_of_a_room_is_one: {"observe/window/watch.py": "X = 1"},
    _libraries_stay_in_their_rooms: {
        "nginx/a.py": "import psutil",
        "observe/a.py": "from pyroute2 import IPRoute",
        "audit/a.py": "import crossplane.lexer",
    },
}  # fmt: skip


def test_every_law_sees_what_breaks_it() -> None:
    for law, texts in BREACHES.items():
        for name, text in texts.items():
            assert list(law(name, nodes_of(ast.parse(text)))), (law.__name__, name, text)
    fine = "from nginx_tune.documents import base\nimport json\n"
    assert not [why for law in LAWS for why in law("decide/a.py", nodes_of(ast.parse(fine)))]


WAYS_TO_START = (
    "subprocess.run(['mount'])", "subprocess.Popen(argv, env=e)", "os.system('x')",
    "os.spawnvp(os.P_WAIT, 'x', [])", "os.posix_spawn('x', [], {})", "shutil.which('x')",
    "asyncio.create_subprocess_exec('x')", "pty.spawn('x')", "multiprocessing.Process()",
    "from subprocess import run", "os.execv('x', [])", "run(argv, is_checked=True)",
)  # fmt: skip


def test_every_way_to_start_one_is_known() -> None:
    law = _programs_are_started_in_one_place
    assert [
        text for text in WAYS_TO_START if not list(law("cli/a.py", nodes_of(ast.parse(text))))
    ] == []


def test_test_files_have_names_of_their_own() -> None:
    """pytest takes two of one name for one module, and ends before the first test."""
    names = [path.name for path in TESTS.rglob("*.py") if path.name != "conftest.py"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


DICE = ("tiers.py",)
"""Where a run's seed becomes numbers."""
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "now", "today", "utcnow",
          "getpid", "urandom", "id", "hash"}  # fmt: skip
CHANCE = re.compile(r"\b(random|secrets|uuid|urandom|getrandom)\b")


def _unseeded(tree: ast.Module) -> list[str]:
    """What a file draws that the next run would not draw again."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if {"secrets", "uuid"} & {one.name for one in names}:
                said = "imports secrets or uuid"
            case ast.ImportFrom(module="secrets" | "uuid"):
                said = "imports secrets or uuid"
            case ast.ImportFrom(module="random", names=names) if {one.name for one in names} != {
                "Random"
            }:
                said = "imports functions of random"
            case ast.ImportFrom(module="os", names=names) if {"urandom", "getrandom"} & {
                one.name for one in names
            }:
                said = "imports urandom"
            case ast.Import(names=names) if any(
                one.name == "random" and one.asname for one in names
            ):
                said = "gives random another name"
            case ast.Attribute(value=ast.Name(id="random"), attr=name) if name != "Random":
                said = f"random.{name}"
            case ast.Attribute(value=ast.Name(id="os"), attr="urandom" | "getrandom" as name):
                said = f"os.{name}"
            case ast.Call(func=called, args=given, keywords=keywords) if _name_of(called) in {
                "Random",
                "dice",
                "seed",
            } and _is_fresh(given, keywords):
                said = f"{_name_of(called)} without a seed that stays"
            case _:
                continue
        found.append(f"line {node.lineno}: {said}")
    return found


def _name_of(called: ast.expr) -> str:
    return getattr(called, "attr", "") or getattr(called, "id", "")


def _is_fresh(given: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    seeds = [*given, *(one.value for one in keywords)]
    calls = [
        _name_of(node.func)
        for seed in seeds
        for node in ast.walk(seed)
        if isinstance(node, ast.Call)
    ]
    nothing = not seeds or any(
        isinstance(seed, ast.Constant) and seed.value is None for seed in seeds
    )
    return nothing or bool(CLOCKS & set(calls))


def test_no_test_draws_what_the_next_run_would_not() -> None:
    """Chance comes from `tiers.dice`, or from a seed that stands in the test."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        name, text = path.relative_to(TESTS).as_posix(), path.read_text()
        if name not in DICE and CHANCE.search(text):
            found += [f"{name}: {one}" for one in _unseeded(ast.parse(text))]
    assert found == [], "\n".join(found)


def test_no_test_has_a_seed_or_a_count_of_its_own_in_the_environment() -> None:
    """`tiers` has one of each for all tests."""
    read = re.compile(
        r"""environ(?:\.get\(|\[)\s*"((?:NGINX_TUNE_|SEED)\w*)"|getenv\(\s*"(\w+)\""""
    )
    ours = re.compile(r"NGINX_TUNE_(REQUIRE|REQUIRE_RUST|WRITE_GOLDEN|TEST_\w+)|[^NS]\w*")
    found = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.name not in DICE
        for name in map("".join, read.findall(path.read_text()))
        if not ours.fullmatch(name)
    ]
    assert found == [], "\n".join(found)


UNSEEDED = (
    "random.SystemRandom().random()", "random.Random()", "random.Random(None)", "random.random()",
    "random.shuffle(x)", "random.seed(3)", "import secrets", "from secrets import token_hex",
    "from random import randrange", "from random import *", "import random as r", "import uuid",
    "random.Random(time.time())", "random.Random(f'{time.monotonic_ns()}')", "Random()",
    "os.urandom(9)", "from os import urandom", "dice(os.getpid())", "random.Random(x=id(y))",
)  # fmt: skip
SEEDED = (
    "random.Random(3)", "dice('name')", "random.Random(f'{SEED} {x}')", "import random",
    "def f(chance: random.Random): return chance.random()", "from random import Random",
)  # fmt: skip


def test_every_way_to_draw_unseeded_is_known() -> None:
    assert [text for text in UNSEEDED if not _unseeded(ast.parse(text))] == []
    assert [text for text in SEEDED if _unseeded(ast.parse(text))] == []
