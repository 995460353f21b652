"""Numbers and times of options: what click's own types let pass is refused here.

Python reads ``nan``, ``1e400``, ``1_000`` and the digits of every script as numbers. A comparison
with NaN is false, so that it is inside any range.
"""

from __future__ import annotations

import re
from typing import Any

import click

from nginx_tune.cli.options import parse_duration
from nginx_tune.errors import UsageError

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][+-]?[0-9]{1,2})?")


class Whole(click.IntRange):
    """A whole number of at most eighteen digits, in a range."""

    name = "n"

    def _describe_range(self) -> str:
        """What help says of it; click has no words for a range without bounds."""
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Errors: BadParameter."""
        if not _WHOLE.fullmatch(str(value).strip()):
            self.fail(f"'{value}' is no whole number, or too long a one", param, ctx)
        return super().convert(value, param, ctx)


class FiniteNumber(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Errors: BadParameter."""
        if not _NUMBER.fullmatch(str(value).strip()):
            self.fail(f"'{value}' is no number, or too long a one", param, ctx)
        return super().convert(value, param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer click alone
    """A time such as 10s, as its text; or one of a few words."""

    name = "time"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Errors: BadParameter."""
        text = str(value)
        if text not in self._words:
            try:
                parse_duration(text)
            except UsageError as error:
                self.fail(f"{error.message} ({error.hint})", param, ctx)
        return text


DURATION = Duration()
