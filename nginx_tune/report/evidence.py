"""Evidence as people read it."""

from __future__ import annotations

from nginx_tune.documents.decisions import Evidence
from nginx_tune.report.text import bytes_text, number_text, seconds_text


def evidence_text(evidence: Evidence) -> str:
    """``fact = value``, in units that are easy to read."""
    return f"{evidence.fact} = {value_text(evidence)}"


def value_text(evidence: Evidence) -> str:
    """The value alone; "not known" where there is none."""
    value = evidence.value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, str):
        return value or "not known"
    return amount_text(float(value), evidence.unit)


def amount_text(value: float, unit: str) -> str:
    """A number in a unit of the documents."""
    if unit in ("bytes", "bytes/s"):
        return bytes_text(value) + unit.removeprefix("bytes")
    if unit == "s":
        return seconds_text(value)
    return f"{number_text(value)} {unit}".strip()
