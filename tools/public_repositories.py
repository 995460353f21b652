"""Nginx configurations of public repositories, for the tools that judge by them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nginx_tune.conf.dumps import is_dump
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.findings import Finding
from nginx_tune.host.live import LiveHost

FETCH_SECONDS = 300
MOST_BYTES = 2 << 20
SUFFIXES = {
    ".conf", ".nginx", ".vhost", ".inc", "",
    ".sample", ".example", ".dist", ".template", ".tmpl", ".tpl", ".j2", ".erb",
}  # fmt: skip
"""Templates too: they are given to audits as they stand, and many of them can be parsed."""


class Repository(NamedTuple):
    """One commit of one repository."""

    url: str
    commit: str
    directory: Path

    def link(self, finding: Finding) -> str:
        """Where a finding stands."""
        place = Path(finding.file).resolve().relative_to(self.directory.resolve())
        base = self.url.removesuffix(".git")
        return f"[{place}:{finding.line}]({base}/blob/{self.commit}/{place}#L{finding.line})"


def repositories(listed: Path, work: Path) -> Iterator[Repository]:
    """Each commit of the list, fetched where it is not there yet."""
    for line in listed.read_text(encoding="utf-8").splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        url, commit = words
        directory = work / f"{Path(url).name.removesuffix('.git')}-{commit[:12]}"
        if not (directory / ".git").exists():
            directory.mkdir(parents=True, exist_ok=True)
            for arguments in (
                ["init", "-q"], ["fetch", "-q", "--depth", "1", url, commit],
                ["-c", "advice.detachedHead=false", "checkout", "-q", "FETCH_HEAD"],
            ):  # fmt: skip
                subprocess.run(
                    ["git", *arguments], cwd=directory, check=True, timeout=FETCH_SECONDS
                )
        yield Repository(url, commit, directory)


def trees(repository: Repository) -> Iterator[ConfTree]:
    """Main configurations, then parts, without the files that a main configuration includes."""
    found: dict[str, ConfTree] = {}
    included: set[str] = set()
    for path in sorted(repository.directory.rglob("*")):
        if ".git" in path.parts or path.is_symlink() or not path.is_file():
            continue
        if path.suffix not in SUFFIXES or not 0 < path.stat().st_size < MOST_BYTES:
            continue
        text = path.read_bytes()
        if is_dump(text):  # a saved nginx -T: its files are no lines of this one
            continue
        if not any(word in text for word in (b"http", b"server", b"location", b"upstream")):
            continue
        tree = read_tree(str(path), LiveHost(), maps=(("/etc/nginx", str(path.parent)),))
        if not tree.parsed or not set(tree.names) & {"server", "location", "upstream", "http"}:
            continue
        own = os.path.realpath(path)
        found[own] = tree
        if not tree.is_part:
            included.update(set(map(os.path.realpath, tree.files)) - {own})
    kept = [tree for path, tree in found.items() if path not in included]
    yield from sorted(kept, key=lambda tree: tree.is_part)
