"""Expressions of gates and claims: ``ratio(hot.p99) <= 0.5``, ``cold.truncated == 0``.

    expression = quantity operator limit
    quantity   = METRIC                     of the candidate
               | baseline(METRIC)
               | ratio(METRIC)              candidate / baseline
               | predicted(METRIC) | predicted(ratio(METRIC))   what the model expected
               | decision(ID)               the verdict of a decision: enable, disable, set, …
               | outcome(METRIC)            better, worse, no_difference or inconclusive
    operator   = <= < >= > == !=            for decision and outcome only == and !=
    limit      = NUMBER[UNIT]               for decision and outcome a word
    UNIT       = ns us µs ms s | B KB MB GB TB KiB MiB GiB TiB, also with /s | k M G | % | x

Times and sizes need a unit unless they are 0 (``gates`` refuses a bare 50, which may be seconds or
milliseconds). Ratios, rates and counts need none. ``%`` and ``x`` are units of ratios:
``ratio(hot.p99) <= 50%``.
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from nginx_tune.documents.decisions import DecisionId, DecisionVerdict
from nginx_tune.documents.verdict import Outcome
from nginx_tune.errors import UsageError

Operand = Literal["candidate", "baseline", "ratio", "predicted", "decision", "outcome"]
Dimension = Literal["time", "bytes", "count", "ratio"]

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}

_UNITS: dict[str, tuple[Dimension, float]] = {
    "ns": ("time", 1e-9),
    "us": ("time", 1e-6),
    "µs": ("time", 1e-6),
    "μs": ("time", 1e-6),  # the Greek letter, as some keyboards give it
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "B": ("bytes", 1.0),
    "KB": ("bytes", 1e3),
    "kB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "TB": ("bytes", 1e12),
    "KiB": ("bytes", 2.0**10),
    "MiB": ("bytes", 2.0**20),
    "GiB": ("bytes", 2.0**30),
    "TiB": ("bytes", 2.0**40),
    "k": ("count", 1e3),
    "M": ("count", 1e6),
    "G": ("count", 1e9),
    "%": ("ratio", 1e-2),
    "x": ("ratio", 1.0),
    "×": ("ratio", 1.0),
}

_OTHER_SPELLINGS = ("μs", "kB", "×")
_MOST_CHARACTERS = 300
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_OPERATOR = re.compile(r"<=|>=|==|!=|<|>")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_UNIT = re.compile(r"[A-Za-zµμ%×]+")
_FUNCTIONS = ("baseline", "ratio", "predicted", "decision", "outcome")
_QUANTITY = re.compile(
    rf"(?:(?:{'|'.join(_FUNCTIONS)})\s*\(\s*){{0,2}}({_NAME.pattern})[\s)]{{0,9}}"
    rf"(?:(?:{_OPERATOR.pattern}).*)?",
    re.DOTALL,
)
"""A quantity with or without its operator and limit; brackets may be missing."""
_WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "decision": ("a verdict such as enable", get_args(DecisionVerdict)),
    "outcome": ("an outcome such as better", get_args(Outcome)),
}
"""Functions compared with a word: the description of the word, and all words."""


@dataclass(frozen=True)
class Expression:
    """A parsed gate or claim."""

    text: str
    source: Operand
    name: str
    """The metric, the decision's id, or the model's name of a predicted quantity."""
    operator: str
    limit: float = math.nan
    word: str = ""
    """The word that a ``decision`` or an ``outcome`` is compared with."""
    dimension: Dimension | None = None
    """The dimension of the limit's unit; None for a bare number."""

    @property
    def metric(self) -> str | None:
        """The metric, which must be known; None for a decision or a prediction."""
        return self.name if self.source not in ("predicted", "decision") else None


def parse_expression(text: str) -> Expression:
    """The expression in ``text``.

    Errors: UsageError with the column and what was expected there.
    """
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"an expression has at most {_MOST_CHARACTERS} characters")
    return _Parser(text).expression()


def units_of(dimension: Dimension) -> list[str]:
    """The units of a dimension, each in one spelling."""
    return [
        unit
        for unit, (own, _) in _UNITS.items()
        if own == dimension and unit not in _OTHER_SPELLINGS
    ]


def subject_of(text: str) -> str:
    """The metric or decision that an expression, or its left side, is about.

    ``ratio(hot.p99) <= 0.5`` is about ``hot.p99``. Other text comes back unchanged.
    """
    found = _QUANTITY.fullmatch(text.strip())
    return found[1] if found else text


class _Parser:
    """A recursive-descent parser of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def expression(self) -> Expression:
        """The whole text as an expression."""
        source, name = self._quantity()
        sign = self._take(_OPERATOR, "one of <= < >= > == !=")
        if source in _WORDS:
            if sign not in ("==", "!="):
                raise self._wrong(f"a {source} is compared with == or !=", len(sign))
            expected, words = _WORDS[source]
            word = self._take(_NAME, expected)
            if word not in words:
                kind = "a verdict" if source == "decision" else "an outcome"
                raise self._wrong(f"not {kind}; one of {', '.join(words)}", len(word))
            self._end()
            return Expression(self.text.strip(), source, name, sign, word=word)
        limit = float(self._take(_NUMBER, "a number"))
        dimension, factor = self._unit()
        if not math.isfinite(limit * factor):
            raise self._wrong("the number is too large")
        self._end()
        return Expression(
            self.text.strip(), source, name, sign, limit=limit * factor, dimension=dimension
        )

    def _quantity(self) -> tuple[Operand, str]:
        name = self._take(_NAME, "a metric such as hot.p99, or ratio(METRIC)")
        if not self._literal("("):
            return "candidate", name
        if name not in _FUNCTIONS:
            raise self._wrong(f"no function '{name}'; one of {', '.join(_FUNCTIONS)}", 1)
        inner = self._take(_NAME, "a decision's id" if name == "decision" else "a metric")
        if name == "decision" and inner not in get_args(DecisionId):
            raise self._wrong(f"no decision '{inner}'", len(inner))
        if name == "predicted" and inner == "ratio" and self._literal("("):
            inner = f"ratio({self._take(_NAME, 'a metric')})"
            self._close()
        self._close()
        source: Operand = name  # type: ignore[assignment]  # one of _FUNCTIONS
        return source, inner

    def _unit(self) -> tuple[Dimension | None, float]:
        start = self.at
        unit = _UNIT.match(self.text, self._skip())
        if unit is None:
            self.at = start
            return None, 1.0
        self.at = unit.end()
        if unit.group() not in _UNITS:
            raise self._wrong(f"no unit '{unit.group()}'", len(unit.group()))
        dimension, factor = _UNITS[unit.group()]
        if dimension == "bytes" and self.text.startswith("/s", self.at):
            self.at += 2
        return dimension, factor

    def _take(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self.text, self._skip())
        if found is None:
            raise self._wrong(f"expected {expected}")
        self.at = found.end()
        return found.group()

    def _literal(self, character: str) -> bool:
        if not self.text.startswith(character, self._skip()):
            return False
        self.at += 1
        return True

    def _close(self) -> None:
        if not self._literal(")"):
            raise self._wrong("expected ')'")

    def _end(self) -> None:
        if self._skip() < len(self.text):
            raise self._wrong("expected the end")

    def _skip(self) -> int:
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.at

    def _wrong(self, what: str, back: int = 0) -> UsageError:
        column = self.at - back + 1
        return UsageError(
            f"'{self.text.strip()}', column {column}: {what}",
            hint="for example 'ratio(hot.p99) <= 0.5' or 'hot.truncated == 0'",
        )
