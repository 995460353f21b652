"""Edits of configuration files that leave everything else unchanged, byte for byte.

An edit replaces a span of one file's text. The functions below create edits that keep the file's
indentation and line ends. Edits are applied together: edits that touch one another, or that add the
same directive to the same block, conflict and are never both applied.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nginx_tune.conf.directive import Directive, Source
from nginx_tune.conf.parser import LUA_QUOTE, read_tokens


@dataclass(frozen=True)
class Edit:
    """New text for a span of a file's text; an empty span means an insertion."""

    source: Source
    start: int
    end: int
    text: str
    claim: tuple[int, str] | None = None
    """The start of the block and the directive's name, for an added directive."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int, int, str]:
        return (self.source.file, self.start, self.end, self.text)


class ConflictError(ValueError):
    """Two edits that cannot both be applied."""


def set_arguments(directive: Directive, arguments: str) -> Edit:
    """Replace all arguments of a directive by a text, as given."""
    spans = word_spans(directive)
    if len(spans) == 1:
        return Edit(directive.source, spans[0][1], spans[0][1], f" {arguments}")
    return Edit(directive.source, spans[1][0], spans[-1][1], arguments)


def change_arguments(
    directive: Directive, arguments: Sequence[str], write: Callable[[str], str]
) -> Edit:
    """Replace those arguments of a directive that differ; equal ones keep their spelling.

    ``write`` quotes a new argument. Spaces and comments between words are kept.
    """
    text, spans = directive.source.text, word_spans(directive)
    at = spans[0][1]
    parts = []
    for index, argument in enumerate(arguments):
        if index + 1 >= len(spans):
            parts.append(f" {write(argument)}")
            continue
        start, end = spans[index + 1]
        is_same = directive.args[index] == argument
        parts += text[at:start], text[start:end] if is_same else write(argument)
        at = end
    return Edit(directive.source, spans[0][1], spans[-1][1], "".join(parts))


def replace_argument(directive: Directive, index: int, argument: str) -> Edit:
    """Replace the argument at an index (from 0) by a text, as given."""
    start, end = word_spans(directive)[index + 1]
    return Edit(directive.source, start, end, argument)


def add_argument(directive: Directive, argument: str, *, behind: int = -1) -> Edit:
    """Add an argument after the one at index ``behind``, or after the last one."""
    end = word_spans(directive)[behind if behind < 0 else behind + 1][1]
    return Edit(directive.source, end, end, f" {argument}")


def remove(directive: Directive) -> Edit:
    """Remove a directive with its block, and its line if nothing else is on it."""
    text = directive.source.text
    start = directive.start
    end = directive.end if directive.block is None else directive.close + 1
    line_start = text.rfind("\n", 0, start) + 1
    after = end
    while after < len(text) and text[after] in " \t\r":
        after += 1
    if not text[line_start:start].strip(" \t") and (after == len(text) or text[after] == "\n"):
        return Edit(directive.source, line_start, min(after + 1, len(text)), "")
    if not text[line_start:start].strip(" \t"):  # a comment or another directive follows
        return Edit(directive.source, start, after, "")
    while text[start - 1] in " \t":
        start -= 1
    return Edit(directive.source, start, end, "")


def add_to(block: Directive, line: str) -> Edit:
    """Add ``line`` (``NAME ARGUMENTS;``) as the first directive of a block.

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


def add_after(directive: Directive, line: str) -> Edit:
    """Add ``line`` (``NAME ARGUMENTS;``) after a directive without a block, on the next line.

    If another directive precedes ``directive`` on its line, ``line`` stays on it too.
    """
    text = directive.source.text
    line_start = text.rfind("\n", 0, directive.start) + 1
    lead = text[line_start : directive.start]
    if lead.strip(" \t"):  # another directive precedes it on its line
        return Edit(directive.source, directive.end, directive.end, f" {line}")
    line_end = text.find("\n", directive.end)
    newline = "\r\n" if line_end > 0 and text[line_end - 1] == "\r" else "\n"
    at = directive.end
    if line_end > 0 and text[at:line_end].lstrip(" \t").startswith(
        "#"
    ):  # its comment stays with it
        at = line_end - (newline == "\r\n")
    return Edit(directive.source, at, at, f"{newline}{lead}{line}")


