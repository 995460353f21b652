"""Paths that the pattern of a location takes, one or more for each of its alternatives; pure.

Source: pcre2pattern(3), of which this reads what patterns of paths are made of. What comes of it is
tried against the pattern itself, so that what is read wrongly gives no sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice, product

from nginx_tune.conf.locations import compiled_pattern, normalised

_MOST = 64
"""Samples of a pattern; the alternatives of several groups multiply."""
_LONGEST = 200
"""Characters of a sample: nested repeats multiply as well."""
_WORD = "any"
_CANDIDATES = "a0-_/.A%~+ ,:@"
"""Of which a class of characters takes one, as a rule."""
_OF_ESCAPE = {"d": "1", "w": "a", "S": "a", "D": "a", "W": "-", "s": " "}
_NO_WIDTH = frozenset("bBAzZG")
_OF_CAPTURE = re.compile(r"\?(?::|P?<\w+>|'\w+'|\|)")
_QUANTIFIER = re.compile(r"(?:([?*+])|\{([0-9]+)(?:,[0-9]*)?\})[?+]?")
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]")
_PLAIN = re.compile(r"/[\w./~+,:@-]*", re.ASCII)


def sample_uris(text: str, *, ignores_case: bool, beneath: str = "/") -> list[list[str]]:
    """Paths that a pattern takes, of each of its alternatives all forms; none where none is known.

    ``beneath`` is what they begin with where the pattern leaves it open.
    """
    pattern = compiled_pattern(text, re.IGNORECASE if ignores_case else 0)
    if pattern is None:
        return []
    reader = _Reader(text)
    try:
        made = reader.alternatives()
    except (_UnreadableError, RecursionError):
        return []
    found = []
    for one in dict.fromkeys(made) if reader.is_at_end else ():
        forms = (one, f"{beneath}{_WORD}{one}", f"{beneath}{one}")
        taken = [uri for uri in forms if _is_plain(uri) and pattern.search(uri)]
        if taken:
            found.append(list(dict.fromkeys(taken)))
    return found


def _is_plain(uri: str) -> bool:
    return _PLAIN.fullmatch(uri) is not None and normalised(uri) == uri


class _UnreadableError(Exception):
    """What is not read here."""


class _Reader:
    """A pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def alternatives(self) -> list[str]:
        """What any branch takes, up to the bracket that ends them."""
        found = self._branch()
        while self._takes("|"):
            found += self._branch()
        return found[:_MOST]

    def _branch(self) -> list[str]:
        found = [""]
        while not self.is_at_end and self._text[self._at] not in "|)":
            found = _joined(found, self._repeated())
        return found

    def _repeated(self) -> list[str]:
        begin = self._at
        atom = self._atom()
        is_many = self._text[begin : self._at] in {".", r"\w", r"\S"} or (
            self._text[begin] == "[" and atom == ["a"]
        )
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            return atom
        self._at = found.end()
        if found[1] == "?":
            return [*atom, ""]
        if found[1] is not None:
            return [_WORD] if is_many else atom
        count = int(found[2][:4])
        return [one * count for one in atom if len(one) * count <= _LONGEST]

    def _atom(self) -> list[str]:
        char = self._text[self._at]
        if char == "[":
            return [self._of_class()]
        self._at += 1
        if char == "(":
            return self._group()
        if char == "\\":
            return [self._escaped()]
        if char in "^$":
            return [""]
        return ["a" if char == "." else char]

    def _group(self) -> list[str]:
        is_empty = False
        if self._text.startswith("?", self._at):
            found = _OF_CAPTURE.match(self._text, self._at)
            is_empty = found is None  # a condition, which is tried at the end, or a flag
            self._at = self._at + 1 if found is None else found.end()
        made = self.alternatives()
        if not self._takes(")"):
            raise _UnreadableError
        return [""] if is_empty else made

    def _escaped(self) -> str:
        if self.is_at_end:
            raise _UnreadableError
        char = self._text[self._at]
        self._at += 1
        if char in _NO_WIDTH:
            return ""
        if char in _OF_ESCAPE:
            return _OF_ESCAPE[char]
        if char.isalnum():
            raise _UnreadableError
        return char

    def _of_class(self) -> str:
        found = _CLASS.match(self._text, self._at)
        one = None if found is None else compiled_pattern(found[0], 0)
        if found is None or one is None:
            raise _UnreadableError
        self._at = found.end()
        inside = (*_CANDIDATES, *found[0].strip("[]^"))
        return next((char for char in inside if one.fullmatch(char)), "")

    def _takes(self, char: str) -> bool:
        if not self._text.startswith(char, self._at):
            return False
        self._at += 1
        return True


def _joined(heads: Iterable[str], tails: Iterable[str]) -> list[str]:
    both = (a + b for a, b in product(heads, tails))
    return list(islice((one for one in both if len(one) <= _LONGEST), _MOST))
