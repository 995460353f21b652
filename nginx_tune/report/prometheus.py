"""Metrics in Prometheus' text format, for node_exporter's textfile collector.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/: a HELP and a TYPE line per
        family before its samples, which stand together; no time stamps; a final newline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MetricSample:
    """One value with its labels; ``suffix`` as in ``_bucket`` or ``_sum``."""

    value: float
    labels: Mapping[str, str] | None = None
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """The samples of one metric. Base units in the name, ``_total`` on counters."""

    name: str
    kind: Literal["gauge", "counter", "histogram", "summary"]
    help: str
    samples: tuple[MetricSample, ...]


def render_exposition(families: Iterable[Family]) -> bytes:
    """The families that have samples, in their order."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {_help(family.help)}"]
        lines += [f"# TYPE {family.name} {family.kind}"]
        lines += [
            f"{family.name}{one.suffix}{_labels(one.labels)} {_value(one.value)}"
            for one in family.samples
        ]
    return "".join(f"{line}\n" for line in lines).encode()


def _labels(labels: Mapping[str, str] | None) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_label(value)}"' for name, value in labels.items()) + "}"


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _label(text: str) -> str:
    """A label value; what is no Unicode (a file name of other bytes) is shown as escapes."""
    whole = text.encode(errors="backslashreplace").decode()
    return whole.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _value(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
