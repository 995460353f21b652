"""Whether a cache that a change adds lies in a directory with files of somebody else.

nginx's cache loader deletes every file there that is no entry of its cache, and ``nginx -t`` alone
gives the directory to the workers' user: so this is looked at before any file is changed, and no
rollback could bring the files back.
Source: ngx_http_file_cache_manage_file(), ngx_create_paths().
"""

from __future__ import annotations

import os
import re

from nginx_tune.change.apply.errors import RefusedError
from nginx_tune.conf.caches import caches
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.tree import ConfTree

_ENTRY = re.compile(r"[0-9a-f]{32}(?:\.[0-9]{10})?")
"""MD5 of the key, and such a file while it is written (ngx_http_file_cache_name, ngx_create_temp_
file)."""


def refuse_foreign_files(before: ConfTree, after: ConfTree) -> None:
    """Look into the directory of every cache that is there after the change and not before.

    Errors: RefusedError that names the line and the first file that nginx would delete.
    """
    known = _caches(before)
    for path, line in _caches(after).items():
        if path not in known and (foreign := foreign_file(path)):
            raise RefusedError(
                f"{line.file}:{line.line}: {line.name} {line.value}: nginx would delete what lies "
                f"there and is not of a cache, such as {foreign}",
                hint="name a directory that is not there yet, or an empty one of the workers' user",
            )


def foreign_file(directory: str) -> str:
    """The first file below that has no name of a cache's file; empty for none.

    Directories are harmless by themselves: the loader goes through them and leaves them. It
    follows links, so one is a foreign file whatever it leads to. What cannot be read is foreign.
    Source: ngx_walk_tree().
    """
    left = [directory]
    while left:
        place = left.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif entry.is_symlink() or not _ENTRY.fullmatch(entry.name):
                        return entry.path
        except FileNotFoundError:
            continue
        except OSError:
            return place
    return ""


def _caches(tree: ConfTree) -> dict[str, Directive]:
    """The directories of all caches, links resolved, with their lines."""
    return {
        os.path.realpath(path): one.place
        for one in caches(tree)
        if (path := tree.full_path(one.directory)) is not None
    }
