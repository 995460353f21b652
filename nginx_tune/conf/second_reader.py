"""Compares a file written by this tool, as crossplane parses it, with the intended statements.

Our own parser cannot find a fault that it shares with our own writer. crossplane splits words by
independent rules, so it finds a lost quote, brace or semicolon. Names, arguments and nesting of the
statements are compared, not the texts.

For a generated file, the intended statements come from the same file with each value spelled in
hexadecimal, so that no quote, space or brace in it is special (``generate.writing.spelled_out``).
For a planned file, they are the old statements, changed only by words of settings and safe fixes,
and both parsers must agree on the new file.
"""

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
    """A value in hexadecimal, which can be a bare word or part of one, whatever it contains."""
    return f"\ue000{value.encode().hex()}\ue001"


class Disagreement(NamedTuple):
    """The first place where crossplane's reading differs from the intended statements."""

    line: int
    """The line in the file, from 1; 0 for its end."""
    what: str
    """A message with directive names only, because arguments may be secrets."""


def meant_by(text: str) -> list[Statement] | None:
    """The statements of a file, in crossplane's form, with spelled values decoded.

    None if our own parser rejects the text.
    """
    try:
        statements = statements_of(parse_block(Source("", text)))
    except ParseFault:
        return None
    return list(map(_as_meant, statements)) if _SPELLED.search(text) else statements


def disagreement(meant: Sequence[Statement], read: Sequence[Statement]) -> Disagreement | None:
    """The first difference between the intended statements and those read; None without one."""
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
            return Disagreement(have.line, f"{have.directive} is in the place of {want.directive}")
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
    """The possible arguments that decisions set, by directive name."""
    fixes: str = ""
    """The text of the rules' safe fixes: any word of it may be added."""


def unwanted(
    before: Sequence[Statement], after: Sequence[Statement], wanted: AskedChange
) -> Disagreement | None:
    """The first statement that is added or removed without a setting or fix; None without one."""
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
            return Disagreement(line, f"this {place[-1]} is not part of the plan")
    missing = (place[-1] for place, lines in left.items() if lines and place[-1] not in words)
    return next((Disagreement(0, f"{name} is missing") for name in missing), None)


_Args = tuple[str, ...]
_Place = tuple[str, ...]
"""The names of the blocks around a statement, and the statement's own name."""
_WORDS = re.compile(r"[^\s;{}\"'()\\]+")


def _words_in(args: _Args) -> set[str]:
    return {word for arg in args for word in _WORDS.findall(arg)}


def _is_change(was: _Args, now: _Args, asked: Sequence[_Args], words: AbstractSet[str]) -> bool:
    """True if ``now`` changes ``was`` as wanted: only wanted words are new, no argument is lost."""
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
    """The decoded word as crossplane gives it, with escaped backslashes."""
    return _SPELLED.sub(lambda found: _written(bytes.fromhex(found[1]).decode()), word)


def _written(word: str) -> str:
    return word.replace("\\", r"\\")
