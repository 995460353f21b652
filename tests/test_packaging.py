"""The wheel: whole with a cargo, honest without one."""

import os
import re
import runpy
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

ROOT = Path(__file__).resolve().parent.parent


def build(
    directory: Path, *, is_built_anew: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Build a wheel from a copy of what git knows, with the environment changed.

    Cargo builds anew what lies at another place, which takes a minute: ``probes`` may be ours,
    with what git does not know of it.
    """
    tree = directory / "tree"
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "benchmarks/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    if not is_built_anew:
        shutil.rmtree(tree / "probes")
        (tree / "probes").symlink_to(ROOT / "probes")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    return subprocess.run(
        [*command, "--wheel-dir", str(directory / "dist"), str(tree)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NGINX_TUNE_REQUIRE_RUST": "", **environment},
        timeout=1800,  # the probe is linked as a whole, beside other tests
    )


def names(directory: Path) -> tuple[str, set[str]]:
    (wheel,) = (directory / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return wheel.name, set(archive.namelist())


DATA = {
    "nginx_tune/templates/static.conf.j2",
    "nginx_tune/scenarios/thread-pools.toml",
    "nginx_tune/py.typed",
}


@pytest.mark.long
def test_without_cargo_the_wheel_is_pure_and_probing_says_what_is_missing(tmp_path: Path) -> None:
    # A PATH with nothing but git and a shell: no cargo.
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("git", "sh", "cc", "env"):
        found = shutil.which(tool)
        if found:
            (tools / tool).symlink_to(found)
    result = build(tmp_path, PATH=str(tools), CARGO="")
    assert result.returncode == 0, result.stderr
    name, files = names(tmp_path)
    assert name.endswith("-py3-none-any.whl")
    assert files >= DATA
    assert any(file.endswith("/data/share/man/man1/nginx-tune-audit.1") for file in files)
    assert not any("_bin" in file for file in files)
    unpacked = tmp_path / "site"
    with zipfile.ZipFile(tmp_path / "dist" / name) as archive:
        archive.extractall(unpacked)
    probe = subprocess.run(
        [sys.executable, "-m", "nginx_tune", "probe", "http://127.0.0.1:9/", "--allow-live"],
        capture_output=True,
        text=True,
        check=False,
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
    )
    assert probe.returncode == 4, probe.stderr
    assert len(probe.stderr.strip().splitlines()) == 1
    assert "no load probe" in probe.stderr


def hook() -> Any:
    return cast(Any, runpy.run_path(str(ROOT / "build_hook.py")))


def find_probe(module: Any) -> Path | None:
    """Ask the hook alone: what it would put into a wheel of this checkout."""
    silent = SimpleNamespace(app=SimpleNamespace(display_warning=lambda _: None))
    found: Path | None = module["ProbeBuildHook"]._find_probe(silent, ROOT, "release")
    return found


@pytest.mark.parametrize("cargo", ["/bin/false", "/nonexistent"])
def test_a_probe_that_cannot_be_built_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cargo: str
) -> None:
    monkeypatch.setenv("CARGO", cargo)
    monkeypatch.delenv("NGINX_TUNE_PROBE", raising=False)
    monkeypatch.setenv("NGINX_TUNE_REQUIRE_RUST", "1")
    with pytest.raises(SystemExit, match=rf"^the load probe could not be built: .*{cargo}"):
        find_probe(hook())
    monkeypatch.delenv("NGINX_TUNE_REQUIRE_RUST")
    module = hook()
    terminal = tmp_path / "terminal"
    module["tell_terminal"].__globals__["TERMINAL"] = terminal
    assert find_probe(module) is None
    assert "without its load probe" in terminal.read_text(), "pip shows nothing of a build"


def elf(machine: int, *segments: int) -> bytes:
    header = struct.pack("<6s12xH12xQ14xHH6x", b"\x7fELF\x02\x01", machine, 64, 56, len(segments))
    return header + b"".join(struct.pack("<I52x", one) for one in segments)


def test_the_platforms_of_a_wheel_are_those_of_its_executable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = hook()["platform_tag"]
    file = tmp_path / "probe"
    file.write_bytes(elf(62, 1, 1))
    assert tag(file) == "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
    file.write_bytes(elf(183, 1))
    assert tag(file).split(".")[0] == "manylinux_2_17_aarch64"
    file.write_bytes(elf(62, 1, 3))
    assert tag(file) == "linux_x86_64", "it needs a dynamic loader"
    for strange in (elf(243, 1), b"#!/bin/sh\n"):
        file.write_bytes(strange)
        with pytest.raises(SystemExit, match="probe is "):
            tag(file)
    monkeypatch.setenv("NGINX_TUNE_PROBE", str(file))
    with pytest.raises(SystemExit, match=r"no file .*probe\.licences"):
        find_probe(hook())


def test_a_prebuilt_probe_that_lost_its_mode_is_executable_in_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = tmp_path / "probe"
    probe.write_bytes(elf(62, 1))
    (tmp_path / "probe.licences").touch()
    (tmp_path / "nginx_tune").mkdir()
    monkeypatch.setenv("NGINX_TUNE_PROBE", str(probe))
    build = hook()["ProbeBuildHook"]
    data: dict[str, Any] = {"force_include": {}}
    build(str(tmp_path), {}, None, None, str(tmp_path), "wheel").initialize("standard", data)
    (packed,) = (path for path, at in data["force_include"].items() if at.endswith("-probe"))
    assert Path(packed).stat().st_mode & 0o777 == 0o755


def test_no_class_is_one_that_the_oldest_python_refuses() -> None:
    """Python 3.10 lets a NamedTuple have no second base (mypy does not say so)."""
    second_base = re.compile(r"^class .*(?:NamedTuple, |, NamedTuple)", re.MULTILINE)
    sources = (ROOT / "nginx_tune").rglob("*.py")
    assert [str(one) for one in sources if second_base.search(one.read_text())] == []


def test_the_page_of_an_index_has_no_link_into_the_checkout() -> None:
    readme = msgspec.toml.decode((ROOT / "pyproject.toml").read_text())["project"]["readme"]
    links = re.findall(r"\]\(([^)]*)\)", readme["text"])
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.mark.thorough  # the probe is linked as a whole: one and a half CPU minutes
@pytest.mark.needs("cargo")
def test_with_cargo_one_wheel_serves_every_python_and_holds_a_static_probe(tmp_path: Path) -> None:
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "probes" / "target"))
    result = build(
        tmp_path, is_built_anew=False, CARGO_TARGET_DIR=target, NGINX_TUNE_REQUIRE_RUST="1"
    )
    assert result.returncode == 0, result.stderr
    name, files = names(tmp_path)
    assert "-py3-none-manylinux_2_17_" in name or "-py3-none-linux" in name
    assert files >= DATA | {
        "nginx_tune/_bin/nginx-tune-probe",
        "nginx_tune/_bin/nginx-tune-probe.licences",
    }
    with zipfile.ZipFile(tmp_path / "dist" / name) as archive:
        info = archive.getinfo("nginx_tune/_bin/nginx-tune-probe")
        assert info.external_attr >> 16 & 0o111, "executable"
        binary = tmp_path / "probe"
        binary.write_bytes(archive.read(info))
    binary.chmod(0o755)
    headers = subprocess.run(
        ["readelf", "--program-headers", binary], capture_output=True, text=True, check=True
    )
    assert "INTERP" not in headers.stdout, "no dynamic loader is asked for"
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("nginx-tune-probe ")
