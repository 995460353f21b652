"""Secrets taken out of a configuration, and out of texts that quote one.

What stays of a configuration is what the product looks at: directives, their places, sizes, paths.
What goes is every comment and every value of a place that may hold a secret
(:mod:`nginx_tune.conf.secret_places`), each replaced on its own line, so that line numbers stay
true. A file that cannot be parsed goes whole: nobody can say what is secret in it.

A message of nginx quotes what it stumbled over, and so do findings and reasons. Names of files,
numbers of lines, directives and values of a closed set (``gzip maybe``) help the operator and stay;
what stands in a place of free text may be a secret and goes. Source: ngx_conf_log_error
(``… in FILE:LINE``) and the calls of it in nginx's modules.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property

from nginx_tune.conf.directive import Block, Directive, Source
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.parser import ParseFault, parse_block
from nginx_tune.conf.secret_places import directive_name, is_closed, shown_arguments
from nginx_tune.conf.secret_values import (
    REDACTED,
    is_harmless,
    is_ordinary,
    plain_value,
    redact_text,
)
from nginx_tune.conf.tree import ConfTree

_LEFT_OUT = b"# left out: this file could not be parsed"


def redact_configuration(
    data: bytes, *, included_by: Directive | None = None, names: Collection[str] = ()
) -> bytes:
    """The file without comments and secret values; idempotent.

    ``included_by`` is the line that includes it, so that lines of a ``map`` are recognised.
    ``names`` are those that other files of the configuration define (:func:`defined_names`).
    """
    source = Source.decode("", data)
    try:
        block = parse_block(source)
    except ParseFault:
        return _LEFT_OUT + b"\n"
    for directive in block.directives:
        directive.parent = included_by
    text = source.text
    known = {*names, *defined_names(block.directives)}
    # Between directives stand only blanks and comments.
    parts = []
    at = 0
    for start, end, written in _pieces(block, text, known):
        parts += [_blanks(text[at:start]), written]
        at = end
    parts.append(_blanks(text[at:]))
    return (source.mark + "".join(parts)).encode("utf-8", "surrogateescape")


def redact_tree(tree: ConfTree) -> dict[str, bytes]:
    """Every file of a configuration without its secrets, by name.

    A file that a ``map`` includes is read as lines of that map, and names defined in one file are
    known in the others.
    """
    names = defined_names(
        [directive for file in tree.parsed for directive in file.block.directives]
    )
    found = {}
    for source, block in tree.parsed:
        outer = block.directives[0].parent if block.directives else None
        found[source.file] = redact_configuration(source.data, included_by=outer, names=names)
    return found


def defined_names(directives: Collection[Directive]) -> set[str]:
    """Names of pools, upstreams, formats and zones in the directives and the blocks below.

    With their parts, since ``threads=pool_$disk`` puts a name together.
    """
    found: set[str] = set()
    todo = list(directives)
    while todo:
        one = todo.pop()
        if one.name in _DEFINING and one.args:
            found.add(one.args[0])
        elif one.name.endswith("_cache_path") or one.name.endswith("_zone"):
            found.update(_ZONE.findall(" ".join(one.args)))
        if one.block is not None:
            todo += one.block.directives
    parts = {part for name in found for part in re.split(r"[_.-]", name)}
    return found | parts - {""}


_DEFINING = frozenset({"thread_pool", "upstream", "log_format", "zone", "lua_shared_dict"})
_ZONE = re.compile(r"\b(?:keys_zone|zone)=([\w.-]{1,60}):")


def _pieces(block: Block, text: str, names: Collection[str]) -> Iterator[tuple[int, int, str]]:
    """Every directive and brace: where it starts and ends, and what is written in its place."""
    for directive in block.directives:
        yield directive.start, directive.end, _written(directive, text, names)
        if directive.block is not None:
            if directive.name.endswith("_by_lua_block"):
                source = text[directive.end : directive.close]
                yield directive.end, directive.close, "\n" * source.count("\n")
            yield from _pieces(directive.block, text, names)
            yield directive.close, directive.close + 1, "}"


def _written(directive: Directive, text: str, names: Collection[str]) -> str:
    """A directive as written, or rewritten if part of it must be hidden."""
    original = text[directive.start : directive.end]
    name = directive.shown_name
    args = shown_arguments(directive.name, directive.args, table=directive.table, names=names)
    has_comment = original.count("#") > sum(arg.count("#") for arg in directive.args)
    if (name, args) == (directive.name, directive.args) and not has_comment:
        return original
    words = [_in_quotes(name), *map(_in_quotes, args)]
    lines = "\n" * original.count("\n")
    return " ".join(words) + lines + (" {" if directive.block is not None else ";")


def _in_quotes(argument: str) -> str:
    if re.fullmatch(r"(?:[^\s\"'\\;{}#$]|\$(?=\w))+", argument):
        return argument
    return '"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _blanks(text: str) -> str:
    """The text between directives, with comments emptied."""
    return re.sub(r"#[^\n]*", _emptied, text)


def _emptied(comment: re.Match[str]) -> str:
    if comment[0] == _LEFT_OUT.decode():
        return comment[0]
    return "#\r" if comment[0].endswith("\r") else "#"


_PLACE = re.compile(r" in (\S+?):([0-9]{1,9})$")
_QUOTED = re.compile(r'"([^"\n]*)"')
_OF_DIRECTIVE = re.compile(r'"(\w+)" directive')
_PROSE = re.compile(r"(?:[ ,:;(][^\"]*)?[ (]")
_KEY_PATH = re.compile(r"((?:^|/)(?:data|engine|store):).+", re.IGNORECASE)
"""A key that was taken for the name of a file below the prefix."""
_PATH = re.compile(r"/[^\s?\"]*(?::[0-9]+)?")
_LEAST_CHARACTERS = 4
_WORD = re.compile(r"\w+")
_WEAK = re.compile(r"[a-z]{1,7}|[0-9]{1,5}")
"""Values that may as well be words of the sentence: taken for a secret where quoted alone."""


class TreeSecrets:
    """Texts of a configuration's directives that may not be shown."""

    def __init__(self, tree: ConfTree) -> None:
        self._tree = tree

    def hide(self, text: str) -> str:
        """``text`` without the secrets of the configuration, and without what has their form."""
        text = redact_text(text)
        for literal in self._in(text):
            if _WEAK.fullmatch(literal):
                text = text.replace(f'"{literal}"', f'"{REDACTED}"')
            else:
                text = re.sub(_delimited(literal), REDACTED, text)
        return text

    def _in(self, text: str) -> Iterator[str]:
        found: dict[str, None] = {}
        for word in dict.fromkeys(_WORD.findall(text)):
            for literal in self._literals.get(word, ()):
                if literal in text:
                    found[literal] = None
        yield from sorted(found, key=len, reverse=True)

    @cached_property
    def _literals(self) -> dict[str, list[str]]:
        """Texts that are left out of the directives, by the first word in each."""
        found: dict[str, list[str]] = {}
        lines = [directive for file in self._tree.parsed for directive in file.block.directives]
        names = defined_names(lines)
        shown = {*names, *_served_names(self._tree)}
        for file in self._tree.parsed:
            todo = list(file.block.directives)
            while todo:
                one = todo.pop()
                if one.block is not None:
                    todo += one.block.directives
                for literal in left_out(one, names):
                    if literal in shown or is_ordinary(literal) or rows_of(literal):
                        continue  # left out where it stands, but elsewhere a name or a word
                    word = _WORD.search(literal)
                    if word is not None and len(literal) >= _LEAST_CHARACTERS:
                        found.setdefault(word[0], []).append(literal)
        return found


