"""The hunks of a changed file: each span that changes, as it is before and after; pure.

They are exact: one text in the place of the other makes the new file of the old one, and the old
one of the new. So a plan alone tells whether it writes anything but what its hunks show.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.conf.directive import Block
from nginx_tune.conf.tree import ParsedFile
from nginx_tune.documents.plan import Hunk, PlannedFile

Span = tuple[int, int, bytes]
"""Start and end in the bytes of a file, and what takes their place."""
_Exact = tuple[int, bytes, bytes]
"""Place of a change, with the text before and after."""


class _Piece(NamedTuple):
    """A part of a file; without a text it is as it was."""

    start: int
    """In the old file, as is the end."""
    end: int
    text: bytes | None = None
    reasons: tuple[Hunk, ...] = ()

    @property
    def size(self) -> int:
        """Bytes in the new file."""
        return self.end - self.start if self.text is None else len(self.text)


class TracedFile:
    """A file that is changed step by step, and knows of each byte where it comes from."""

    def __init__(self, old: bytes, hunks: Sequence[Hunk] = ()) -> None:
        self._old = old
        self._pieces = [_Piece(0, len(old))]
        for (start, before, after), own in reversed(_by_span(hunks)):
            self._put((start, start + len(before), after), own)

    @property
    def content(self) -> bytes:
        """All of the file as it is now."""
        return b"".join(
            self._old[one.start : one.end] if one.text is None else one.text for one in self._pieces
        )

    def change(self, spans: Mapping[Span, Sequence[Hunk]]) -> None:
        """Replace spans of the file as it is now, which do not touch; each with its reasons.

        Of a reason its place and its texts are left open: ``hunks`` fills them in.
        """
        for span in reversed(sorted(spans, key=lambda one: one[:2])):  # noqa: C413  # equal ones too
            self._put(span, spans[span])

    def _put(self, span: Span, reasons: Sequence[Hunk]) -> None:
        start, end, text = span
        self._cut(start)
        self._cut(end)
        before, covered, after, at = list[_Piece](), list[_Piece](), list[_Piece](), 0
        for piece in self._pieces:
            behind = at + piece.size
            if behind <= start:
                before.append(piece)
            elif at >= end:
                after.append(piece)
            else:
                if not covered and piece.text is not None:
                    text = piece.text[: start - at] + text
                if piece.text is not None:
                    text += piece.text[max(end - at, 0) :]
                covered.append(piece)
            at = behind
        here = before[-1].end if before else 0
        whole = _Piece(
            covered[0].start if covered else here,
            covered[-1].end if covered else here,
            text,
            tuple(_once([*(hunk for one in covered for hunk in one.reasons), *reasons])),
        )
        self._pieces = [*before, whole, *after]

    def _cut(self, offset: int) -> None:
        """Have a piece that is as it was begin there."""
        at = 0
        for number, piece in enumerate(self._pieces):
            if piece.text is None and at < offset < at + piece.size:
                middle = piece.start + offset - at
                self._pieces[number : number + 1] = [
                    _Piece(piece.start, middle),
                    _Piece(middle, piece.end),
                ]
                return
            at += piece.size

    def origin(self, line: int) -> int:
        """The line (from 1) of the old file from which one comes; of a new one, that it follows."""
        at, left = 0, _line_start(self.content, line)
        for piece in self._pieces:
            if left < at + piece.size:
                inside = 0 if piece.text is not None else left - at
                return _line_of(self._old, piece.start + inside)
            at += piece.size
        return _line_of(self._old, len(self._old))

    def hunks(self, parsed: ParsedFile) -> list[Hunk]:
        """What changed, in the order of the old file; a word that changes with its directive.

        ``parsed`` is the old file.
        """
        changed = [one for one in self._pieces if one.text is not None]
        whole = _whole_directives(self._old, changed, parsed)
        return [
            replace(
                reason,
                line=_line_of(self._old, one.start),
                start_byte=one.start,
                before=_text(self._old[one.start : one.end]),
                after=_text(one.text or b""),
            )
            for one in _apart(whole)
            if one.text != self._old[one.start : one.end]
            for reason in one.reasons
        ]


def planned_file(parsed: ParsedFile, traced: TracedFile) -> PlannedFile:
    """A file as it is and as it will be."""
    content, old = traced.content, parsed.source.data
    return PlannedFile(
        path=parsed.source.file,
        sha256_before=hashlib.sha256(old).hexdigest(),
        sha256_after=hashlib.sha256(content).hexdigest(),
        content=content,
        hunks=traced.hunks(parsed),
    )


def _whole_directives(
    old: bytes, changed: Sequence[_Piece], parsed: ParsedFile
) -> Iterator[_Piece]:
    """The pieces, those inside of one directive as that directive."""
    spans = sorted(
        (parsed.source.byte_offset(start), parsed.source.byte_offset(end))
        for start, end in _statements(parsed.block)
    )

    def around(piece: _Piece) -> tuple[int, int]:
        number = bisect_right(spans, (piece.start, len(old) + 1)) - 1
        start, end = spans[number] if number >= 0 else (0, 0)
        is_inside = start <= piece.start and piece.end <= end
        is_edge = piece.start == piece.end and piece.start in (start, end)
        return (start, end) if is_inside and not is_edge else (piece.start, piece.end)

    groups = [(span, list(found)) for span, found in groupby(changed, around)]
    behind = 0
    for number, ((start, end), pieces) in enumerate(groups):
        following_start = groups[number + 1][1][0].start if groups[number + 1 :] else end
        is_whole = len(pieces) == 1 and (pieces[0].start, pieces[0].end) == (start, end)
        is_met = start < behind or following_start < end  # by one that reaches beyond it
        behind = max(behind, pieces[-1].end)
        if start == end or is_whole or is_met:
            yield from pieces
            continue
        at, text = start, b""
        for one in pieces:
            text += old[at : one.start] + (one.text or b"")
            at = one.end
        behind = end
        reasons = _once([hunk for one in pieces for hunk in one.reasons])
        yield _Piece(start, end, text + old[at:end], tuple(reasons))


def _statements(block: Block) -> Iterator[tuple[int, int]]:
    for one in block.directives:
        yield one.start, one.end
        if one.block is not None:
            yield from _statements(one.block)


def _apart(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """The pieces, of which no two that follow each other are taken for one change."""
    for (start, end, text), found in groupby(pieces, lambda one: (one.start, one.end, one.text)):
        alike = list(found)
        reasons = _once([hunk for one in alike for hunk in one.reasons])
        yield _Piece(start, end, (text or b"") * len(alike), tuple(reasons))


def _once(reasons: Iterable[Hunk]) -> list[Hunk]:
    """Each reason once, wherever its hunk stood before."""
    found: dict[tuple[str, str], Hunk] = {}
    for one in reasons:
        found.setdefault((one.decision, one.reason), one)
    return list(found.values())


class HunkError(ValueError):
    """A hunk that is not so; ``line`` is where it says it stands."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def old_content(file: PlannedFile) -> bytes:
    """The file before the change, by its content and its hunks alone.

    Whether that is what was planned for, ``sha256_before`` says. Errors: HunkError.
    """
    content, parts = file.content, list[bytes]()
    at = behind = 0
    line, counted = 1, 0
    for (start, before, after), own in _by_span(file.hunks):
        said = own[0].line
        if start < 0:
            raise HunkError(said, "a hunk does not say where it begins")
        if start < behind:
            raise HunkError(said, "a hunk stands in another, or they are in disorder")
        if before == after:
            raise HunkError(said, "a hunk changes nothing")
        same = content[at : at + start - behind]
        if len(same) < start - behind:
            raise HunkError(said, "a hunk stands behind the end of the file")
        at += len(same)
        if content[at : at + len(after)] != after:
            raise HunkError(said, "the new file has something else there than its hunk says")
        parts += same, before
        line, counted = line + counted + same.count(b"\n"), before.count(b"\n")
        if any(one.line != line for one in own):
            raise HunkError(said, f"a hunk says that it stands here, and stands in line {line}")
        at += len(after)
        behind = start + len(before)
    return b"".join([*parts, content[at:]])


def first_difference(one: bytes, other: bytes) -> int:
    """The first line (from 1) in which two files differ."""
    pairs = zip(_lines(one), _lines(other), strict=False)
    alike = takewhile(lambda pair: pair[0] == pair[1], pairs)
    return sum(1 for _ in alike) + 1


def _lines(data: bytes) -> list[bytes]:
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), last]


def _by_span(hunks: Sequence[Hunk]) -> list[tuple[_Exact, list[Hunk]]]:
    """The changes in their order, each with the hunks that give a reason for it."""
    return [
        (span, list(own))
        for span, own in groupby(
            hunks, lambda one: (one.start_byte, _bytes(one.before), _bytes(one.after))
        )
    ]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _line_of(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _line_start(data: bytes, line: int) -> int:
    at = 0
    for _ in range(line - 1):
        at = data.find(b"\n", at) + 1
    return at
