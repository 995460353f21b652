"""What examples start from: a checkout, and a wheel of it without the load probe."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import commit_all

from nginx_tune.measure.load.probe import find_probe

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of what is here, without the tests."""
    repository = tmp_path_factory.mktemp("checkout") / "nginx-tune"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "benchmarks/")):
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, repository / name)
    commit_all(repository)
    return repository


@pytest.fixture(scope="session")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pure wheel: what most examples do needs no load probe."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", folder, checkout],
        check=True,
        env={**os.environ, "CARGO": "/bin/false", "NGINX_TUNE_REQUIRE_RUST": ""},
    )  # fmt: skip
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def native_wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the load probe that all tests run."""
    folder = tmp_path_factory.mktemp("native-wheel")
    probe = folder / "nginx-tune-probe"
    shutil.copy2(find_probe(), probe)
    Path(f"{probe}.licences").touch()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", folder, checkout],
        check=True,
        env={**os.environ, "NGINX_TUNE_PROBE": str(probe)},
    )  # fmt: skip
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def wheelhouse(native_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of what the package depends on: hosts in namespaces reach no index."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:",
         "--dest", folder, native_wheel],
        check=True,
    )  # fmt: skip
    return folder
