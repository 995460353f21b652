"""A number with its name, unit and origin, ready to stand as evidence."""

from __future__ import annotations

from dataclasses import dataclass

from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.units import bytes_text, number_text, seconds_text


@dataclass(frozen=True)
class Quantity:
    """One number that a decision stands on."""

    fact: str
    value: float | None
    unit: str = ""
    provenance: Provenance = "measured"

    def evidence(self) -> Evidence:
        """The number as evidence; whole numbers without a fraction."""
        value: float | int | None = self.value
        if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
            value = int(value)
        elif isinstance(value, float):
            value = float(f"{value:.6g}")
        return Evidence(fact=self.fact, value=value, unit=self.unit, provenance=self.provenance)

    @property
    def text(self) -> str:
        """The number as people read it."""
        if self.unit == "bytes":
            return bytes_text(self.value)
        if self.unit == "s":
            return seconds_text(self.value)
        return f"{number_text(self.value)} {self.unit}".strip()


def known(*quantities: Quantity) -> list[Evidence]:
    """Evidence of those whose value is known."""
    return [q.evidence() for q in quantities if q.value is not None]
