"""Repositories for examples."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit_all(repository: Path) -> None:
    """Make a repository of a directory, or add a commit to it."""
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)
