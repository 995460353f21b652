"""Words and marks to directives and blocks.

Source: ngx_conf_file.c, ngx_conf_parse. What a directive may hold is nginx's affair, not ours:
anything that can be read as words, blocks and ends is a tree.
"""

from __future__ import annotations

from nginx_tune.conf.directive import Block, Directive, Source
from nginx_tune.conf.lexer import LUA_QUOTE, Mark, ParseFault, Token, read_tokens

DEEPEST = 200
"""Nested blocks past this are taken for an attack on the stack; real trees stay below ten."""


def parse_block(source: Source) -> Block:
    """The directives of one file, includes not followed.

    Errors: ParseFault where nginx would stop reading.
    """
    levels: list[list[Directive]] = [[]]
    words: list[Token] = []
    for token in read_tokens(source.text):
        if token.mark is Mark.WORD:
            words.append(token)
        elif token.mark is Mark.CLOSE:
            _close(levels, words, token)
            words = []
        else:
            _add(levels, words, token, source)
            words = []
    if words:
        raise ParseFault('unexpected end of file, expecting ";" or "}"', len(source.text))
    if len(levels) > 1:
        raise ParseFault('unexpected end of file, expecting "}"', len(source.text))
    return Block(levels[0])


def _close(levels: list[list[Directive]], words: list[Token], close: Token) -> None:
    is_lua_source = bool(words) and words[0].quote == LUA_QUOTE
    if (words and not is_lua_source) or len(levels) == 1:
        raise ParseFault('unexpected "}"', close.start)
    levels.pop()


def _add(levels: list[list[Directive]], words: list[Token], mark: Token, source: Source) -> None:
    if not words:
        raise ParseFault(f'unexpected "{mark.text}"', mark.start)
    directive = Directive(
        words[0].text,
        tuple([word.text for word in words[1:]]),
        tuple([word.quote for word in words[1:]]),
        source,
        words[0].start,
    )
    directive.end = mark.end
    levels[-1].append(directive)
    if mark.mark is Mark.OPEN:
        if len(levels) > DEEPEST:
            raise ParseFault(f"blocks nested more than {DEEPEST} deep", mark.start)
        directive.block = Block([])
        levels.append(directive.block.directives)
