"""Words and marks to directives and blocks.

Source: ngx_conf_file.c, ngx_conf_parse. What a directive may hold is nginx's affair, not ours:
anything that can be read as words, blocks and ends is a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from nginx_tune.conf.directive import Block, Directive, Source
from nginx_tune.conf.lexer import CLOSE, END, LUA_QUOTE, OPEN, ParseFault, Token, read_tokens

DEEPEST = 200
"""Nested blocks past this are taken for an attack on the stack; real trees stay below ten."""


MOST_DIRECTIVES = 2_000_000
"""Of one file, and of a tree with its includes expanded: about a hundred thousand servers."""

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
