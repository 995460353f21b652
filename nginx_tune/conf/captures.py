"""What the groups of a regular expression can bring into a variable, as far as it says.

``location ~ ^/(a|b)/`` leaves ``a`` or ``b`` in ``$1``, ``^/(?<n>[0-9]+)`` digits, and a group that
begins with a slash a path. Everything else may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

MOST_WORDS = 64
"""Alternatives of one group that are followed."""
AN_ADDRESS = "192.0.2.1"
"""Stands for any address (RFC 5737)."""
_A_NUMBER = "1"
_NAME = re.compile(r"\?P?<(\w+)>|\?'(\w+)'")
_WORDS = re.compile(r"(?:[\w-]|\\\.)+(?:\|(?:[\w-]|\\\.)+)*", re.ASCII)
_DIGITS = re.compile(r"(?:\[0-9\]|\\d|[0-9])(?:[+*?]|\{[0-9,]+\}|\[0-9\]|\\d|[0-9])*")
_NUMBERS = re.compile(r"(?:\[[0-9.\\d-]+\]|\\d|\\\.|[0-9.(){},+*?:|])+")


class Group(NamedTuple):
    """One group of a pattern."""

    name: str
    """Empty where it has only a number."""
    text: str
    """What stands in it."""
    repeat: str = ""
    """``?``, ``*``, ``+`` or ``{`` behind it."""


def groups(pattern: str) -> Iterator[Group]:
    """The groups that capture, in the order of their numbers."""
    found: dict[int, Group] = {}
    opened: list[tuple[int, str, int] | None] = []
    at = 0
    is_class = False
    while at < len(pattern):
        mark = pattern[at]
        if mark == "\\":
            at += 2
            continue
        if is_class:
            is_class = mark != "]"
        elif mark == "[":
            is_class = True
            at += len(re.match(r"\^?\]?", pattern[at + 1 :])[0])  # type: ignore[index]
        elif mark == "(":
            named = _NAME.match(pattern, at + 1)
            if named is None and pattern[at + 1 : at + 2] in {"?", "*"}:
                opened.append(None)
            else:
                start = at + 1 if named is None else named.end()
                name = "" if named is None else named[1] or named[2]
                number = len(found)
                found[number] = Group(name, "")
                opened.append((number, name, start))
        elif mark == ")" and opened:
            one = opened.pop()
            if one is not None:
                behind = pattern[at + 1 : at + 2]
                repeat = behind if behind and behind in "?*+{" else ""
                found[one[0]] = Group(one[1], pattern[one[2] : at], repeat)
        at += 1
    yield from found.values()


def possible_texts(group: Group) -> tuple[str, ...]:
    """What can stand for a group: its words, or one text for all of digits, addresses or paths.

    Empty where it may be anything.
    """
    texts = () if group.repeat in {"*", "+", "{"} else _texts(group.text)
    return (*texts, "") if texts and group.repeat else texts


def _texts(group: str) -> tuple[str, ...]:
    if _WORDS.fullmatch(group) and not _DIGITS.fullmatch(group):
        words = tuple(word.replace("\\", "") for word in group.split("|"))
        return words if len(words) <= MOST_WORDS else ()
    if _DIGITS.fullmatch(group):
        return (_A_NUMBER,)
    if "." in group and _NUMBERS.fullmatch(group) and ".*" not in group and ".+" not in group:
        return (AN_ADDRESS,)
    return ("/",) if group.startswith("/") and "|" not in group else ()


def captured(scope: Scope) -> dict[str, tuple[str, ...]]:
    """What the groups of the patterns around a scope leave in variables, where that is known.

    Numbers are those of the innermost location, and only where no other line there has a pattern
    of its own.
    """
    lines = [line for level in scope.chain for line in level.block or ()]
    others = [line for line in lines if line.name in {"server_name", "if", "rewrite"}]
    known = {
        group.name.lower(): possible_texts(group)
        for level in scope.chain
        for group in _named(level)
    }
    for name in {group.name.lower() for line in others for group in _named(line)}:
        known.pop(name, None)  # any of several patterns may have matched
    location = next((one for one in reversed(scope.chain) if one.name == "location"), None)
    if location is not None and not _has_patterns(scope):
        for pattern in _patterns("location", location.args):
            for number, group in enumerate(groups(pattern), 1):
                known[f"{number}"] = possible_texts(group)
    return {name: texts for name, texts in known.items() if texts}


def _named(line: Directive) -> Iterator[Group]:
    for pattern in _patterns(line.name, line.args):
        yield from (group for group in groups(pattern) if group.name)


def _has_patterns(scope: Scope) -> bool:
    location = next(one for one in reversed(scope.chain) if one.name == "location")
    lines = [*(location.block or ()), *(scope.own.block or ())]
    return scope.kind == "if" or any(line.name in {"rewrite", "if"} for line in lines)


def _patterns(name: str, args: tuple[str, ...]) -> Iterator[str]:
    if name == "location" and args:
        if args[0] in {"~", "~*"}:
            yield args[-1]
        elif args[0].startswith("~"):
            yield args[0].lstrip("~*")
    elif name == "server_name":
        yield from (arg[1:] for arg in args if arg.startswith("~"))
    elif name == "rewrite" and args:
        yield args[0]
    elif name == "if":
        yield from args[2:]