def _served_names(tree: ConfTree) -> Iterator[str]:
    """Names of servers, locations and variables, which are always shown."""
    for directive in tree.main.walk():
        if directive.name in {"server_name", "location"}:
            yield from directive.args
        elif directive.name in {"map", "geo", "split_clients"} and directive.args:
            yield directive.args[-1].lstrip("$")
        elif directive.name == "set" and directive.args:
            yield directive.args[0].lstrip("$")


def left_out(directive: Directive, names: Collection[str] = ()) -> Iterator[str]:
    """The texts that are hidden where the directive is shown, except ``names``."""
    table = directive.table
    if table is None and is_closed(directive.name):
        return
    shown = shown_arguments(directive.name, directive.args, table=table, names=names)
    for arg, kept in zip(directive.args, shown, strict=True):
        if arg != kept:
            yield from _differences(arg, kept)


def _differences(arg: str, kept: str) -> Iterator[str]:
    pieces = map(re.escape, kept.split(REDACTED))
    match = re.fullmatch("(.*?)".join(pieces), arg, re.DOTALL)
    for text in (arg,) if match is None else match.groups():
        yield text
        words = text.split()
        if len(words) > 1:
            yield from (word for word in words if len(word) >= _LEAST_CHARACTERS * 2)


def _delimited(literal: str) -> str:
    """A pattern for the literal by itself, not as part of a name or path."""
    before = r"(?<![\w/.-])" if literal[0].isalnum() else ""
    after = r"(?![\w/-])" if literal[-1].isalnum() else ""
    return before + re.escape(literal) + after


