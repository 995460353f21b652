"""A file that was written here, as crossplane reads it, beside what was meant.

Our own reader cannot find a fault that it shares with our own writer. crossplane splits words by
rules that other people wrote down, so that a lost quote, brace or semicolon shows. It is held
against statements, not texts: names, arguments and nesting.

What was meant of a generated file is the same file with each value spelled in hexadecimal, where
no quote, space or brace of it can mean anything (``generate.writing.spelled_out``). What was meant
of a planned file is what stood there, changed by the words of settings and safe fixes alone; and
both readers must read it alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from typing import NamedTuple

from nginx_tune.conf.directive import Source
from nginx_tune.conf.dumps import Statement, statements_of
from nginx_tune.conf.parser import ParseFault, parse_block

_SPELLED = re.compile("\ue000([0-9a-f]*)\ue001")


def spelled(value: str) -> str:
    """A value as a bare word, or a part of one, whatever it holds."""
    return f"\ue000{value.encode().hex()}\ue001"


class Disagreement(NamedTuple):
    """The first place where crossplane reads something else than was meant."""

    line: int
    """The line in the file, from 1; 0 for its end."""
    what: str
    """Names of directives alone: arguments may be secrets."""


def meant_by(text: str) -> list[Statement] | None:
    """The statements of a file, in crossplane's form, with what is spelled as it was; pure.

    Null where our own reader refuses the text.
    """
    try:
        statements = statements_of(parse_block(Source("", text)))
    except ParseFault:
        return None
    return list(map(_as_meant, statements)) if _SPELLED.search(text) else statements


def disagreement(meant: Sequence[Statement], read: Sequence[Statement]) -> Disagreement | None:
    """The first statement of a file that is read otherwise than it was meant; null for none."""
    return _first(meant, read, "the file")


def _first(
    meant: Sequence[Statement], read: Sequence[Statement], around: str
) -> Disagreement | None:
    found = [
        statement for statement in read if statement.directive != "#"
    ]  # a comment among arguments
    for want, have in zip_longest(meant, found):
        if have is None:
            return Disagreement(0, f"{want.directive} is missing in {around}")
        if want is None:
            return Disagreement(have.line, f"{around} ends before {have.directive}")
        if have.directive != want.directive:
            return Disagreement(have.line, f"{have.directive} stands where {want.directive} should")
        if have.args != want.args:
            return Disagreement(have.line, f"{have.directive} has other arguments")
        if (have.block is None) != (want.block is None):
            return Disagreement(have.line, f"{have.directive} has a block, or should have one")
        inner = _first(want.block or (), have.block or (), f"{want.directive} of line {have.line}")
        if inner is not None:
            return inner
    return None


class AskedChange(NamedTuple):
    """The changes that a plan may write into a file."""

    settings: Mapping[str, Sequence[Sequence[str]]]
    """The arguments that decisions ask for, of each directive by its name."""
    fixes: str = ""
    """The text of the safe fixes of rules, of which any word may come."""


def unwanted(
    before: Sequence[Statement], after: Sequence[Statement], wanted: AskedChange
) -> Disagreement | None:
    """The first statement that a change brings or takes and nothing asked for; null for none."""
    old, new = list(_placed(before)), list(_placed(after))
    gone = Counter((place, args) for place, args, _ in old)
    gone -= Counter((place, args) for place, args, _ in new)
    kept = Counter((place, args) for place, args, _ in old) - gone
    left: dict[_Place, list[_Args]] = {}
    for place, args in gone.elements():
        left.setdefault(place, []).append(args)
    words = frozenset(_WORDS.findall(wanted.fixes))
    for place, args, line in new:
        if kept[place, args]:
            kept[place, args] -= 1
            continue
        asked = [tuple(map(_written, setting)) for setting in wanted.settings.get(place[-1], ())]
        stood = left.get(place, [])
        was = next((one for one in stood if _is_change(one, args, asked, words)), None)
        if was is not None:
            stood.remove(was)
        elif args not in asked and not words.issuperset(_words_in(place[-1:] + args)):
            return Disagreement(line, f"nothing asked for this {place[-1]}")
    missing = (place[-1] for place, lines in left.items() if lines and place[-1] not in words)
    return next((Disagreement(0, f"{name} is missing") for name in missing), None)


_Args = tuple[str, ...]
_Place = tuple[str, ...]
"""The names of the blocks around a statement, and its own."""
_WORDS = re.compile(r"[^\s;{}\"'()\\]+")


def _words_in(args: _Args) -> set[str]:
    return {word for arg in args for word in _WORDS.findall(arg)}


def _is_change(was: _Args, now: _Args, asked: Sequence[_Args], words: AbstractSet[str]) -> bool:
    """True where a line may have become another: by words that were asked for, and with no less."""
    if now in asked:
        return True
    allowed = {*was, *(word for one in asked for word in one)}
    others = tuple(word for word in now if word not in allowed)
    is_asked = bool(asked) if not others else bool(words) and _words_in(others) <= words
    return is_asked and len(now) >= len(was)


def _placed(
    statements: Sequence[Statement], around: _Place = ()
) -> Iterator[tuple[_Place, _Args, int]]:
    for statement in statements:
        if statement.directive != "#":
            place = (*around, statement.directive)
            yield place, tuple(statement.args), statement.line
            yield from _placed(statement.block or (), place)


def _as_meant(one: Statement) -> Statement:
    return Statement(
        directive=_unspelled(one.directive),
        line=one.line,
        args=list(map(_unspelled, one.args)),
        block=None if one.block is None else list(map(_as_meant, one.block)),
    )


def _unspelled(word: str) -> str:
    """The word as crossplane gives it: a backslash stays escaped."""
    return _SPELLED.sub(lambda found: _written(bytes.fromhex(found[1]).decode()), word)


def _written(word: str) -> str:
    return word.replace("\\", r"\\")
