"""Changes of files as a unified diff that ``patch -p1`` and ``git apply`` take.

Source: POSIX diff -u; git-diff(1) for quoted names and for a missing line end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

CONTEXT_LINES = 3
_NO_LINE_END = b"\n\\ No newline at end of file\n"
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_FIRST_PRINTABLE, _DELETE = 32, 127


def render_diff(changes: Iterable[tuple[str, bytes, bytes]]) -> bytes:
    """The diff of (name, old bytes, new bytes); names lose a leading slash.

    Every byte of a changed line is kept, whatever the encoding and line ends.
    """
    return b"".join(part for change in changes for part in _file(*change))


def _file(name: str, old: bytes, new: bytes) -> Iterator[bytes]:
    old_lines, new_lines = _lines(old), _lines(new)
    groups = list(SequenceMatcher(None, old_lines, new_lines).get_grouped_opcodes(CONTEXT_LINES))
    if not groups:
        return
    yield b"--- " + _name("a/", name) + b"\n+++ " + _name("b/", name) + b"\n"
    for group in groups:
        first, last = group[0], group[-1]
        yield b"@@ -%s +%s @@\n" % (_range(first[1], last[2]), _range(first[3], last[4]))
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (_line(b" ", line) for line in old_lines[old_from:old_to])
                continue
            yield from (_line(b"-", line) for line in old_lines[old_from:old_to])
            yield from (_line(b"+", line) for line in new_lines[new_from:new_to])


def _lines(data: bytes) -> list[bytes]:
    """Lines with their ends; only a line feed ends one, as for ``diff``."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _line(mark: bytes, line: bytes) -> bytes:
    return mark + (line if line.endswith(b"\n") else line + _NO_LINE_END)


def _range(start: int, end: int) -> bytes:
    length = end - start
    begin = start + 1 if length else start
    return b"%d" % begin if length == 1 else b"%d,%d" % (begin, length)


def _name(prefix: str, name: str) -> bytes:
    """A file's name, quoted as git does where it is not plain ASCII."""
    raw = (prefix + name.lstrip("/")).encode("utf-8", "surrogateescape")
    if all(_FIRST_PRINTABLE < byte < _DELETE and byte not in _ESCAPES for byte in raw):
        return raw
    quoted = "".join(
        "\\" + _ESCAPES[byte]
        if byte in _ESCAPES
        else chr(byte)
        if _FIRST_PRINTABLE <= byte < _DELETE
        else f"\\{byte:03o}"
        for byte in raw
    )
    return f'"{quoted}"'.encode()
