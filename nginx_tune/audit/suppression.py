"""Comments that silence a rule at one place, and what is wrong with such comments; pure.

    # nginx-tune: ignore[rule-id, other-id] why this is right here until=2027-01-31

Behind a directive it is for that directive, on lines of its own for the directive that follows,
and for a block for all in it. ``ignore-file[…]`` is for the whole file. A comment without a
reason, and one whose day has passed, silences nothing. Which day it is comes from outside.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nginx_tune.audit.rule import Hit
from nginx_tune.conf.directive import Block, Directive, Source
from nginx_tune.conf.lexer import read_tokens
from nginx_tune.conf.tree import ConfTree, ParsedFile

MARK = "nginx-tune:"
_COMMENT = re.compile(r"#[ \t]*nginx-tune:[ \t]*([^\n]*)")
_IGNORE = re.compile(r"ignore(-file)?\[([a-z0-9, \t*-]+)\][ \t]*(.*)")
_UNTIL = re.compile(r"(?:^|[ \t])until=(\S+)")
_DAY = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])")


@dataclass(eq=False)
class Suppression:
    """One comment."""

    comment: Directive
    """Its place, as the place of findings about it."""
    rules: tuple[str, ...]
    """Empty when the comment cannot be read."""
    reason: str
    until: str | None
    spans: tuple[tuple[int, int], ...]
    """Offsets of the directives it is for."""
    used: bool = False

    def is_expired(self, today: str | None) -> bool:
        """Whether its day has passed; not where the day is not known."""
        return self.until is not None and today is not None and today > self.until

    def is_in_force(self, today: str | None) -> bool:
        """Whether it silences anything at all."""
        return bool(self.rules and self.reason) and not self.is_expired(today)

    def covers(self, rule: str, hit: Hit) -> bool:
        """Whether it is about a hit of a rule."""
        return (
            rule in self.rules
            and hit.place.source.file == self.comment.file
            and any(start <= hit.place.start < end for start, end in self.spans)
        )


def read_suppressions(tree: ConfTree) -> list[Suppression]:
    """The suppression comments of a tree in the order of its files."""
    return [one for file in tree.parsed if MARK in file.source.text for one in _of_file(file)]


def _of_file(file: ParsedFile) -> Iterator[Suppression]:
    text = file.source.text
    spans = sorted(_spans(file.block))
    for start, end in _gaps(text):
        for match in _COMMENT.finditer(text, start, end):
            yield _parse(file.source, match, spans)


def _gaps(text: str) -> Iterator[tuple[int, int]]:
    """Where comments stand: between the words and marks."""
    at = 0
    for _, _, _, start, end in read_tokens(text):
        yield at, start
        at = end
    yield at, len(text)


def _spans(block: Block) -> Iterator[tuple[int, int, int]]:
    """(start, end of the words, end with the block) of every directive of a file."""
    for directive in block.directives:
        end = directive.end if directive.block is None else directive.close + 1
        yield directive.start, directive.end, end
        if directive.block is not None:
            yield from _spans(directive.block)


def _parse(source: Source, match: re.Match[str], spans: list[tuple[int, int, int]]) -> Suppression:
    comment = Directive("#", (match[0],), ("",), source, match.span())
    read = _IGNORE.fullmatch(match[1].strip())
    if read is None:
        return Suppression(comment, (), "", None, ())
    until = _UNTIL.search(read[3])
    reason = _UNTIL.sub("", read[3]).strip()
    if until is not None and not _DAY.fullmatch(until[1]):
        return Suppression(comment, (), reason, None, ())
    return Suppression(
        comment,
        tuple(word.strip() for word in read[2].split(",") if word.strip()),
        reason,
        until[1] if until else None,
        ((0, len(source.text) + 1),) if read[1] else _covered(source.text, match.start(), spans),
    )


def _covered(
    text: str, comment: int, spans: list[tuple[int, int, int]]
) -> tuple[tuple[int, int], ...]:
    line_start = text.rfind("\n", 0, comment) + 1
    if text[line_start:comment].strip():  # behind directives: those that touch this line
        return tuple(
            (start, end) for start, words_end, end in spans if line_start < words_end <= comment
        )
    index = bisect_right(spans, comment, key=lambda span: span[0])
    if index == len(spans) or _closes_before(text, comment, spans[index][0]):
        return ()
    return ((spans[index][0], spans[index][2]),)


def _closes_before(text: str, start: int, end: int) -> bool:
    """Whether the block ends before the next directive."""
    return any(not line.lstrip().startswith("#") and "}" in line
               for line in text[start:end].split("\n"))  # fmt: skip


def silencing(
    suppressions: Iterable[Suppression], rule: str, hit: Hit, today: str | None
) -> Suppression | None:
    """The comment that silences a hit; every comment about it counts as used."""
    found = None
    for one in suppressions:
        if one.covers(rule, hit):
            one.used = True
            if found is None and one.is_in_force(today):
                found = one
    return found
