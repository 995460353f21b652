"""Progress of a long piece of work: lines of text that also know the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

Progress = Callable[[str], None]
"""Hears what is going on: plain text, or a :class:`Step`."""

SHARE = "share"
"""The unit of a step inside of a run: ``done`` is the share of that run."""


class Glance(NamedTuple):
    """A request class at a moment of a run."""

    per_second: float
    """Good responses."""
    p99_seconds: float | None
    errors: int
    """So far in this run."""


class Step(str):
    """A line that tells how much of the work is done; where figures are not used it is that line.

    ``done`` and ``total`` count ``unit``; ``total`` is None where it is not known in advance.
    ``live`` steps are for a display that replaces itself: as lines they would be too many.
    """

    __slots__ = ("classes", "done", "live", "overflows", "total", "unit", "variant")
    done: float
    total: float | None
    unit: str
    variant: str
    classes: dict[str, Glance]
    overflows: int
    live: bool

    def __new__(  # one argument a figure
        cls,
        text: str,
        *,
        done: float,
        total: float | None = None,
        unit: str,
        variant: str = "",
        classes: Mapping[str, Sequence[Any]] | None = None,
        overflows: int = 0,
        live: bool = False,
    ) -> Self:
        """The line with its figures; ``classes`` may hold glances as they came through JSON."""
        step = super().__new__(cls, text)
        step.done, step.total, step.unit, step.variant = done, total, unit, variant
        step.classes = {name: Glance(*one) for name, one in (classes or {}).items()}
        step.overflows, step.live = overflows, live
        return step

    def figures(self) -> dict[str, Any]:
        """All but the text, for JSON: ``Step(text, **figures)`` is the step again."""
        return {name: getattr(self, name) for name in self.__slots__}


def part_of(progress: Progress, before: float, total: float | None) -> Progress:
    """``progress`` for a part of a longer work: steps begin after ``before`` of ``total``."""

    def tell(text: str) -> None:
        if isinstance(text, Step) and text.unit != SHARE:
            figures = text.figures()
            figures["done"] += before
            if total is not None:
                figures["total"] = max(total, figures["done"])
            text = Step(text, **figures)
        progress(text)

    return tell
