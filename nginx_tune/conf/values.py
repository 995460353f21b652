"""Values in a configuration: numbers in nginx's notation, and the arguments of directives.

Source: ngx_parse_size, ngx_parse_offset and ngx_parse_time in ngx_parse.c; ngx_atoi in
        ngx_string.c; ngx_conf_set_flag_slot and the like in ngx_conf_file.c.

A configuration may be a template that is not filled in yet. Placeholders are marks of Jinja, ERB,
Mustache, Go, Ansible, envsubst or autoconf, and names in capitals for sed. Arguments with
placeholders are not judged. A line that is a placeholder may become any line.

``directive-values.tsv`` is read from the command tables of real nginx executables
(``tools/read-directives --values``). It has the setter function of each directive, its words and
its bounds. A directive with a setter of its own has no row; its values are not judged here.

``directive-parameters.tsv`` is read from the source of every release (``tools/read-releases``): the
words that ngx_http_core_listen, ngx_http_upstream_server, ngx_http_file_cache_set_slot and the like
compare arguments with, and the words of enumerations and bit masks. A test tries them on the
installed versions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from nginx_tune.conf.known_directives import (
    FIRST_RELEASE,
    Version,
    VersionSpan,
    is_within,
    parse_span,
    read_table,
    rows_of,
    seen_versions,
)

_QUANTITY = re.compile(r"([0-9]{1,15})([kKmMgG]?)")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_PART_OF_TIME = re.compile(r"([0-9]{1,12})(ms|[yMwdhms]?) *")
_SECONDS = {
    "y": 31_536_000.0,
    "M": 2_592_000.0,
    "w": 604_800.0,
    "d": 86_400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "": 1.0,
    "ms": 0.001,
}
_FEW = 0.05
"""Relative differences below this have no visible effect."""
_COUNT = re.compile(r"[0-9]{1,12}")


def parse_bytes(text: str) -> int | None:
    """``10m`` in bytes; None if the text is not a size. nginx accepts ``g`` only for files."""
    match = _QUANTITY.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2].lower()]


def parse_seconds(text: str) -> float | None:
    """``1m 30s`` in seconds; None if the text is not a time."""
    seconds, at = 0.0, 0
    while at < len(text):  # a single expression would backtrack over every split of the digits
        part = _PART_OF_TIME.match(text, at)
        if part is None:
            return None
        seconds += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    return seconds if text else None


def parse_count(text: str) -> int | None:
    """A plain number; None for anything else."""
    return int(text) if _COUNT.fullmatch(text) else None


def is_alike(have: str, want: str) -> bool:
    """True if two words are equal, or differ only in a size, by a few per cent."""
    name, _, value = want.rpartition("=")
    own, _, number = have.rpartition("=")
    zone, _, size = value.rpartition(":")
    own_zone, _, own_size = number.rpartition(":")
    one, other = parse_bytes(own_size), parse_bytes(size)
    if one is None or other is None or (own, own_zone) != (name, zone):
        return have == want
    return abs(one - other) <= _FEW * other


def parameter(args: Sequence[str], name: str) -> str | None:
    """The value of the last ``NAME=VALUE`` among the arguments."""
    found = [arg[len(name) + 1 :] for arg in args if arg.startswith(f"{name}=")]
    return found[-1] if found else None


_SPLIT = re.compile(r"<%|%>|\{%|%\}|\{\{|\}\}")
"""Template marks with spaces, which split one value into several words."""
_MARK = re.compile(
    r"<%|%>|\{%|%\}|\{\{|\}\}|\[\[|\]\]|@@|%%|#\{|@[A-Za-z][\w.-]*@|%[A-Za-z]\w*%|__[A-Za-z]\w*?__"
    r"|<[A-Za-z][\w -]*>|\$\{?[A-Z][A-Z0-9_]*\b(?!\w)"
)
_IN_CAPITALS = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_PARTS = re.compile(r"[=:/.]")
_MAY_BE_MARKED = re.compile(r"[<>%{}\[\]@#$]|[A-Z0-9_]_")
"""Characters that every mark contains, for a fast test."""
_LINE = re.compile(
    r"(?:<%|\{%|\{\{|\[\[|#\{|@@|%%).*|@[A-Za-z][\w.-]*@|%[A-Za-z]\w*%|__[A-Za-z]\w*__"
    r"|\$\{?[A-Z][A-Z0-9_]*\}?",
    re.DOTALL,
)


def is_placeholder(text: str) -> bool:
    """True if a template still has to fill in part of the text."""
    if _MAY_BE_MARKED.search(text) is None:
        return False
    return _MARK.search(text) is not None or any(map(_IN_CAPITALS.fullmatch, _PARTS.split(text)))


def is_open(text: str) -> bool:
    """True if the text has a variable or a template placeholder."""
    return "$" in text or is_placeholder(text)


def is_cut(words: Iterable[str]) -> bool:
    """True if template marks split words, so that the number of words is meaningless."""
    return any(map(_SPLIT.search, words))


@lru_cache(maxsize=4096)
def is_template_line(name: str) -> bool:
    """True if a line's first word is a template mark, so that it may become any line or none."""
    return _LINE.fullmatch(name) is not None


