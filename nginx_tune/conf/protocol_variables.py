"""What a variable is where a client speaks HTTP/1.1, and where the same client speaks HTTP/2.

A request is worked out twice. ``map`` and ``set`` are followed; what is not known is the same word
in both, so that texts differ only where the protocol makes them differ.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, http_blocks, http_directives
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.variables import MOST_STEPS, VARIABLE, read_map, variables_of

Protocol = Literal["HTTP/1.1", "HTTP/2.0"]

_OLD: Protocol = "HTTP/1.1"
_NEW: Protocol = "HTTP/2.0"
SPOKEN: dict[str, dict[Protocol, str]] = {
    "server_protocol": {_OLD: "HTTP/1.1", _NEW: "HTTP/2.0"},
    "request": {_OLD: "GET / HTTP/1.1", _NEW: "GET / HTTP/2.0"},
    "http_connection": {_OLD: "keep-alive", _NEW: ""},
    "http2": {_OLD: "", _NEW: "h2"},
    "ssl_alpn_protocol": {_OLD: "http/1.1", _NEW: "h2"},
}
"""Of an ordinary request of a browser. HTTP/2 has no ``Connection`` (RFC 9113, 8.2.2), and what
asks for an ``Upgrade`` goes on to come over HTTP/1.1: browsers open such a connection apart, as
nginx knows no extended CONNECT (RFC 8441)."""
_UNKNOWN = "\0"
"""In front of a word for what is not known; no text of a configuration has it."""
_MOST_DEEP = 40
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
_UNARY = 2
_BINARY = 3
Outcome = bool | tuple[str, ...]


class ProtocolVariables:
    """The texts of a tree over either protocol."""

    def __init__(self, tree: ConfTree) -> None:
        self._steps = 0
        self._tables: dict[str, Directive] = {}
        self._found: dict[tuple[str, Protocol, Directive, Directive | None], str] = {}
        for http in http_blocks(tree):
            for table in http.block or Block([]):
                name = table.args[1] if len(table.args) > 1 else ""
                if table.name in ("map", "split_clients") and table.block is not None:
                    self._tables[name.lstrip("$").lower()] = table
        self._made = _made_of_spoken(tree, self._tables)

    def made_differs(self, text: str, scope: Scope) -> bool:
        """The same of what ``map`` and ``set`` make: one that is only told decides nothing."""
        made = variables_of(text) & self._made
        old, new = ([self._whole(f"${n}", one, scope) for n in made] for one in (_OLD, _NEW))
        return old != new

    def answers_differ(self, condition: Sequence[str], scope: Scope) -> bool:
        """Whether the words of an ``if`` hold over one of both alone."""
        words = _inside(condition)
        if not variables_of(" ".join(words)) & (self._made | SPOKEN.keys()):
            return False
        old, new = (self._outcome(words, one, scope) for one in (_OLD, _NEW))
        return old != new

    def _whole(self, text: str, protocol: Protocol, scope: Scope) -> str:
        self._steps = 0
        return self._text(text, protocol, scope, ())

    def _outcome(self, words: Sequence[str], protocol: Protocol, scope: Scope) -> Outcome:
        """Source: ngx_http_rewrite_if_condition()."""
        texts = [self._whole(one, protocol, scope) for one in words]
        if len(words) == 1:
            return (*texts,) if _UNKNOWN in texts[0] else texts[0] not in ("", "0")
        if len(words) == _UNARY:
            return (*texts,)
        if len(words) != _BINARY:
            return False
        left, operator, right = texts[0], words[1], texts[2]
        if "~" in operator:
            right = words[2]  # of an expression "$" is the end
        if _UNKNOWN in left or _UNKNOWN in right:
            return (left, operator, right)
        holds = _matches(left, right, ignores="*" in operator) if "~" in operator else left == right
        return holds is not operator.startswith("!")

    def _text(self, text: str, protocol: Protocol, scope: Scope, seen: tuple[str, ...]) -> str:
        return VARIABLE.sub(
            lambda match: self._variable((match[1] or match[2]).lower(), protocol, scope, seen),
            text,
        )

    def _variable(self, name: str, protocol: Protocol, scope: Scope, seen: tuple[str, ...]) -> str:
        self._steps += 1
        if name in SPOKEN:
            return SPOKEN[name][protocol]
        if (
            name not in self._made
            or name in seen
            or len(seen) > _MOST_DEEP
            or self._steps > MOST_STEPS
        ):
            return _unknown(name)
        location = next((one for one in reversed(scope.chain) if one.name == "location"), None)
        key = (name, protocol, scope.server, location)
        if key not in self._found:
            self._found[key] = self._worked_out(name, protocol, scope, (*seen, name))
        return self._found[key]

    def _worked_out(
        self, name: str, protocol: Protocol, scope: Scope, seen: tuple[str, ...]
    ) -> str:
        sets, may_run = _sets(name, scope)
        values = [self._text(one.args[1], protocol, scope, seen) for one in sets]
        if values and not may_run:
            return values[-1]
        if name in self._tables:
            values.append(self._looked_up(self._tables[name], protocol, scope, seen))
        return values[0] if len(set(values)) == 1 else _unknown(name, values)

    def _looked_up(
        self, table: Directive, protocol: Protocol, scope: Scope, seen: tuple[str, ...]
    ) -> str:
        """Source: ngx_http_map_find(); without a default it is empty."""
        key = self._text(table.args[0], protocol, scope, seen)
        entries, patterns, default = read_map(table)
        every = [*entries.values(), *patterns, *([default] if default else [])]
        if table.name != "map" or _UNKNOWN in key:
            values = (self._text(one.value, protocol, scope, seen) for one in every)
            return _unknown(key, values)
        entry = entries.get(key.lower()) or next(
            (one for one in patterns if one.args and _is_meant(one.name, key)), default
        )
        return "" if entry is None else self._text(entry.value, protocol, scope, seen)


def _made_of_spoken(tree: ConfTree, tables: Mapping[str, Directive]) -> set[str]:
    """The variables that may be other ones over HTTP/2; the others need no look."""
    sources: dict[str, set[str]] = {}
    for name, table in tables.items():
        texts = [table.args[0], *(one.value for one in table.block or ())]
        sources.setdefault(name, set()).update(*map(variables_of, texts))
    for line in http_directives(tree) if "set" in tree.names else ():
        if line.name == "set" and len(line.args) > 1:
            name = line.args[0].lstrip("$").lower()
            sources.setdefault(name, set()).update(variables_of(line.args[1]))
    found: set[str] = set()
    while more := {n for n, of in sources.items() if of & (found | SPOKEN.keys())} - found:
        found |= more
    return found


def _sets(name: str, scope: Scope) -> tuple[list[Directive], bool]:
    """The ``set`` lines of a variable that a request passes, and whether some only may run."""
    location = next((one for one in reversed(scope.chain) if one.name == "location"), None)
    found: list[Directive] = []
    may_run = False
    for level in filter(None, (scope.server, location)):
        for line in level.block or ():
            inner = line.block.all("set") if line.name == "if" and line.block else []
            for one in [line] if line.name == "set" else inner:
                if len(one.args) > 1 and one.args[0].lstrip("$").lower() == name:
                    found.append(one)
                    may_run |= line is not one
    return found, may_run


def _unknown(name: str, values: Iterable[str] = ()) -> str:
    """One word for all that it may be, of a length that does not grow."""
    parts = _UNKNOWN.join((name, *values))
    return _UNKNOWN + hashlib.sha256(parts.encode(errors="surrogatepass")).hexdigest()


def _is_meant(pattern: str, key: str) -> bool:
    if pattern.startswith("~"):
        return _matches(key, pattern.lstrip("~*"), ignores=pattern.startswith("~*"))
    return False  # names of hosts with an asterisk


def _matches(text: str, pattern: str, *, ignores: bool) -> bool:
    """Whether an expression is found; not where it is one that Python has no words for."""
    try:
        flags = re.IGNORECASE if ignores else 0
        return re.search(_NAMED_GROUP.sub("(?P<", pattern), text, flags) is not None
    except re.error:
        return False


def _inside(condition: Sequence[str]) -> list[str]:
    """The words between the brackets; an empty one in quotes is a word too."""
    words = list(condition)
    if words and words[0].startswith("("):
        words[:1] = [words[0][1:]] if words[0] != "(" else []
    if words and words[-1].endswith(")"):
        words[-1:] = [words[-1][:-1]] if words[-1] != ")" else []
    return words
