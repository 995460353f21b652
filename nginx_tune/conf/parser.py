"""Parses a file's text into words and marks, and these into directives and blocks, as nginx does.

Source: ngx_conf_file.c, ngx_conf_read_token. Only space, tab, CR and LF separate words. A word ends
at one of them, at ``;`` or at ``{``; ``}``, ``#`` and quotes are ordinary inside it. ``${``
keeps a brace in the word. A word that begins with a quote ends at the same quote, and a space,
``;``, ``{`` or ``)`` must follow. A backslash makes the next character ordinary. The patterns are
unrolled (``a*(?:b a*)*``), so that no input makes them backtrack for long.

Source: ngx_conf_parse. Which directives a block may contain is not checked here: any text of words,
blocks and ends gives a tree.
"""

import re
from collections.abc import Iterator
from sys import intern
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive, Source


class ParseFault(Exception):  # noqa: N818  # a fault of the text, caught where files are listed
    """Text that nginx would reject."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


Token = tuple[str, str, str, int, int]
"""A tuple (mark, text, quote, start, end). The mark is one of the next three constants, or empty
for a word. A word's text has its escapes resolved. A plain tuple suffices, because a large
configuration has millions of tokens."""

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
"""The ``quote`` of a word that is a Lua block's source."""
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
    """A word as nginx stores it: quotes and backslashes unescaped, t, r and n converted."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def read_tokens(text: str, at: int = 0) -> Iterator[Token]:
    """The tokens of ``text`` from an offset at which a directive begins.

    A Lua block gives ``{``, its source as one word, and ``}``. Errors: ParseFault, with nginx's
    message, where nginx would stop.
    """
    name = ""  # the directive whose arguments follow
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
"""Maximum nesting of blocks, so that no file can exhaust the stack; real files stay below ten."""


MOST_DIRECTIVES = 2_000_000
"""Maximum number of directives per file, and per tree with its includes: about a hundred thousand
servers."""

MOST_TOKENS = 10_000_000
"""Maximum tokens per file, so that a directive without an end cannot exhaust the memory."""


class ParsedText(NamedTuple):
    """The directives of one file, with includes unresolved."""

    block: Block
    names: frozenset[str]
    """The names of all directives, at any depth."""
    size: int
    """The number of directives, at any depth."""


_PLAIN = re.compile(
    r"""
    [ \t\r\n]*
    (?:
        ([!$-&(-:<-[\]-z|~][ \t\r\n!$-&(-:<-[\]-z|~]{0,65535}) (;|(?<!\$)\{)
        | (\})
        | \#[^\n]*
    )
    """,
    re.VERBOSE,
)
"""A directive up to its mark without quotes, escapes, braces, ``#`` and non-ASCII; or the end of a
block; or a comment. Most lines match and need no tokens."""
_DIRECTIVE, _CLOSE = 2, 3
_TOO_MANY_WORDS = "more than {} words"
_UNQUOTED = [("",) * count for count in range(16)]


def parse_block(source: Source) -> Block:
    """The directives of one file, with includes unresolved. Errors: as ``parse_source``."""
    return parse_source(source).block


def parse_source(source: Source) -> ParsedText:
    """The directives of one file, with includes unresolved, their names and number.

    Errors: ParseFault where nginx would stop, and at a zero byte in a word: nginx keeps it, but
    file names end there, so the word would differ from the name that nginx uses.
    """
    text = source.text
    top = Block([])
    inside = top
    outer: Directive | None = None
    names: set[str] = set()
    depth = size = words = at = 0
    while True:
        plain = _PLAIN.match(text, at)
        if plain is None:
            directive = _next_directive(source, at, MOST_TOKENS - words)
            if directive is None:
                break
        elif plain.lastindex == _DIRECTIVE:
            directive = _plain_directive(plain, source)
        else:
            at = plain.end()
            if plain.lastindex == _CLOSE:
                outer, inside = _left(outer, top, at - 1)
                depth -= 1
                words += 1
            continue
        directive.parent = outer
        inside.directives.append(directive)
        names.add(directive.name)
        words += len(directive.args) + 2
        size += 1
        at = directive.end
        if words > MOST_TOKENS or size > MOST_DIRECTIVES:
            raise _too_many(directive, words)
        if directive.block is None:
            continue
        if depth == DEEPEST:
            raise ParseFault(f"blocks nested more than {DEEPEST} deep", at - 1)
        if directive.name.endswith(_LUA_NAME):
            directive.close = _end_of_lua(text, at)
            at = directive.close + 1
        else:
            outer, inside = directive, directive.block
            depth += 1
    _check_end(outer, words, len(text))
    return ParsedText(top, frozenset(names), size)


def _plain_directive(plain: re.Match[str], source: Source) -> Directive:
    name, *args = plain[1].split()
    count = len(args)
    quotes = _UNQUOTED[count] if count < len(_UNQUOTED) else ("",) * count
    directive = Directive(intern(name), tuple(args), quotes, source, (plain.start(1), plain.end()))
    if plain[2] == OPEN:
        directive.block = Block([])
    return directive


def _left(outer: Directive | None, top: Block, close: int) -> tuple[Directive | None, Block]:
    """Close the block ``outer`` at an offset; returns the directive and contents around it."""
    if outer is None:
        raise ParseFault('unexpected "}"', close)
    outer.close = close
    parent = outer.parent
    return parent, top if parent is None or parent.block is None else parent.block


def _check_end(outer: Directive | None, words: int, end: int) -> None:
    if outer is not None:
        raise ParseFault('unexpected end of file, expecting "}"', end)
    if words > MOST_TOKENS:
        raise ParseFault(_TOO_MANY_WORDS.format(MOST_TOKENS), end)


def _too_many(directive: Directive, words: int) -> ParseFault:
    if words > MOST_TOKENS:
        return ParseFault(_TOO_MANY_WORDS.format(MOST_TOKENS), directive.start)
    return ParseFault(f"more than {MOST_DIRECTIVES} directives", directive.end - 1)


def _next_directive(source: Source, start: int, most: int) -> Directive | None:
    """The directive at an offset, parsed by tokens; None at the end."""
    text = source.text
    words: list[Token] = []
    for token in read_tokens(text, start):
        mark, shown, _, at, end = token
        if len(words) >= most:
            raise ParseFault(_TOO_MANY_WORDS.format(MOST_TOKENS), at)
        if not mark:
            if "\0" in shown:
                raise ParseFault("a zero byte in a word (a binary file, or UTF-16)", at)
            words.append(token)
            continue
        if mark == CLOSE or not words:
            raise ParseFault(f'unexpected "{shown}"', at)
        name, *args = words
        directive = Directive(
            intern(name[1]),
            tuple([arg[1] for arg in args]),
            tuple([arg[2] for arg in args]),
            source,
            (name[3], end),
        )
        if mark == OPEN:
            directive.block = Block([])
        return directive
    if words:
        raise ParseFault('unexpected end of file, expecting ";" or "}"', len(text))
    return None
