"""Files, directives and blocks: the parts of a configuration."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from nginx_tune.conf.secret_places import TABLES, PlaceTable, shown_arguments, shown_name

BYTE_ORDER_MARK = "\ufeff"


def as_utf8(text: str) -> str:
    """Text of a configuration or path, with invalid UTF-8 shown as escapes."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


class Source:
    """The name and text of a file.

    Invalid UTF-8 is kept as lone surrogates, line ends unchanged, and a byte order mark apart from
    the text, so that ``data`` restores the file byte for byte.
    """

    __slots__ = ("_bytes_before", "_line_starts", "file", "mark", "text")

    def __init__(self, file: str, text: str, mark: str = "") -> None:
        self.file = file
        self.text = text
        self.mark = mark
        self._line_starts: list[int] | None = None
        self._bytes_before = (0, len(mark.encode()))

    @classmethod
    def decode(cls, file: str, data: bytes) -> Source:
        """The source decoded from a file's bytes."""
        text = data.decode("utf-8", "surrogateescape")
        bare = text.removeprefix(BYTE_ORDER_MARK)
        return cls(file, bare, BYTE_ORDER_MARK if len(bare) < len(text) else "")

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return (self.mark + self.text).encode("utf-8", "surrogateescape")

    def byte_offset(self, offset: int) -> int:
        """Convert an offset in the text to a byte offset in the file."""
        known, count = self._bytes_before
        if offset < known:
            known, count = 0, len(self.mark.encode())
        count += len(self.text[known:offset].encode("utf-8", "surrogateescape"))
        self._bytes_before = (offset, count)  # places are mostly requested in order
        return count

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1; columns count characters."""
        if self._line_starts is None:
            self._line_starts = [0]
            at = self.text.find("\n")
            while at >= 0:
                self._line_starts.append(at + 1)
                at = self.text.find("\n", at + 1)
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1


class Directive:
    """A directive with its arguments; a block directive has a block.

    ``start`` and ``end`` are offsets in the source's text: from the name to after ``;`` or ``{``;
    ``close`` is the offset of a block's ``}``. ``quotes`` has each argument's quote character, or
    an empty string.
    """

    __slots__ = (
        "args", "block", "close", "end", "included", "name", "parent", "quotes", "source", "start",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        args: tuple[str, ...],
        quotes: tuple[str, ...],
        source: Source,
        span: tuple[int, int],
    ) -> None:
        self.name = name
        self.args = args
        self.quotes = quotes
        self.source = source
        self.start, self.end = span
        self.close = self.end
        self.block: Block | None = None
        self.included: tuple[Block, ...] | None = None
        """The files of an ``include`` that was followed."""
        self.parent: Directive | None = None
        """The enclosing block; at a file's top level, the ``include`` that first read the file."""

    def __repr__(self) -> str:
        return f"<{self} at {self.file}:{self.line}>"

    def __str__(self) -> str:
        """The words without possible secrets, for display."""
        table = self.table
        args = shown_arguments(self.name, self.args, table=table)
        return " ".join((self.shown_name, *args))

    @property
    def shown_name(self) -> str:
        """The name without possible secrets, for display."""
        return shown_name(self.name, table=self.table, is_placed=self.parent is not None)

    @property
    def words(self) -> str:
        """The unredacted words, for analysis and never for display."""
        return " ".join((self.name, *self.args))

    @property
    def table(self) -> PlaceTable | None:
        """Name and arguments of the enclosing block if its lines are not directives (``map``)."""
        outer = self.parent
        while outer is not None and outer.name == "include":
            outer = outer.parent
        if outer is None or outer.name not in TABLES:
            return None
        return outer.name, outer.args

    @property
    def file(self) -> str:
        """Name of the file that contains the directive."""
        return self.source.file

    @property
    def line(self) -> int:
        """Line of the directive's name."""
        return self.source.place(self.start)[0]

    @property
    def column(self) -> int:
        """Column of the directive's name."""
        return self.source.place(self.start)[1]

    @property
    def value(self) -> str:
        """The first argument; empty if there is none."""
        return self.args[0] if self.args else ""


class Block:
    """The directives between two braces, or of a whole file, in order.

    Lookups include the directives of included files, in the include's place.
    """

    __slots__ = ("_at_any_depth", "_at_this_level", "directives")

    def __init__(self, directives: list[Directive]) -> None:
        self.directives = directives
        """The directives as written, with includes unresolved."""
        self._at_this_level: dict[str, list[Directive]] | None = None
        self._at_any_depth: dict[str, list[Directive]] | None = None

    def __iter__(self) -> Iterator[Directive]:
        for directive in self.directives:
            if directive.included is None:
                yield directive
            else:
                for block in directive.included:
                    yield from block

    def all(self, name: str) -> list[Directive]:
        """Every directive with the name in this block, in order."""
        found = self._at_this_level
        return (self.lines if found is None else found).get(name, [])

    @property
    def lines(self) -> dict[str, list[Directive]]:
        """Every directive in this block, in order, by name."""
        found = self._at_this_level
        if found is None:
            found = self._at_this_level = {}
            for directive in self:
                if directive.name in found:
                    found[directive.name].append(directive)
                else:
                    found[directive.name] = [directive]
        return found

    def first(self, name: str) -> Directive | None:
        """The first directive with the name in this block."""
        found = self.all(name)
        return found[0] if found else None

    @property
    def by_name(self) -> Mapping[str, Sequence[Directive]]:
        """Every directive of this block and its inner blocks, in order, by name.

        The result is computed once, since a walk takes time in proportion to the tree.
        """
        found = self._at_any_depth
        if found is None:
            found = self._at_any_depth = {}
            _collect(self, found)
        return found

    def within(self, name: str) -> Sequence[Directive]:
        """Every directive with the name in this block and its inner blocks, in order."""
        return self.by_name.get(name, ())

    def walk(self) -> Iterator[Directive]:
        """Every directive of this block and its inner blocks."""
        for directive in self:
            yield directive
            if directive.block is not None:
                yield from directive.block.walk()


def _collect(block: Block, found: dict[str, list[Directive]]) -> None:
    for directive in block.directives:
        if directive.included is not None:
            for file in directive.included:
                _collect(file, found)
            continue
        if directive.name in found:
            found[directive.name].append(directive)
        else:
            found[directive.name] = [directive]
        if directive.block is not None:
            _collect(directive.block, found)
