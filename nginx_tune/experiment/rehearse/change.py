"""What a change does to the files of a configuration; pure."""

from __future__ import annotations

import posixpath
import re

from nginx_tune.conf.tree import ConfTree

_PLACE = re.compile(r" in (?P<file>/.*):[0-9]+$")
"""How a message of nginx ends that is about a line."""


def change_between(old: ConfTree, new: ConfTree) -> dict[str, bytes]:
    """From one tree to another: the bytes that change, in the places of the old one's files.

    What the new one reads below its own directory is laid over the same names below the old one's;
    what the old one alone reads there is emptied, which nginx reads as nothing. Elsewhere files
    keep their names.
    """
    before, after = _files(old), _files(new)
    home, there = posixpath.dirname(old.path), posixpath.dirname(new.path)
    moved = {_moved(path, there, home): data for path, data in after.items()}
    moved.pop(posixpath.join(home, posixpath.basename(new.path)), None)
    moved[old.path] = after[new.path]
    if home != there:
        moved |= {path: b"" for path in before if _is_below(path, home) and path not in moved}
    return {path: data for path, data in moved.items() if before.get(path) != data}


def as_read(message: str, *, laid: str, read: str) -> str:
    """What nginx says of a file that was laid in another's place, with the name it was read by.

    ``laid`` and ``read`` are the main file's: in a directory of its own all below it moved along.
    """
    ended = _PLACE.search(message)
    if ended is None:
        return message
    own = read_name(ended["file"], laid=laid, read=read)
    return f"{message[: ended.start('file')]}{own}{message[ended.end('file') :]}"


def read_name(file: str, *, laid: str, read: str) -> str:
    """The name by which a file was read that was laid in another's place."""
    if file == laid:
        return read
    return _moved(file, posixpath.dirname(laid), posixpath.dirname(read))


def _files(tree: ConfTree) -> dict[str, bytes]:
    return {one.source.file: one.source.data for one in tree.parsed}


def _moved(path: str, there: str, home: str) -> str:
    return posixpath.join(home, posixpath.relpath(path, there)) if _is_below(path, there) else path


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory.rstrip('/')}/")
