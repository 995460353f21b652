"""What is not known and why: the value ``Missing`` and the gaps that become ``unknown[]``.

Parsers return ``Missing(reason)`` in place of a value. Readers turn it into null and keep the
reason in ``Gaps``, by JSON pointer relative to the part they return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

from nginx_tune.host.door import HostReadError

T = TypeVar("T")
P = ParamSpec("P")

Gaps = dict[str, str]
"""Reason by JSON pointer, relative to the part it came with: ``{"/total_bytes": "…"}``."""


class Missing(NamedTuple):
    """In place of a value that could not be read."""

    reason: str


def attempt(ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Missing:
    """The answer to ``ask(…)``, or why the host could not give it."""
    try:
        return ask(*args, **kwargs)
    except HostReadError as error:
        return Missing(str(error))


def known(value: T | Missing, gaps: Gaps, pointer: str) -> T | None:
    """The value; for a missing one null, its reason kept under ``pointer``."""
    if isinstance(value, Missing):
        gaps[pointer] = value.reason
        return None
    return value


def under(prefix: str, gaps: Gaps) -> Gaps:
    """The same gaps seen from further up: each pointer behind ``prefix``."""
    return {prefix + pointer: reason for pointer, reason in gaps.items()}
