"""Variables, and the values that they can have, as far as the configuration alone shows.

``map`` and ``split_clients`` list several values, ``set`` gives one. A value from any other source,
such as a request header, is open: the known values are then incomplete.

Captures are known as far as their pattern shows. ``$1`` of ``location ~ ^/(a|b)/`` is ``a`` or
``b``, ``$n`` of ``^/(?<n>[0-9]+)`` is a number, and a group that begins with a slash is a path.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, product
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.patterns import patterns_of
from nginx_tune.conf.scopes import Scope, http_blocks
from nginx_tune.conf.tree import ConfTree

MOST_VALUES = 1024
"""Maximum number of values of one text; beyond them the text counts as open."""

MOST_STEPS = 10_000
"""Maximum number of variables followed for one text: nested maps can multiply without limit."""

DEEPEST = 40
"""The deepest chain of variables in maps and ``set`` lines; beyond it the value is open. Each step
takes several stack frames of Python."""

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
"""A variable in a text."""
_ALMOST_ALL = 99.995
"""The percentage above which all keys are covered: parts have two decimals."""
_MAP_FLAGS = frozenset({"hostnames", "volatile"})


def variables_of(text: str) -> frozenset[str]:
    """The names of the variables in a text, lowercase."""
    return frozenset((match[1] or match[2]).lower() for match in VARIABLE.finditer(text))


@dataclass(frozen=True)
class Values:
    """The values that a text can have, each with the directive it comes from."""

    known: dict[str, Directive | None] = field(default_factory=dict)
    complete: bool = True
    """False if other values are possible too."""


class Use(NamedTuple):
    """The use, in a text, of a variable whose value differs in each subrequest."""

    is_fresh: bool = False
    """True if the text is evaluated again in each subrequest."""
    fixed: Directive | None = None
    """The ``set`` or ``map`` that keeps the value of its first evaluation."""


OPEN = Values(complete=False)
NOTHING_GIVEN: Mapping[str, Sequence[str]] = {}


class _Map(NamedTuple):
    """The lines of a map."""

    entries: dict[str, Directive]
    """The entries by key, lowercase."""
    patterns: list[Directive]
    default: Directive | None


class Variables:
    """The variables that the http block of a tree defines."""

    def __init__(self, tree: ConfTree) -> None:
        self._steps = 0
        self._given = NOTHING_GIVEN
        self._maps: dict[Directive, _Map] = {}
        self._tables: dict[str, list[Directive]] = {}
        for http in http_blocks(tree):
            for kind in ("map", "split_clients"):
                for table in (http.block or Block([])).all(kind):
                    if len(table.args) > 1 and table.block is not None:
                        self._tables.setdefault(table.args[1].lstrip("$").lower(), []).append(table)

    def tables(self, name: str) -> list[Directive]:
        """The ``map`` and ``split_clients`` blocks that define a variable."""
        return self._tables.get(name.lower(), [])

    def possible(
        self, text: str, scope: Scope, given: Mapping[str, Sequence[str]] = NOTHING_GIVEN
    ) -> Values:
        """The values that ``text`` can have in a scope.

        ``given`` has values of nginx's own variables, if the caller knows them.
        """
        if "$" not in text:
            return Values({text: None})
        self._steps = 0
        self._given = given
        return self._text(text, scope, ())

    def use_of(self, name: str, text: str, scope: Scope, seen: frozenset[str] = frozenset()) -> Use:
        """The use of a variable of nginx in ``text``: directly, or through ``set`` and ``map``.

        Source: ngx_http_get_flushed_variable(): a map's value is kept for the request and its
        subrequests unless it is ``volatile`` (1.11.7); ``set`` runs once, in the rewrite phase,
        which a cloned subrequest skips.
        """
        uses = [
            Use(is_fresh=True) if one == name else self._use_through(name, one, scope, seen)
            for one in sorted(variables_of(text) - seen)
        ]
        fixed = next((use.fixed for use in uses if use.fixed is not None), None)
        return Use(any(use.is_fresh for use in uses), fixed)

    def _use_through(self, name: str, through: str, scope: Scope, seen: frozenset[str]) -> Use:
        seen |= {through}
        if len(seen) > DEEPEST:
            return Use()
        for line, _ in _set_lines(scope, through):
            use = self.use_of(name, line.args[1], scope, seen)
            if use.is_fresh or use.fixed:
                return Use(fixed=use.fixed or line)
        for table in self.tables(through):
            entries = [entry for entry in table.block or () if entry.args]
            text = " ".join([table.args[0], *(entry.value for entry in entries)])
            use = self.use_of(name, text, scope, seen)
            is_volatile = any(
                directive.name == "volatile" and not directive.args
                for directive in table.block or ()
            )
            if use.fixed or (use.is_fresh and not is_volatile):
                return Use(fixed=use.fixed or table)
            if use.is_fresh:
                return use
        return Use()

    def _text(self, text: str, scope: Scope, seen: tuple[str, ...]) -> Values:
        parts: list[dict[str, Directive | None]] = []
        complete = True
        at = 0
        for match in VARIABLE.finditer(text):
            parts.append({text[at : match.start()]: None})
            values = self._variable((match[1] or match[2]).lower(), scope, seen)
            parts.append(values.known)
            complete &= values.complete
            at = match.end()
        parts.append({text[at:]: None})
        known: dict[str, Directive | None] = {}
        combinations = product(*(part.items() for part in parts))
        for combination in islice(combinations, MOST_VALUES):
            origin = next((place for _, place in combination if place is not None), None)
            known.setdefault("".join(value for value, _ in combination), origin)
        is_cut = next(combinations, None) is not None  # several may have the same value
        return Values(known, complete and not is_cut)

    def _variable(self, name: str, scope: Scope, seen: tuple[str, ...]) -> Values:
        self._steps += 1
        if name in seen or len(seen) >= DEEPEST or self._steps > MOST_STEPS:
            return OPEN
        seen = (*seen, name)
        tables = self._tables.get(name, [])
        start = _union(
            (self._map if table.name == "map" else self._split)(table, scope, seen)
            for table in tables
        )
        if not tables:
            start = Values(dict.fromkeys(self._given[name])) if name in self._given else OPEN
        return self._after_set(start, name, scope, seen)

    def _after_set(self, values: Values, name: str, scope: Scope, seen: tuple[str, ...]) -> Values:
        """The values of a variable after the ``set`` lines that run for a request to ``scope``."""
        for line, is_conditional in _set_lines(scope, name):
            value = self._constant(line, scope, seen)
            values = _union((values, value)) if is_conditional else value
        return values

    def _constant(self, directive: Directive, scope: Scope, seen: tuple[str, ...]) -> Values:
        values = self._text(directive.args[1], scope, seen)
        return Values(dict.fromkeys(values.known, directive), values.complete)

    def _split(self, table: Directive, scope: Scope, seen: tuple[str, ...]) -> Values:
        """The values of a ``split_clients`` table; the value is empty for uncovered keys.

        Source: ngx_http_split_clients_module.c.
        """
        parts = list(table.block or ())
        covered = sum(100.0 if part.name == "*" else _percent(part.name) for part in parts)
        values = _union(self._entry(part, scope, seen) for part in parts)
        return values if covered > _ALMOST_ALL else _union((values, Values({"": table})))

    def _map(self, table: Directive, scope: Scope, seen: tuple[str, ...]) -> Values:
        """The values of a ``map``; without ``default``, the value is empty for unmatched keys.

        Source: ngx_http_map_module.c.
        """
        if table not in self._maps:
            self._maps[table] = read_map(table)
        entries, patterns, default = self._maps[table]
        otherwise = Values({"": table}) if default is None else self._entry(default, scope, seen)
        source = self._text(table.args[0], scope, seen)
        if source.complete and not patterns:
            matches = (entries.get(key.lower()) for key in source.known)
            return _union(
                otherwise if entry is None else self._entry(entry, scope, seen) for entry in matches
            )
        listed = (entry for entry in chain(entries.values(), patterns) if entry.args)
        return _union(chain((otherwise,), (self._entry(entry, scope, seen) for entry in listed)))

    def _entry(self, entry: Directive, scope: Scope, seen: tuple[str, ...]) -> Values:
        values = self._text(entry.value, scope, seen)
        return Values(dict.fromkeys(values.known, entry), values.complete)


def read_map(table: Directive) -> _Map:
    """The lines of a map, in the order of their evaluation."""
    entries: dict[str, Directive] = {}
    patterns: list[Directive] = []
    default: Directive | None = None
    for entry in table.block or ():
        if not entry.args:
            if entry.name not in _MAP_FLAGS:
                patterns.append(entry)
        elif entry.name == "default":
            default = entry
        elif entry.name.startswith("~") or "*" in entry.name or entry.name.startswith("."):
            patterns.append(entry)
        else:
            entries[entry.name.removeprefix("\\").lower()] = entry
    return _Map(entries, patterns, default)


def _union(several: Iterable[Values]) -> Values:
    """All values, each with its first place; open beyond MOST_VALUES."""
    known: dict[str, Directive | None] = {}
    complete = True
    for values in several:
        for value, place in values.known.items():
            known.setdefault(value, place)
        complete &= values.complete
        if len(known) > MOST_VALUES:
            return Values(known, complete=False)
    return Values(known, complete)


def _set_lines(scope: Scope, name: str) -> Iterator[tuple[Directive, bool]]:
    """The ``set`` lines of a variable that run for a request, and True if any is in an ``if``.

    Source: ngx_http_rewrite_module: the server's lines run first, then those of the innermost
    location. Lines of outer locations do not run.
    """
    location = next((b for b in reversed(scope.chain) if b.name == "location"), None)
    for level in (scope.server, location):
        for directive in level.block if level is not None and level.block else ():
            if directive.name == "set" and _sets(directive, name):
                yield directive, False
            elif directive.name == "if" and directive.block is not None:
                for inner in directive.block.all("set"):
                    if _sets(inner, name):
                        yield inner, True


def _sets(directive: Directive, name: str) -> bool:
    return len(directive.args) > 1 and directive.args[0].lstrip("$").lower() == name


def _percent(text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        return 0.0


MOST_WORDS = 64
"""Maximum number of alternatives of one group."""
AN_ADDRESS = "192.0.2.1"
"""A placeholder for any address (RFC 5737)."""
_A_NUMBER = "1"
_NAME = re.compile(r"\?P?<(\w+)>|\?'(\w+)'")
_WORDS = re.compile(r"(?:[\w-]|\\\.)+(?:\|(?:[\w-]|\\\.)+)*", re.ASCII)
_DIGITS = re.compile(r"(?:\[0-9\]|\\d|[0-9])(?:[+*?]|\{[0-9,]+\}|\[0-9\]|\\d|[0-9])*")
_NUMBERS = re.compile(r"(?:\[[0-9.\\d-]+\]|\\d|\\\.|[0-9.(){},+*?:|])+")


class Group(NamedTuple):
    """One group of a pattern."""

    name: str
    """The group's name; empty for a group with only a number."""
    text: str
    """The text inside the parentheses."""
    repeat: str = ""
    """The following ``?``, ``*``, ``+`` or ``{``."""


