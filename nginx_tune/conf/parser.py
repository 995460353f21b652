"""The text of one file to words and marks, and these to directives and blocks, by nginx's rules.

Source: ngx_conf_file.c, ngx_conf_read_token. Only space, tab, CR and LF part words. A word ends
at one of them, at ``;`` or at ``{``; ``}``, ``#`` and quotes are ordinary inside it. ``${``
keeps a brace in the word. A word that begins with a quote ends at the same quote, and what
follows must be a space, ``;``, ``{`` or ``)``. A backslash keeps the next character from
having a meaning. The patterns are unrolled (``a*(?:b a*)*``), so that no input makes them
backtrack for long.

Source: ngx_conf_parse. What a directive may hold is nginx's affair, not ours: anything that can be
read as words, blocks and ends is a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from nginx_tune.conf.directive import Block, Directive, Source


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


DEEPEST = 200
"""Nested blocks past this are taken for an attack on the stack; real trees stay below ten."""


MOST_DIRECTIVES = 2_000_000
"""Bound on one file, and on a tree with its includes expanded: about a hundred thousand servers."""

MOST_TOKENS = 10_000_000
"""Words and marks of one file, so that a directive without an end takes no memory without one."""


def parse_block(source: Source) -> Block:
    """The directives of one file, includes not followed.

    Errors: ParseFault where nginx would stop reading, and at a zero byte in a word: nginx keeps it,
            and ends a name of a file there, so the word would be another than the one it uses.
    """
    levels: list[list[Directive]] = [[]]
    opened: list[Directive] = []
    count = 0
    words: list[Token] = []
    tokens = _tokens_of(source.text)
    for token in islice(tokens, MOST_TOKENS):
        mark = token[0]
        if not mark:
            words.append(token)
            continue
        if mark == CLOSE:
            _close(levels, words, token)
            opened.pop().close = token[3]
        else:
            _add(levels, words, token, source)
            if opened:
                levels[-1 if mark == END else -2][-1].parent = opened[-1]
            if mark == OPEN:
                opened.append(levels[-2][-1])
            count += 1
            if count > MOST_DIRECTIVES:
                raise ParseFault(f"more than {MOST_DIRECTIVES} directives", token[3])
        words = []
    for past in tokens:
        raise ParseFault(f"more than {MOST_TOKENS} words", past[3])
    if words:
        raise ParseFault('unexpected end of file, expecting ";" or "}"', len(source.text))
    if len(levels) > 1:
        raise ParseFault('unexpected end of file, expecting "}"', len(source.text))
    return Block(levels[0])


def _tokens_of(text: str) -> Iterator[Token]:
    # A zero byte is almost never there: no word is looked through otherwise.
    return _without_zero(read_tokens(text)) if "\0" in text else read_tokens(text)


def _without_zero(tokens: Iterator[Token]) -> Iterator[Token]:
    for token in tokens:
        if "\0" in token[1] and token[2] != LUA_QUOTE:
            raise ParseFault("a zero byte in a word", token[3])
        yield token


def _close(levels: list[list[Directive]], words: list[Token], token: Token) -> None:
    is_lua_source = bool(words) and words[0][2] == LUA_QUOTE
    if (words and not is_lua_source) or len(levels) == 1:
        raise ParseFault('unexpected "}"', token[3])
    levels.pop()


def _add(levels: list[list[Directive]], words: list[Token], token: Token, source: Source) -> None:
    mark, text, _, start, end = token
    if not words:
        raise ParseFault(f'unexpected "{text}"', start)
    name, *args = words
    directive = Directive(
        name[1],
        tuple([arg[1] for arg in args]),
        tuple([arg[2] for arg in args]),
        source,
        (name[3], end),
    )
    levels[-1].append(directive)
    if mark == OPEN:
        if len(levels) > DEEPEST:
            raise ParseFault(f"blocks nested more than {DEEPEST} deep", start)
        directive.block = Block([])
        levels.append(directive.block.directives)
