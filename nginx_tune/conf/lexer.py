"""Text of a configuration to words and marks, by nginx's own rules.

Source: ngx_conf_file.c, ngx_conf_read_token. Only space, tab, CR and LF part words. A word ends
at one of them, at ``;`` or at ``{``; ``}``, ``#`` and quotes are ordinary inside it. ``${``
keeps a brace in the word. A word that begins with a quote ends at the same quote, and what
follows must be a space, ``;``, ``{`` or ``)``. A backslash keeps the next character from
having a meaning.

The patterns are unrolled (``a*(?:b a*)*``), so that no input makes them backtrack for long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class ParseFault(Exception):  # noqa: N818  # a fault of the text, caught where files are listed
    """Text that nginx would refuse to read."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


class Mark(Enum):
    """What a token is."""

    WORD = "word"
    END = ";"
    OPEN = "{"
    CLOSE = "}"


class Token(NamedTuple):
    """One token; ``text`` has its escapes resolved, ``quote`` is the quote it stood in."""

    mark: Mark
    text: str
    quote: str
    start: int
    end: int


_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_TOKEN = re.compile(
    r"""
    (?P<mark>[;{}])
    | "(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"
    | '(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'
    | (?P<bare>(?!["'])[^ \t\r\n;{\\$]*(?:(?:\\.|\$\{*)[^ \t\r\n;{\\$]*)*)
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"""\\(["'\\trn])""")
_ESCAPED = {"t": "\t", "r": "\r", "n": "\n"}
_AFTER_QUOTE = frozenset(" \t\r\n;{)")
_LUA_NAME = "_by_lua_block"
LUA_QUOTE = "{"
"""The ``quote`` of the word that is a Lua block's source."""
_LUA = re.compile(
    r"""
    --\[(?P<long_comment>=*)\[
    | --[^\n]*
    | \[(?P<long_string>=*)\[
    | "[^"\\\n]*(?:\\.[^"\\\n]*)*"
    | '[^'\\\n]*(?:\\.[^'\\\n]*)*'
    | (?P<brace>[{}])
    """,
    re.DOTALL | re.VERBOSE,
)


def unescape(text: str) -> str:
    """A word as nginx stores it: a quote or backslash loses its backslash, t, r and n turn."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def read_tokens(text: str, start: int = 0) -> Iterator[Token]:
    """The tokens of ``text``; a Lua block is one ``{``, its source as one word, one ``}``.

    Errors: ParseFault, with nginx's words, where nginx would stop.
    """
    at = start
    first = ""  # the directive's name, while its arguments are read
    end = len(text)
    while True:
        at = _BLANK.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text
        if at >= end:
            return
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise ParseFault('unexpected end of file, expecting ";" or "}"', at)
        kind = match.lastgroup
        stop = match.end()
        if kind == "mark":
            mark = Mark(match[0])
            yield Token(mark, match[0], "", at, stop)
            if mark is Mark.OPEN and first.endswith(_LUA_NAME):
                close = _end_of_lua(text, stop)
                yield Token(Mark.WORD, text[stop:close], LUA_QUOTE, stop, close)
                yield Token(Mark.CLOSE, "}", "", close, close + 1)
                stop = close + 1
            first = ""
        else:
            word = unescape(match[kind])  # type: ignore[index]  # one group always matched
            yield Token(Mark.WORD, word, "" if kind == "bare" else text[at], at, stop)
            first = first or word or " "
            if kind != "bare" and stop < end and text[stop] not in _AFTER_QUOTE:
                raise ParseFault(f'unexpected "{text[stop]}"', stop)
        at = stop


def _end_of_lua(text: str, start: int) -> int:
    """Offset of the brace that ends a Lua block whose source begins at ``start``.

    Source: lua-nginx-module, ngx_http_lua_lex.rl: strings, long brackets and comments hide
    braces.
    """
    depth = 1
    at = start
    while match := _LUA.search(text, at):
        at = match.end()
        if match["brace"]:
            depth += 1 if match["brace"] == "{" else -1
            if depth == 0:
                return match.start()
            continue
        level = match["long_comment"] if match["long_string"] is None else match["long_string"]
        if level is not None:
            close = text.find(f"]{level}]", at)
            if close < 0:
                break
            at = close + len(level) + 2
    raise ParseFault('unexpected end of file, expecting "}" after a Lua block', start)
