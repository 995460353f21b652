"""Edits of configuration files: what is not named stays as it is, byte for byte.

An edit replaces a span of one file's text. Edits are made with the functions below, which keep
the file's own indentation and line ends, and applied together: edits that touch one another, or
that put the same directive into the same block, are a conflict and never both applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nginx_tune.conf.directive import Directive, Source
from nginx_tune.conf.lexer import LUA_QUOTE, read_tokens


@dataclass(frozen=True)
class Edit:
    """New text for a span of a file's text; nothing is replaced where both ends are one."""

    source: Source
    start: int
    end: int
    text: str
    claim: tuple[int, str] | None = None
    """The block (by its start) and the name of the directive that is added to it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int, int, str]:
        return (self.source.file, self.start, self.end, self.text)


class ConflictError(ValueError):
    """Two edits that cannot both be applied."""


def set_arguments(directive: Directive, arguments: str) -> Edit:
    """The directive with other arguments, written as given."""
    spans = word_spans(directive)
    if len(spans) == 1:
        return Edit(directive.source, spans[0][1], spans[0][1], f" {arguments}")
    return Edit(directive.source, spans[1][0], spans[-1][1], arguments)


def replace_argument(directive: Directive, index: int, argument: str) -> Edit:
    """The directive with its argument of that index (from 0) written as given."""
    start, end = word_spans(directive)[index + 1]
    return Edit(directive.source, start, end, argument)


def remove_argument(directive: Directive, index: int) -> Edit:
    """The directive without its argument of that index (from 0) and the space before it."""
    spans = word_spans(directive)
    return Edit(directive.source, spans[index][1], spans[index + 1][1], "")


def add_argument(directive: Directive, argument: str) -> Edit:
    """The directive with one argument more."""
    end = word_spans(directive)[-1][1]
    return Edit(directive.source, end, end, f" {argument}")


def remove(directive: Directive) -> Edit:
    """The file without the directive and its block; its line too when nothing else stands there."""
    text = directive.source.text
    start = directive.start
    end = directive.end if directive.block is None else directive.close + 1
    line_start = text.rfind("\n", 0, start) + 1
    after = end
    while after < len(text) and text[after] in " \t\r":
        after += 1
    if not text[line_start:start].strip(" \t") and (after == len(text) or text[after] == "\n"):
        return Edit(directive.source, line_start, min(after + 1, len(text)), "")
    while start > line_start and text[start - 1] in " \t" and text[line_start:start].strip(" \t"):
        start -= 1
    return Edit(directive.source, start, end, "")


def add_to(block: Directive, line: str) -> Edit:
    """``line`` (``NAME ARGUMENTS;``) as the first directive of a block.

    Errors: ValueError for a directive that has no block.
    """
    if block.block is None:
        raise ValueError(f"{block} has no block")
    name = line.split(None, 1)[0].rstrip(";")
    text = block.source.text
    rest_of_line = text[block.end : block.close].partition("\n")
    if not rest_of_line[1] or rest_of_line[0].strip(" \t\r"):
        return Edit(block.source, block.end, block.end, f" {line}", (block.start, name))
    newline = "\r\n" if rest_of_line[0].endswith("\r") else "\n"
    indent = _indent_inside(block)
    return Edit(block.source, block.end, block.end, f"{newline}{indent}{line}", (block.start, name))


def word_spans(directive: Directive) -> list[tuple[int, int]]:
    """Where the directive's name and each of its arguments stand in the text, with quotes."""
    part = directive.source.text[directive.start : directive.end]
    return [
        (directive.start + start, directive.start + end)
        for mark, _, quote, start, end in read_tokens(part[:-1])
        if not mark and quote != LUA_QUOTE
    ]


def conflicts(first: Edit, second: Edit) -> bool:
    """Whether two different edits cannot both be applied."""
    if first == second or first.source.file != second.source.file:
        return False
    if first.claim is not None and first.claim == second.claim:
        return True
    if first.start == first.end == second.start == second.end:
        return False  # two directives put at one place
    return first.start <= second.end and second.start <= first.end


def apply_edits(source: Source, edits: Iterable[Edit]) -> bytes:
    """The bytes of a file after the edits of it; the same edit twice counts once.

    Errors: ConflictError when two edits touch each other.
    """
    ordered = sorted(
        {edit: None for edit in edits if edit.source.file == source.file},
        key=lambda edit: (edit.start, edit.end),
    )
    parts: list[str] = []
    at = 0
    for index, edit in enumerate(ordered):
        for later in ordered[index + 1 :]:
            if later.start > edit.end:
                break
            if conflicts(edit, later):
                raise ConflictError(f"{source.file}: two edits at offset {later.start}")
        parts += source.text[at : edit.start], edit.text
        at = edit.end
    text = "".join([*parts, source.text[at:]])
    return (source.mark + text).encode("utf-8", "surrogateescape")


def _indent_inside(block: Directive) -> str:
    """The indentation of the block's first line of its own, else of its own line and four more."""
    text = block.source.text
    for inner in block.block.directives if block.block else ():
        start = text.rfind("\n", 0, inner.start) + 1
        lead = text[start : inner.start]
        if start > block.end and not lead.strip(" \t"):
            return lead
    line_start = text.rfind("\n", 0, block.start) + 1
    lead = text[line_start : block.start]
    return (lead if not lead.strip(" \t") else "") + "    "
