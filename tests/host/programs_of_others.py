"""Trees in which somebody other than root could change what a program does."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def roots_directory() -> Iterator[Path]:
    """A directory to which only root has ever had the key: temporary ones lie under /tmp."""
    base = Path("/usr/local/lib")
    path = Path(tempfile.mkdtemp(prefix="nginx-tune-test-", dir=base))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def write_program(path: Path, text: str = "#!/bin/sh\n", *, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def give_to_nobody(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