_SIZE = re.compile(r"[0-9]{1,18}[kKmM]?")
_OFFSET = re.compile(r"[0-9]{1,18}[kKmMgG]?")
_NUMBER = re.compile(r"[0-9]{1,18}")
_TIME_PART = re.compile(r"([0-9]*)(ms|[yMwdhms ]?) *")
_STEPS = {"y": 1, "M": 2, "w": 3, "d": 4, "h": 5, "m": 6, "s": 7, "ms": 8, " ": 9, "": 9}
_LONGEST = 18
"""Number of digits that never overflow; longer numbers are checked for overflow."""
_LARGEST = 2**63 - 1
"""NGX_MAX_INT_T_VALUE of 64 bits; 32-bit builds accept less. Source: ngx_atoi, ngx_atoof."""
_COUNTED = frozenset({"size", "complex-size", "off", "msec", "sec", "num", "bufs"})
_LEADING = re.compile(r"0*([0-9]*)([kKmMgG]?)")
_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MAY_REPEAT = frozenset({"bits"})
_WORDS = {
    "flag": "on or off",
    "size": "a size such as 16k or 1m",
    "off": "a size such as 16k, 1m or 1g",
    "complex-size": "a size such as 16k or 1m",
    "msec": "a time such as 500ms, 30s or 5m",
    "sec": "a time such as 30s, 5m or 1d",
    "num": "a number",
    "bufs": "a number and a size, such as 8 16k",
}


class Grammar(NamedTuple):
    """The arguments that one module's directive accepts in some versions."""

    module: str
    kind: str
    words: tuple[str, ...]
    """The words of an enumeration."""
    low: int
    high: int | None
    versions: frozenset[Version]
    """The versions that the table was read from."""

    @property
    def once(self) -> bool:
        """True if nginx rejects a second line with the directive in the same block."""
        return self.kind not in _MAY_REPEAT

    @property
    def accepted(self) -> str:
        """The accepted arguments, in words."""
        if self.words:
            return ("any of " if self.kind == "bits" else "one of ") + ", ".join(self.words)
        if self.kind == "num" and (self.low or self.high is not None):
            bounds = f"from {self.low}" + ("" if self.high is None else f" to {self.high}")
            return f"a number {bounds}"
        return _WORDS.get(self.kind, "")

    def takes(self, args: Sequence[str]) -> bool:
        """True unless nginx certainly rejects the arguments."""
        if self.kind == "once" or any(map(is_open, args)):
            return True
        return all(self._takes_word(arg, at) for at, arg in enumerate(args))

    def _takes_word(self, text: str, at: int) -> bool:
        if sum(map(str.isdigit, text)) > _LONGEST:
            return self.kind not in _COUNTED or not self._overflows(text)
        match self.kind:
            case "flag":
                return text.lower() in {"on", "off"}
            case "size" | "complex-size":
                return _SIZE.fullmatch(text) is not None
            case "off":
                return _OFFSET.fullmatch(text) is not None
            case "msec" | "sec":
                return is_time(text, in_seconds=self.kind == "sec")
            case "num":
                return self._is_number(text)
            case "bufs":
                pattern = _NUMBER if at == 0 else _SIZE
                return pattern.fullmatch(text) is not None and text.strip("0kKmM") != ""
            case "enum" | "bits":
                return text.lower() in map(str.lower, self.words)
        return True

    def _overflows(self, text: str) -> bool:
        """True if the number at the beginning exceeds what nginx can hold."""
        found = _LEADING.match(text)
        if found is None:
            return False
        digits, unit = found.groups()
        if len(digits) > len(str(_LARGEST)):
            return True
        is_time = self.kind in {"msec", "sec"}  # there m is minutes and M months
        scale = 1 if is_time else _BYTES.get(unit.lower(), 1)
        return int(digits or 0) * scale > _LARGEST

    def _is_number(self, text: str) -> bool:
        if _NUMBER.fullmatch(text) is None:
            return False
        return int(text) >= self.low and (self.high is None or int(text) <= self.high)


def grammars_of(name: str) -> tuple[Grammar, ...]:
    """The grammars of a directive's arguments."""
    return _read(name)


def versions_read() -> frozenset[Version]:
    """The nginx versions that the table was read from."""
    return _table()[1]


def is_time(text: str, *, in_seconds: bool) -> bool:
    """True if nginx accepts a text as a time.

    Units must descend. ``in_seconds`` excludes milliseconds; otherwise, months and years are
    excluded.
    """
    step = 0 if in_seconds else 2
    at, has_digits = 0, False
    while at < len(text):
        part = _TIME_PART.match(text, at)
        if part is None or part.end() == at:
            return False
        has_digits = has_digits or bool(part[1])
        if part[2]:
            now = _STEPS[part[2]]
            limit = 7 if part[2] == " " else now
            if step >= limit or (in_seconds and part[2] == "ms"):
                return False
            step = now
        elif part.end() < len(text):
            return False
        at = part.end()
    return has_digits


