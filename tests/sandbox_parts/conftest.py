"""The package as every user may run it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from unprivileged import copy_package


@pytest.fixture(scope="session")
def package() -> Iterator[Path]:
    """A copy of the package that every user may read."""
    path = Path(tempfile.mkdtemp(prefix="nginx-tune-parts-", dir="/var/tmp"))
    path.chmod(0o755)
    yield copy_package(path)
    shutil.rmtree(path)
