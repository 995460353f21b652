"""A release: refused unless it is one, the same bytes each time, and working where it is for."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROBE = ROOT / "nginx_tune/_bin/nginx-tune-probe"
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")


def git(repository: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=repository, check=True, capture_output=True)


@pytest.fixture
def release_class(tmp_path: Path) -> Any:
    """``tools/release`` in a repository of three files, at its tag."""
    repository = tmp_path / "repository"
    (repository / "nginx_tune").mkdir(parents=True)
    (repository / "nginx_tune/__init__.py").write_text('__version__ = "1.2.3"\n')
    (repository / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [1.2.3] – 2026-12-01\n\nNew.\n\n## [1.2.2] – 2026-11-01\n\nOld.\n"
    )
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "all")
    git(repository, "tag", "v1.2.3")
    found = runpy.run_path(str(ROOT / "tools/release"))["Release"]
    found.__init__.__globals__["ROOT"] = repository
    return found


def test_a_release_is_made_of_a_clean_tag_alone(tmp_path: Path, release_class: Any) -> None:
    repository = tmp_path / "repository"
    release = release_class(tmp_path / "out")
    assert release.version == "1.2.3"
    (tmp_path / "full").mkdir()
    (tmp_path / "full/nginx_tune-1.2.2.tar.gz").touch()
    with pytest.raises(SystemExit, match="must be an empty directory"):
        release_class(tmp_path / "full")
    (repository / "stray").touch()
    with pytest.raises(SystemExit, match=r"clean and at the tag v1\.2\.3"):
        release_class(tmp_path / "out")
    git(repository, "add", "stray")
    git(repository, "commit", "-qm", "behind the tag")
    with pytest.raises(SystemExit, match=r"clean and at the tag v1\.2\.3"):
        release_class(tmp_path / "out")


def test_a_missing_program_is_named_before_anything_is_built(
    tmp_path: Path, release_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = release_class(tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="not on PATH: cargo, cargo-cyclonedx, dpkg-deb, git"):
        release.lay_out()
    assert not (tmp_path / "out").exists()


def test_the_notes_are_the_section_of_the_version(tmp_path: Path, release_class: Any) -> None:
    release = release_class(tmp_path / "out")
    release.tree = tmp_path / "repository"
    release.output.mkdir()
    release.write_notes()
    assert (release.output / "NOTES.md").read_text() == "New.\n"
    changes = release.tree / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("2026-12-01", "not released yet"))
    with pytest.raises(SystemExit, match="a dated section is missing"):
        release.write_notes()


def test_what_publishes_may_do_no_more_and_is_pinned() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    for action in re.findall(r"uses: (\S.*)", text):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action), action
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"]
    writing = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert writing == {"publish"}
    assert jobs["publish"]["environment"] == "release"
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"build", "publish"}


def build(checkout: Path, output: Path, probes: dict[str, Path]) -> list[Path]:
    given = [word for cpu, file in probes.items() for word in ("--probe", f"{cpu}={file}")]
    subprocess.run(["tools/release", output, *given], cwd=checkout, check=True, timeout=3600)
    return sorted(output.iterdir())


def try_in(system: Path, file: Path, *, has_network: bool) -> None:
    """Run ``tools/try-release`` in a Debian of its own mounts and, without one, its own network."""
    shutil.copy(ROOT / "tools/try-release", system)
    shutil.copy(file, system)
    network = [] if has_network else ["--net"]
    enter = 'ip link set lo up; mount -t proc proc "$1/proc"; exec chroot "$1" /try-release "/$2"'
    subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", *network, "sh", "-c", enter, "sh", system,
         file.name],
        check=True,
        timeout=900,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
    )  # fmt: skip


@pytest.mark.thorough  # two whole releases and two Debian systems: ten minutes
@pytest.mark.needs("root", "probe", "x86-64", "ip", "release-tools")
def test_a_release_is_the_same_twice_and_works_on_debian(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
    changes = checkout / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("not released yet", "2026-12-01"))
    git(checkout, "commit", "-qam", "release")
    package = (checkout / "nginx_tune/__init__.py").read_text()
    (version,) = re.findall(r'^__version__ = "(.+)"', package, re.MULTILINE)
    git(checkout, "tag", f"v{version}")
    # The question is not the build of the probe; for the other CPU it is one by its header.
    content = bytearray(PROBE.read_bytes())
    probes = {}
    for cpu, machine in {"x86_64": 62, "aarch64": 183}.items():
        content[18] = machine
        probes[cpu] = tmp_path / cpu
        probes[cpu].write_bytes(content)
        (tmp_path / f"{cpu}.licences").touch()
    first = build(checkout, tmp_path / "first", probes)
    again = build(checkout, tmp_path / "somewhere/else", probes)
    assert [file.name for file in first] == [file.name for file in again]
    assert len(first) == 13
    different = [one.name for one, other in zip(first, again, strict=True)
                 if one.read_bytes() != other.read_bytes()]  # fmt: skip
    assert different == []
    for file in first:
        assert str(tmp_path).encode() not in file.read_bytes(), f"{file} names where it was built"
    for suite in ("bookworm", "trixie"):
        system = tmp_path / suite
        subprocess.run(["debootstrap", "--variant=minbase", suite, system], check=True)
        shutil.copy("/etc/resolv.conf", system / "etc/resolv.conf")
        (deb,) = (tmp_path / "first").glob("*_amd64.deb")
        (pex,) = (tmp_path / "first").glob("*.pex")
        try_in(system, deb, has_network=True)
        try_in(system, pex, has_network=False)
