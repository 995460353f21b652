"""What the arguments of nginx's own directives must be: switches, sizes, times, numbers, words.

``directive-values.tsv`` is read out of the command tables of real nginx executables
(``tools/read-directives --values``): which of nginx's setters a directive has, with its words and
its bounds. A directive with a setter of its own has no row, and nothing is said of its values.

Source: ngx_conf_set_flag_slot and its kin in ngx_conf_file.c; ngx_parse_size, ngx_parse_offset
        and ngx_parse_time in ngx_parse.c; ngx_atoi in ngx_string.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nginx_tune.conf.known_directives import read_table
from nginx_tune.conf.templates import is_open

Version = tuple[int, ...]

_SIZE = re.compile(r"[0-9]{1,18}[kKmM]?")
_OFFSET = re.compile(r"[0-9]{1,18}[kKmMgG]?")
_NUMBER = re.compile(r"[0-9]{1,18}")
_TIME_PART = re.compile(r"([0-9]*)(ms|[yMwdhms ]?) *")
_STEPS = {"y": 1, "M": 2, "w": 3, "d": 4, "h": 5, "m": 6, "s": 7, "ms": 8, " ": 9, "": 9}
_LONGEST = 18
"""Digits that are sure to fit; of longer ones it is only said when they surely do not."""
_LARGEST = 2**63 - 1
"""NGX_MAX_INT_T_VALUE of 64 bits; builds of 32 bits take less. Source: ngx_atoi, ngx_atoof."""
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
    """What one module's directive takes in some versions."""

    module: str
    kind: str
    words: tuple[str, ...]
    """Of an enumeration."""
    low: int
    high: int | None
    versions: frozenset[Version]
    """Those that it was read from."""

    @property
    def once(self) -> bool:
        """Whether a second line of the name at the same level is refused."""
        return self.kind not in _MAY_REPEAT

    @property
    def said(self) -> str:
        """What is taken, in words."""
        if self.words:
            return ("any of " if self.kind == "bits" else "one of ") + ", ".join(self.words)
        if self.kind == "num" and (self.low or self.high is not None):
            bounds = f"from {self.low}" + ("" if self.high is None else f" to {self.high}")
            return f"a number {bounds}"
        return _WORDS.get(self.kind, "")

    def takes(self, args: Sequence[str]) -> bool:
        """Whether the arguments may be right; true where it cannot be told."""
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
        """Whether the number at its beginning is more than nginx can hold."""
        found = _LEADING.match(text)
        if found is None:
            return False
        digits, unit = found.groups()
        if len(digits) > len(str(_LARGEST)):
            return True
        is_time = self.kind in {"msec", "sec"}  # there m and M are minutes and months
        scale = 1 if is_time else _BYTES.get(unit.lower(), 1)
        return int(digits or 0) * scale > _LARGEST

    def _is_number(self, text: str) -> bool:
        if _NUMBER.fullmatch(text) is None:
            return False
        return int(text) >= self.low and (self.high is None or int(text) <= self.high)


def grammars_of(name: str) -> tuple[Grammar, ...]:
    """What the tables say of a directive's arguments."""
    return _read(name)


def seen_versions() -> frozenset[Version]:
    """The nginx versions that the table was read from."""
    return _table()[1]


def is_time(text: str, *, in_seconds: bool) -> bool:
    """Whether nginx takes a text for a time.

    Units come from the largest down; a time in milliseconds has no months and years, one in
    seconds no milliseconds.
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
