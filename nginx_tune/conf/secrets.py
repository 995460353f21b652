"""Removes secrets from a configuration, and from texts that quote a configuration.

In a configuration, everything that the audit and the decisions use is kept: directives, their
places, sizes, paths. Comments are removed, and so is every value that may be a secret by its place
(:mod:`nginx_tune.conf.secret_places`). Replacements stay on the same line, so line numbers do not
change. A file that cannot be parsed is removed completely: its secrets cannot be located.

Messages of nginx quote parts of a configuration, and so do findings and reasons. File names, line
numbers, directives, and faulty values of a switch (``gzip maybe``) help the operator and are kept.
Free text may be a secret and is removed. Source: ngx_conf_log_error (``… in FILE:LINE``) and its
calls in nginx's modules.
"""

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
    # Between directives there are only blanks and comments.
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
    """Names of pools, upstreams, formats and zones that directives and their blocks define.

    Parts of names are included, since ``threads=pool_$disk`` builds a name from parts.
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
    """(start, end, replacement) of every directive and closing brace."""
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
"""A path that nginx's message builds from its prefix and a key, as if the key were a file name."""
_PATH = re.compile(r"/[^\s?\"]*(?::[0-9]+)?")
_LEAST_CHARACTERS = 4
_WORD = re.compile(r"\w+")
_WEAK = re.compile(r"[a-z]{1,7}|[0-9]{1,5}")
"""Hidden values that may also be ordinary words. They are replaced only if they are a whole
quotation."""


class TreeSecrets:
    """Hides the secrets of a configuration in other texts."""

    def __init__(self, tree: ConfTree, *, own_words: Collection[str] = ()) -> None:
        """``own_words``: lowercase words of our messages, replaced only as a whole quotation."""
        self._tree = tree
        self._own_words = own_words

    def hide(self, text: str) -> str:
        """``text`` without the configuration's secrets, and without what looks like a secret."""
        text = redact_text(text)
        for literal in self._in(text):
            if _WEAK.fullmatch(literal) or literal.rstrip(".,;:!?").lower() in self._own_words:
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
        """The hidden texts of the tree's directives, by the first word of each text."""
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
                        continue  # kept elsewhere: a name or an ordinary word
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
    """The texts that are hidden when the directive is shown, except ``names``."""
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
"""Messages that quote a name from the configuration. The name is not secret, and helps the
operator."""


def redact_message(text: str, tree: ConfTree | None = None) -> str:
    """A message of nginx without possible secrets; its file and line are kept.

    If the tree is given, quoted text is judged by its place in the configuration. Otherwise it is
    judged by its form and by the directive that the message names.
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
    """The message, with quotations of directives redacted as in the directives themselves."""
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
    """True if every quote character is nginx's own, so that prose separates the quoted texts."""
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
    """True for a quoted brace or semicolon, as in ``unexpected "}"``."""
    return len(text) == 1


def _directives_at(tree: ConfTree, file: str, line: int) -> list[Directive]:
    """The directives that have words on a line of a file."""
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