def word_spans(directive: Directive) -> list[tuple[int, int]]:
    """The spans of a directive's name and each of its arguments, with quotes."""
    part = directive.source.text[directive.start : directive.end]
    return [
        (directive.start + start, directive.start + end)
        for mark, _, quote, start, end in read_tokens(part[:-1])
        if not mark and quote != LUA_QUOTE
    ]


class EditSet:
    """Edits of any files that can all be applied together."""

    def __init__(self) -> None:
        self._by_file: dict[str, list[Edit]] = {}  # by place
        self._claims: dict[tuple[str, tuple[int, str]], Edit] = {}

    def add(self, edits: Iterable[Edit]) -> bool:
        """Add all of the edits, or none if one conflicts with an earlier one."""
        taken: list[Edit] = []
        for edit in edits:
            if self._has(edit):
                continue
            if self._conflicts(edit):
                for one in taken:
                    self._remove(one)
                return False
            insort(self._by_file.setdefault(edit.source.file, []), edit, key=_place)
            if edit.claim is not None:
                self._claims[edit.source.file, edit.claim] = edit
            taken.append(edit)
        return True

    def of(self, file: str) -> list[Edit]:
        """The edits of one file, in order."""
        return self._by_file.get(file, [])

    def _near(self, edit: Edit) -> Iterator[Edit]:
        """The edits that begin within the edit's span, and the last one that begins before it."""
        found = self.of(edit.source.file)
        at = max(0, bisect_left(found, edit.start, key=lambda edit: edit.start) - 1)
        while at < len(found) and found[at].start <= edit.end:
            yield found[at]
            at += 1

    def _has(self, edit: Edit) -> bool:
        return any(one == edit for one in self._near(edit))

    def _conflicts(self, edit: Edit) -> bool:
        if edit.claim is not None and (edit.source.file, edit.claim) in self._claims:
            return True
        return any(_touch(one, edit) for one in self._near(edit))

    def _remove(self, edit: Edit) -> None:
        self._by_file[edit.source.file].remove(edit)
        if edit.claim is not None:
            del self._claims[edit.source.file, edit.claim]


def apply_edits(source: Source, edits: Iterable[Edit]) -> bytes:
    """The bytes of a file after its edits; identical edits count once.

    Errors: ConflictError if two edits touch each other.
    """
    chosen = EditSet()
    for edit in edits:
        if not chosen.add([edit]):
            raise ConflictError(f"{source.file}: two edits at offset {edit.start}")
    parts: list[str] = []
    at = 0
    for edit in chosen.of(source.file):
        parts += source.text[at : edit.start], edit.text
        at = edit.end
    text = "".join([*parts, source.text[at:]])
    return (source.mark + text).encode("utf-8", "surrogateescape")


def _touch(first: Edit, second: Edit) -> bool:
    if first.start == first.end == second.start == second.end:
        return False  # two insertions at one place, in order
    return first.start <= second.end and second.start <= first.end


def _place(edit: Edit) -> tuple[int, int]:
    return edit.start, edit.end


def _indent_inside(block: Directive) -> str:
    """The indentation of the block's first line, else four spaces more than the block's own."""
    text = block.source.text
    for inner in block.block.directives if block.block else ():
        start = text.rfind("\n", 0, inner.start) + 1
        lead = text[start : inner.start]
        if start > block.end and not lead.strip(" \t"):
            return lead
    line_start = text.rfind("\n", 0, block.start) + 1
    lead = text[line_start : block.start]
    return (lead if not lead.strip(" \t") else "") + "    "
