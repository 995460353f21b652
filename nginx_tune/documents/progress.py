"""The progress of long work: lines of text with figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

Progress = Callable[[str], None]
"""A function that gets plain text, or a :class:`Step`."""

SHARE = "share"
"""The unit of a step within a run: ``done`` is the completed share of the run."""


class Glance(NamedTuple):
    """The figures of a request class at one moment of a run."""

    per_second: float
    """Successful responses per second."""
    p99_seconds: float | None
    errors: int
    """Errors so far in this run."""


class Step(str):
    """A line of text with the figures of the completed work; usable like any other string.

    ``done`` and ``total`` count ``unit``; ``total`` is None if unknown in advance. Steps with
    ``live`` come too often to be printed as lines: only a display that updates in place uses them.
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
        """``classes`` may be glances from JSON."""
        step = super().__new__(cls, text)
        step.done, step.total, step.unit, step.variant = done, total, unit, variant
        step.classes = {name: Glance(*glance) for name, glance in (classes or {}).items()}
        step.overflows, step.live = overflows, live
        return step

    def figures(self) -> dict[str, Any]:
        """The figures for JSON: ``Step(text, **figures)`` is the step again."""
        return {name: getattr(self, name) for name in self.__slots__}


def part_of(progress: Progress, before: float, total: float | None) -> Progress:
    """``progress`` for a part of longer work, which begins when ``before`` of ``total`` is done."""

    def tell(text: str) -> None:
        if isinstance(text, Step) and text.unit != SHARE:
            figures = text.figures()
            figures["done"] += before
            if total is not None:
                figures["total"] = max(total, figures["done"])
            text = Step(text, **figures)
        progress(text)

    return tell