def groups(pattern: str) -> Iterator[Group]:
    """The capturing groups, in the order of their numbers."""
    found: dict[int, Group] = {}
    opened: list[tuple[int, str, int] | None] = []
    at = 0
    is_class = False
    while at < len(pattern):
        mark = pattern[at]
        if mark == "\\":
            at += 2
            continue
        if is_class:
            is_class = mark != "]"
        elif mark == "[":
            is_class = True
            at += len(re.match(r"\^?\]?", pattern[at + 1 :])[0])  # type: ignore[index]
        elif mark == "(":
            named = _NAME.match(pattern, at + 1)
            if named is None and pattern[at + 1 : at + 2] in {"?", "*"}:
                opened.append(None)
            else:
                start = at + 1 if named is None else named.end()
                name = "" if named is None else named[1] or named[2]
                number = len(found)
                found[number] = Group(name, "")
                opened.append((number, name, start))
        elif mark == ")" and opened:
            one = opened.pop()
            if one is not None:
                behind = pattern[at + 1 : at + 2]
                repeat = behind if behind and behind in "?*+{" else ""
                found[one[0]] = Group(one[1], pattern[one[2] : at], repeat)
        at += 1
    yield from found.values()


def possible_texts(group: Group) -> tuple[str, ...]:
    """Texts that a group can match: its words, or one sample of all digits, addresses or paths.

    Empty if it may match anything.
    """
    texts = () if group.repeat in {"*", "+", "{"} else _texts(group.text)
    return (*texts, "") if texts and group.repeat else texts


