"""tools/weigh, on trees that were made up and on this one."""

import ast
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _tool() -> Any:
    loader = importlib.machinery.SourceFileLoader("weigh", str(ROOT / "tools" / "weigh"))
    spec = importlib.util.spec_from_loader("weigh", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["weigh"] = module
    loader.exec_module(module)
    return module


weigh = _tool()


def _modules(tmp_path: Path, **texts: str) -> dict[Path, ast.Module]:
    found = {}
    for name, text in texts.items():
        path = tmp_path / "nginx_tune" / "room" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        found[path] = ast.parse(text)
    return found


def test_circles_are_found_at_any_depth_and_only_those() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"f"}}
    assert weigh.circles_of(edges) == [["a", "b", "c"]]
    edges["c"] = {"d"}
    assert weigh.circles_of(edges) == []


def test_a_circle_of_imports_is_one_of_modules_not_of_functions(tmp_path: Path) -> None:
    late = "def f() -> None:\n    from nginx_tune.room import a\n"
    modules = _modules(tmp_path, a="from nginx_tune.room.b import x\n", b=late)
    assert weigh.import_circles(tmp_path, modules) == []
    modules = _modules(
        tmp_path, a="from nginx_tune.room.b import x\n", b="from nginx_tune.room import a\n"
    )
    assert weigh.import_circles(tmp_path, modules) == [["nginx_tune.room.a", "nginx_tune.room.b"]]


def test_an_import_for_types_alone_closes_a_circle_too(tmp_path: Path) -> None:
    for_types = "if TYPE_CHECKING:\n    from nginx_tune.room import a\n"
    modules = _modules(tmp_path, a="from nginx_tune.room.b import x\n", b=for_types)
    assert weigh.import_circles(tmp_path, modules) == [["nginx_tune.room.a", "nginx_tune.room.b"]]


def test_a_circle_inside_a_directory_of_the_probe_is_seen(tmp_path: Path) -> None:
    below = tmp_path / "probes" / "src" / "answer"
    below.mkdir(parents=True)
    (below / "head.rs").write_text("use super::body;\n")
    (below / "body.rs").write_text("use crate::answer::{head, other};\n")
    assert weigh.crate_circles(tmp_path) == [["crate::answer::body", "crate::answer::head"]]
    (below / "body.rs").write_text("use crate::answer::other;\n")
    assert weigh.crate_circles(tmp_path) == []


def test_an_alias_is_a_meaning_and_a_constant_is_none(tmp_path: Path) -> None:
    modules = _modules(
        tmp_path,
        a="class Kind: ...\nLEVELS = A | B\n",
        b="Kind = Literal['x']\nDecide = Callable[[int], str]\nLIMIT = 1 | 2\n",
        c="Kind: TypeAlias = 'str | None'\nDecide = Server | None\n_Kind = Literal['y']\n",
    )
    found = weigh.meanings(modules)
    assert found["Kind"] == ["a", "b", "c"]
    assert found["Decide"] == ["b", "c"]
    assert set(found) == {"Kind", "Decide"}


def test_small_files_single_importers_and_long_functions_are_counted(tmp_path: Path) -> None:
    long = "def f():\n" + "    g()\n" * 99
    modules = _modules(tmp_path, a="from nginx_tune.room import b\n", b="X = 1\n", c=long)
    assert weigh.small_files(tmp_path, modules) == ["room/a.py", "room/b.py"]
    assert weigh.single_use(tmp_path, modules) == ["room/b.py"]
    assert weigh.long_functions(modules) == ["room/c.f 100"]
    assert weigh.packages(tmp_path, modules) == ["room"]


def test_a_copy_with_other_names_is_a_duplicate(tmp_path: Path) -> None:
    text = "def f(n):\n    t = n + 1\n    u = t * 2\n    g(u)\n    return t\n"
    copied = text.replace("def f(n)", "def h(k)").replace("n +", "k +").replace("t ", "w ")
    copied = copied.replace("return t", "return w")
    assert weigh.duplicates(_modules(tmp_path, a=text, b=copied)) == [["room/a.f", "room/b.h"]]
    calls_another = copied.replace("g(u)", "m(u)")
    assert weigh.duplicates(_modules(tmp_path, a=text, b=calls_another)) == []


def test_a_file_that_a_test_imports_is_reached_by_more_than_others(tmp_path: Path) -> None:
    modules = _modules(tmp_path, first="X = 1\n", second="Y = 1\n", named="Z = 1\n")
    (tmp_path / "tests" / "room").mkdir(parents=True)
    test = tmp_path / "tests" / "room" / "test_named.py"
    test.write_text("from nginx_tune.room.first import X\n")
    unnamed = weigh.untested(tmp_path, modules)
    assert unnamed == ["room/first", "room/second"]
    assert weigh.unimported(tmp_path, modules, unnamed) == ["room/second"]


def test_lines_are_told_apart(tmp_path: Path) -> None:
    text = '"""One.\n\nTwo."""\n\nimport ast\n\n# said\nX = 1\n'
    ((path, module),) = _modules(tmp_path, a=text).items()
    assert weigh.python_lines(path, module) == weigh.Lines(1, 8, 1, 3, 1)


@pytest.mark.long
def test_the_house_stays_within_its_measures() -> None:
    """Few packages, one meaning for each type name, no circles, functions that fit a screen."""
    modules = {p: ast.parse(p.read_text()) for p in weigh.sources(ROOT, weigh.PACKAGE, "*.py")}
    assert len(weigh.packages(ROOT, modules)) <= 13
    assert {name: at for name, at in weigh.meanings(modules).items() if len(at) > 1} == {}
    assert weigh.import_circles(ROOT, modules) + weigh.crate_circles(ROOT) == []
    assert weigh.long_functions(modules) == []
    assert len(weigh.small_files(ROOT, modules)) <= 60
    assert len(weigh.single_use(ROOT, modules)) <= 40
    drawn = "\n".join(weigh.arrows(ROOT, modules))
    assert f"\n{drawn}\n```" in (ROOT / "CONTRIBUTING.md").read_text(), "tools/weigh --arrows"


@pytest.mark.thorough
def test_it_weighs_this_house() -> None:
    lines = list(weigh.weigh(ROOT))
    assert any(line.startswith("| **nginx_tune** | ") for line in lines)
    assert any(line.startswith("| import circles | 0 |") for line in lines)
