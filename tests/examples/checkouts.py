"""Repositories for examples."""

import subprocess
from pathlib import Path

MODULES = "/etc/nginx/modules-enabled/*.conf"
"""An include of Debian's main file that a repository seldom holds."""


def debian_tree(root: Path, line: str) -> Path:
    """A checkout of Debian's layout with a line in the site; its main file.

    All its includes are absolute, and the site is enabled by an absolute link.
    """
    tree = root / "etc/nginx"
    for name in ("sites-available", "sites-enabled", "conf.d"):
        (tree / name).mkdir(parents=True)
    (tree / "nginx.conf").write_text(
        f"user www-data;\ninclude {MODULES};\nevents {{}}\nhttp {{\n"
        " include /etc/nginx/mime.types;\n include /etc/nginx/conf.d/*.conf;\n"
        " include /etc/nginx/sites-enabled/*;\n}\n"
    )
    (tree / "conf.d/logs.conf").write_text("access_log off;\n")
    (tree / "sites-available/shop").write_text(f"server {{\n listen 80;\n {line}\n}}\n")
    (tree / "sites-enabled/shop").symlink_to("/etc/nginx/sites-available/shop")
    return tree / "nginx.conf"


def commit_all(repository: Path) -> None:
    """Make a repository of a directory, or add a commit to it."""
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)