_OF_NAMES = re.compile(
    r'\b(?:unknown thread pool|unknown log format|zero size shared memory zone) "[\w.-]{1,64}"'
)
"""Names that a configuration gives to its own things are no secrets; the operator needs them."""


def redact_message(text: str, tree: ConfTree | None = None) -> str:
    """A message of nginx without what may be a secret; its place stays as it is.

    With the tree that it speaks of, what it quotes is judged by the place where it stands there;
    without, by the directive that the message names and by its form.
    """
    place = _PLACE.search(text)
    head = text if place is None else text[: place.start()]
    there = [] if place is None or tree is None else _directives_at(tree, place[1], int(place[2]))
    ending = text[len(head) :]
    head = _judged(head, there)
    if _OF_NAMES.search(head):
        return redact_text(head) + ending
    named = _OF_DIRECTIVE.search(head)
    closed = named is not None and is_closed(named[1])
    if not _is_well_quoted(head):
        first, last = head.index('"'), head.rindex('"')
        return redact_text(f'{head[:first]}"{REDACTED}"{head[max(last, first) + 1 :]}') + ending
    words = _QUOTED.sub(lambda match: f'"{_quoted(match[1], there, closed=closed)}"', head)
    return redact_text(words) + ending


def _judged(head: str, there: list[Directive]) -> str:
    """A quotation of a directive that is known, as it may be shown there."""
    for directive in there:
        head = head.replace(f'"{directive.words}"', f'"{directive}"')
        shown = shown_arguments(directive.name, directive.args, table=directive.table)
        pairs = [
            (arg, kept) for arg, kept in zip(directive.args, shown, strict=True) if arg != kept
        ]
        for arg, kept in sorted(pairs, key=lambda pair: len(pair[0]), reverse=True):
            if len(arg) >= _LEAST_CHARACTERS:
                head = head.replace(arg, kept)
            for literal in _differences(arg, kept):
                if len(literal) >= _LEAST_CHARACTERS:
                    head = head.replace(literal, REDACTED)
    return head


def _is_well_quoted(head: str) -> bool:
    """True if the quotes are nginx's own: prose separates quoted texts."""
    pieces = head.split('"')
    between = pieces[2:-1:2]
    return len(pieces) % 2 == 1 and all(_PROSE.fullmatch(piece) for piece in between)


def _quoted(text: str, there: list[Directive], *, closed: bool) -> str:
    for directive in there:
        if text == directive.name:
            return directive.shown_name
        if text in directive.args and text in shown_arguments(
            directive.name, directive.args, table=directive.table
        ):
            return text
    if closed or _PATH.fullmatch(text):
        return _KEY_PATH.sub(rf"\1{REDACTED}", plain_value(text))
    if is_harmless(text) or directive_name(text) == text or _in_brackets(text):
        return text
    is_part = any(text in kept for directive in there for kept in str(directive).split())
    return plain_value(text) if is_part and len(text) >= _LEAST_CHARACTERS else REDACTED


def _in_brackets(text: str) -> bool:
    """A mark of the syntax: ``unexpected "}"``."""
    return len(text) == 1


def _directives_at(tree: ConfTree, file: str, line: int) -> list[Directive]:
    """The directives that stand, begin or end in a line of a file."""
    found = []
    for parsed in tree.parsed:
        named = parsed.source.file  # nginx names files by absolute paths
        if named != file and (named.startswith("/") or not file.endswith(f"/{named}")):
            continue
        todo = list(parsed.block.directives)
        while todo:
            one = todo.pop()
            last = parsed.source.place(max(one.end - 1, one.start))[0]
            if one.line <= line <= last:
                found.append(one)
            if one.block is not None and one.line <= line:
                todo += one.block.directives
    return found
