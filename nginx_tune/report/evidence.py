"""Evidence as people read it."""

from __future__ import annotations

from nginx_tune.documents.decisions import Evidence
from nginx_tune.report.text import bytes_text, number_text


def evidence_text(evidence: Evidence) -> str:
    """``fact = value``, in units that are easy to read."""
    value = evidence.value
    if evidence.unit == "bytes" and isinstance(value, int | float):
        shown = bytes_text(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        shown = str(value)
    else:
        shown = f"{number_text(value)} {evidence.unit}".rstrip()
    return f"{evidence.fact} = {shown}"
