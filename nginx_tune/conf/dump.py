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

from nginx_tune.errors import NginxTuneError, UsageError

_HEAD = re.compile(rb"^# configuration file ([^\r\n]+):\r?\n", re.MULTILINE)


_SAID = re.compile(rb"nginx: |\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] ")
"""Source: ngx_log_stderr and ngx_log_error_core."""


class AbsentError(NginxTuneError):
    """A file that the dump has not."""

    reason = "not in the dump"


class Dump(NamedTuple):
    """A dump as something that a tree can be read through."""

    main: str
    files: dict[str, bytes]

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file; AbsentError for one that the dump has not."""
        try:
            return self.files[path]
        except KeyError:
            raise AbsentError(f"{path}: not in the dump") from None

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory: what its patterns matched was dumped, all else does not matter."""
        base = path.rstrip("/") + "/"
        below = {
            file[len(base) :].partition("/")[0] for file in self.files if file.startswith(base)
        }
        return sorted(below)


def parse_dump(data: bytes) -> Dump:
    """The files of a dump; the first is the main one.

    A file that is named twice keeps its first contents: the second head stands in some file.
    Errors: UsageError when there is no file in it.
    """
    heads = list(_HEAD.finditer(data))
    if not heads:
        raise UsageError(
            "standard input: no output of nginx -T", hint="nginx -T | nginx-tune audit -"
        )
    files: dict[str, bytes] = {}
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        end = len(data) if after is None else after.start()
        files.setdefault(_name(head), _without_line_end(data[head.end() : end]))
    return Dump(next(iter(files)), files)


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
