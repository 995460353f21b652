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


class ParseFault(Exception):  # noqa: N818  # a fault of the text, caught where files are listed
    """Text that nginx would refuse to read."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


Token = tuple[str, str, str, int, int]
"""(mark, text, quote, start, end). The mark is one of the three below, or empty for a word. A
word's text has its escapes resolved; its quote is the one it stood in. Plain tuples, since a
large configuration has millions of them."""

END, OPEN, CLOSE = ";", "{", "}"

_TOKEN = re.compile(
    r"""
    [ \t\r\n]*(?:\#[^\n]*[ \t\r\n]*)*
    (?:
        ([;{}])
        | "([^"\\]*(?:\\.[^"\\]*)*)"
        | '([^'\\]*(?:\\.[^'\\]*)*)'
        | ((?:\\.|\$\{*|[^ \t\r\n;{}"'\\$])[^ \t\r\n;{\\$]*(?:(?:\\.|\$\{*)[^ \t\r\n;{\\$]*)*)
    )?
    """,
    re.DOTALL | re.VERBOSE,
)
_MARK, _DOUBLE, _SINGLE, _BARE = 1, 2, 3, 4
_QUOTES = {_DOUBLE: '"', _SINGLE: "'"}
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


def read_tokens(text: str) -> Iterator[Token]:
    """The tokens of ``text``; a Lua block is one ``{``, its source as one word, one ``}``.

    Errors: ParseFault, with nginx's words, where nginx would stop.
    """
    at = 0
    name = ""  # of the directive whose arguments are read
    while True:
        match = _TOKEN.match(text, at)
        if match is None or (kind := match.lastindex) is None:
            break
        at = match.end()
        word = match[kind]
        if kind == _BARE:
            yield "", unescape(word), "", match.start(_BARE), at
            name = name or word
        elif kind == _MARK:
            yield word, word, "", at - 1, at
            if word == OPEN and name.endswith(_LUA_NAME):
                close = _end_of_lua(text, at)
                yield "", text[at:close], LUA_QUOTE, at, close
                at = close + 1
                yield CLOSE, CLOSE, "", close, at
            name = ""
        else:
            yield "", unescape(word), _QUOTES[kind], match.start(kind) - 1, at
            name = name or unescape(word) or " "
            if at < len(text) and text[at] not in _AFTER_QUOTE:
                raise ParseFault(f'unexpected "{text[at]}"', at)
    if match is not None and match.end() < len(text):
        raise ParseFault('unexpected end of file, expecting ";" or "}"', at)


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
