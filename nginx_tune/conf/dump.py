"""The files inside the output of ``nginx -T``, so that places are those of the original files.

Source: nginx.c, main: for each file read, in the order met and each once,
``# configuration file PATH:``, a line end, its bytes, a line end. Other words of nginx (``syntax
is ok``) may stand before the first.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple

from nginx_tune.conf.tree import read_tree
from nginx_tune.errors import NginxTuneError, UsageError

_HEAD = re.compile(rb"^# configuration file ([^\r\n]+):\r?\n", re.MULTILINE)


_SAID = re.compile(rb"nginx: |\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] ")
"""Source: ngx_log_stderr and ngx_log_error_core."""


_MOST_PASTED = 16
"""Lines that look like heads and that a dump is read anew for."""


class AbsentError(NginxTuneError):
    """A file that the dump has not."""

    reason = "not in the dump"


class Dump(NamedTuple):
    """A dump as something that a tree can be read through."""

    main: str
    files: dict[str, bytes]

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file; AbsentError for one that the dump has not."""
        return _content(self.files, path)

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory: what its patterns matched was dumped, all else does not matter."""
        bases = {f"{one.rstrip('/')}/" for one in (path, _normal(path))}
        below = {
            file[len(base) :].partition("/")[0]
            for base in bases
            for file in self.files
            if file.startswith(base)
        }
        return sorted(below)


def _content(files: Mapping[str, bytes], path: str) -> bytes:
    found = files.get(path, files.get(_normal(path)))
    if found is None:
        raise AbsentError(f"{path}: not in the dump")
    return found


def parse_dump(data: bytes) -> Dump:
    """The files of a dump; the first is the main one.

    A file may hold a line that looks like a head, such as one that was pasted from a dump: what no
    include reaches, and what is named again with other bytes, belongs to the file in which it
    stands. Old versions print a file as often as it is included.
    Errors: UsageError when there is no file in it.
    """
    heads = list(_HEAD.finditer(data))
    if not heads:
        raise UsageError(
            "standard input: no output of nginx -T", hint="nginx -T | nginx-tune audit -"
        )
    heads = _without_pasted(data, heads)
    dump = _split(data, heads)
    reached, faults = _follow(dump)
    for _ in range(_MOST_PASTED):
        idle = next((head for head in heads if _name(head) not in reached), None)
        if idle is None:
            break
        fewer = [head for head in heads if head is not idle]
        joined = _split(data, fewer)
        reached, after = _follow(joined)
        if after > faults:
            break  # a file by itself, whose include is not seen here
        heads, dump, faults = fewer, joined, after
    return dump


def _follow(dump: Dump) -> tuple[set[str], int]:
    """The files that the includes of a dump reach, and how many faults are met."""
    reached = set()

    class Reached(Dump):
        """Which are asked for, whether they can be parsed or not."""

        def read_bytes(self, path: str) -> bytes:
            """Contents of a file."""
            reached.add(_normal(path))
            return _content(self.files, path)

    return reached, len(read_tree(dump.main, Reached(*dump)).unparsed)


def _without_pasted(data: bytes, heads: list[re.Match[bytes]]) -> list[re.Match[bytes]]:
    """The heads but for those that name a file again and are followed by other bytes."""
    first: dict[str, bytes] = {}
    kept = []
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        content = _behind(data, head, after)
        if first.setdefault(_name(head), content) == content:
            kept.append(head)
    return kept


def _split(data: bytes, heads: list[re.Match[bytes]]) -> Dump:
    files: dict[str, bytes] = {}
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        files.setdefault(_name(head), _behind(data, head, after))
    return Dump(next(iter(files)), files)


def _behind(data: bytes, head: re.Match[bytes], after: re.Match[bytes] | None) -> bytes:
    return _without_line_end(data[head.end() : len(data) if after is None else after.start()])


def printed(data: bytes, files: Mapping[str, bytes]) -> list[str]:
    """Which of some files stand in a dump, whole and under their own heads.

    A head by itself says nothing, since a file may hold such a line: so the bytes must follow that
    the file is known to have, and the line end that nginx puts behind them. Bytes that differ are
    of a file that was written to meanwhile.
    Source: nginx.c, main (``ngx_dump_config``).
    """
    ends: dict[str, list[int]] = {}
    for head in _HEAD.finditer(data):
        ends.setdefault(_name(head), []).append(head.end())
    return [
        path
        for path, content in files.items()
        if any(_is_whole(data, end, content) for end in ends.get(_normal(path), []))
    ]


def _is_whole(data: bytes, start: int, content: bytes) -> bool:
    """Whether a file stands there, and after it the next head or nothing."""
    end = start + len(content) + 1
    if not data.startswith(content + b"\n", start):
        return False
    return end == len(data) or _HEAD.match(data, end) is not None


def _name(head: re.Match[bytes]) -> str:
    return _normal(head[1].decode("utf-8", "surrogateescape"))


def _normal(path: str) -> str:
    """One spelling: glob(3) and an include may double slashes or go by ``..``."""
    return posixpath.normpath(path)


def is_dump(data: bytes) -> bool:
    """Whether a saved file is the output of ``nginx -T``, not a configuration by itself.

    Before the first head stand at most nginx's own words. One file alone is its own dump but for
    that line, so that its includes are followed here: it is no dump unless a second head follows.
    """
    heads = _HEAD.finditer(data)
    first, second = next(heads, None), next(heads, None)
    if first is None or second is None:
        return False
    before = data[: first.start()].splitlines()
    return all(not line.strip() or _SAID.match(line) for line in before)


def _without_line_end(text: bytes) -> bytes:
    """A file without the line end that nginx put behind it."""
    return (
        text.removesuffix(b"\n").removesuffix(b"\r")
        if text.endswith(b"\r\n")
        else (text.removesuffix(b"\n"))
    )