def _texts(group: str) -> tuple[str, ...]:
    if _WORDS.fullmatch(group) and not _DIGITS.fullmatch(group):
        words = tuple(word.replace("\\", "") for word in group.split("|"))
        return words if len(words) <= MOST_WORDS else ()
    if _DIGITS.fullmatch(group):
        return (_A_NUMBER,)
    if "." in group and _NUMBERS.fullmatch(group) and ".*" not in group and ".+" not in group:
        return (AN_ADDRESS,)
    return ("/",) if group.startswith("/") and "|" not in group else ()


def captured(scope: Scope) -> dict[str, tuple[str, ...]]:
    """The texts that each variable can have from capturing groups in patterns around a scope.

    Numbers are those of the innermost location, if no other line there has a pattern.
    """
    lines = [line for level in scope.chain for line in level.block or ()]
    others = [line for line in lines if line.name in {"server_name", "if", "rewrite"}]
    known = {
        group.name.lower(): possible_texts(group)
        for level in scope.chain
        for group in _named(level)
    }
    for name in {group.name.lower() for line in others for group in _named(line)}:
        known.pop(name, None)  # any of the patterns may have matched
    location = next(
        (directive for directive in reversed(scope.chain) if directive.name == "location"), None
    )
    if location is not None and not _has_patterns(scope):
        for pattern in patterns_of("location", location.args):
            for number, group in enumerate(groups(pattern), 1):
                known[f"{number}"] = possible_texts(group)
    return {name: texts for name, texts in known.items() if texts}


def _named(line: Directive) -> Iterator[Group]:
    for pattern in patterns_of(line.name, line.args):
        yield from (group for group in groups(pattern) if group.name)


def _has_patterns(scope: Scope) -> bool:
    location = next(
        directive for directive in reversed(scope.chain) if directive.name == "location"
    )
    lines = [*(location.block or ()), *(scope.own.block or ())]
    return scope.kind == "if" or any(line.name in {"rewrite", "if"} for line in lines)
