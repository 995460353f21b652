"""Options that several commands have, added together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[Any], Any]


def option_group(options: Sequence[Option]) -> Callable[[F], F]:
    """The decorator that adds these options to a command, in their order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add