@lru_cache(maxsize=1)
def _table() -> tuple[dict[str, list[str]], frozenset[Version]]:
    text = read_table("directive-values.tsv")
    lines: dict[str, list[str]] = {}
    versions: set[Version] = set()
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("\t")
            lines.setdefault(name, []).append(rest)
            versions.update(map(_version, rest.rpartition("\t")[2].split(",")))
    return lines, frozenset(versions)


@lru_cache(maxsize=4096)
def _read(name: str) -> tuple[Grammar, ...]:
    return tuple(_grammar(line) for line in _table()[0].get(name, ()))


def _grammar(line: str) -> Grammar:
    module, grammar, versions = line.split("\t")
    kind, _, rest = grammar.partition(":")
    low, _, high = rest.partition("-") if kind == "num" else ("", "", "")
    return Grammar(
        module=module,
        kind=kind,
        words=tuple(rest.split("|")) if kind in {"enum", "bits"} else (),
        low=int(low or 0),
        high=int(high) if high else None,
        versions=frozenset(map(_version, versions.split(","))),
    )


def _version(text: str) -> Version:
    return tuple(map(int, text.split(".")))


_CACHE_PATHS = tuple(f"{one}_cache_path" for one in ("proxy", "fastcgi", "uwsgi", "scgi"))
COMMERCIAL: Mapping[str, frozenset[str]] = {
    "listen": frozenset({"http3"}),
    "resolver": frozenset({"status_zone="}),
    "server": frozenset({"route=", "drain", "slow_start=", "id=", "sid="}),
    "limit_req_zone": frozenset({"sync"}),
    "limit_conn_zone": frozenset({"sync"}),
    **dict.fromkeys(
        _CACHE_PATHS, frozenset({"purger=", "purger_files=", "purger_sleep=", "purger_threshold="})
    ),
}
"""Parameters of nginx Plus and forks, some of which nginx adopted later."""
_WITH_OR_WITHOUT_VALUE = frozenset({"gzip", "threads"})


class Words(NamedTuple):
    """The parameters of one module's directive."""

    module: str
    start: int
    """The index of the first argument that is a parameter."""
    is_closed: bool
    """True if nginx rejects every word from there on that is not a parameter."""
    spans: Mapping[str, tuple[VersionSpan, ...]]
    """The releases that have each word (``backlog=`` if a value follows)."""

    def of(self, argument: str) -> tuple[VersionSpan, ...] | None:
        """The releases with an argument; None if there are none."""
        name, equals, _ = argument.partition("=")
        if equals and name in _WITH_OR_WITHOUT_VALUE:
            return self.spans.get(name)
        # Source: ngx_conf_set_enum_slot and the like ignore case.
        return self.spans.get(name + equals if self.is_closed else (name + equals).lower())


class ArgumentFault(NamedTuple):
    """An argument that nginx rejects."""

    since: Version = ()
    """The release that added the parameter, if the version is older; otherwise empty."""
    gone: Version | None = None
    """The first release without the parameter, if it was removed; otherwise None."""

    @property
    def is_unknown(self) -> bool:
        """True if no release has the parameter."""
        return not self.since and self.gone is None


@lru_cache(maxsize=4096)
def words_of(directive: str, context: str) -> tuple[Words, ...]:
    """The parameters of a directive, for each module that has it in a context."""
    modules = {row.module for row in rows_of(directive) if row.may_stand(context)}
    return tuple(
        words for words in _words_by_directive().get(directive, ()) if words.module in modules
    )


def judge(
    directive: str, words: Words, argument: str, version: Version, *, may_be_plus: bool = True
) -> ArgumentFault | None:
    """The fault of an argument in a version of nginx; None if the version accepts it, or may."""
    spans = words.of(argument)
    name, equals, _ = argument.partition("=")
    is_commercial = name + equals in COMMERCIAL.get(directive, ())
    if may_be_plus and is_commercial:
        return None
    if spans is None:
        return ArgumentFault() if words.is_closed or is_commercial else None
    if version < FIRST_RELEASE or any(is_within(version, span) for span in spans):
        return None
    if version < spans[0].since:
        return ArgumentFault(since=spans[0].since)
    return ArgumentFault(gone=next(span.gone for span in reversed(spans) if span.since <= version))


def possible_versions() -> list[Version]:
    """The versions to consider if nginx's version is not known."""
    return [tuple(map(int, version.split("."))) for version in seen_versions()]


@lru_cache(maxsize=1)
def _words_by_directive() -> Mapping[str, tuple[Words, ...]]:
    found: dict[tuple[str, str, int, bool], dict[str, list[VersionSpan]]] = {}
    for line in read_table("directive-parameters.tsv").splitlines():
        if not line.startswith("#"):
            name, module, start, kind, word, since, gone = line.split("\t")
            is_closed = kind == "closed"
            key = name, module, int(start), is_closed
            known = found.setdefault(key, {})
            known.setdefault(word if is_closed else word.lower(), []).append(
                parse_span(since, gone)
            )
    table: dict[str, tuple[Words, ...]] = {}
    for (name, module, at, is_closed), words in found.items():
        spans = {word: tuple(sorted(ranges)) for word, ranges in words.items()}
        table[name] = (*table.get(name, ()), Words(module, at, is_closed, spans))
    return table
