"""Taking secrets out of a configuration that somebody else will read.

What stays is what the product looks at: directives, their places, sizes, paths. What goes is
every comment and every value of a place that may hold a secret
(:mod:`nginx_tune.conf.secret_places`), each replaced on its own line, so that line numbers stay
true. A file that cannot be parsed goes whole: nobody can say what is secret in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from nginx_tune.conf.directive import Block, Directive, Source
from nginx_tune.conf.lexer import ParseFault
from nginx_tune.conf.parser import parse_block
from nginx_tune.conf.secret_places import shown_arguments
from nginx_tune.conf.tree import ConfTree

_LEFT_OUT = b"# left out: this file could not be parsed"


def redact_configuration(
    data: bytes, *, included_by: Directive | None = None, names: Collection[str] = ()
) -> bytes:
    """The file without comments and secret values; doing it twice changes nothing more.

    ``included_by``: the line that includes it, so that lines of a ``map`` are known as such.
    ``names``: what other files of the configuration define (:func:`defined_names`).
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

    A file that a ``map`` includes is read as lines of that map, and what one file defines is
    known in the others.
    """
    names = defined_names([one for file in tree.parsed for one in file.block.directives])
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
    """A directive as it stands, or written anew where something in it must go."""
    original = text[directive.start : directive.end]
    name = directive.shown_name
    args = shown_arguments(directive.name, directive.args, table=directive.table, names=names)
    has_comment = original.count("#") > sum(arg.count("#") for arg in directive.args)
    if (name, args) == (directive.name, directive.args) and not has_comment:
        return original
    words = [_quoted(name), *map(_quoted, args)]
    lines = "\n" * original.count("\n")
    return " ".join(words) + lines + (" {" if directive.block is not None else ";")


def _quoted(argument: str) -> str:
    if re.fullmatch(r"(?:[^\s\"'\\;{}#$]|\$(?=\w))+", argument):
        return argument
    return '"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _blanks(text: str) -> str:
    """What lies between directives, with comments emptied."""
    return re.sub(r"#[^\n]*", _emptied, text)


def _emptied(comment: re.Match[str]) -> str:
    if comment[0] == _LEFT_OUT.decode():
        return comment[0]
    return "#\r" if comment[0].endswith("\r") else "#"
