"""The probe's progress lines as steps of a run, or of one block of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.progress import SHARE, Glance, Step
from nginx_tune.report.measurement import progress_text


def run_step(line: Mapping[str, Any], plan: LoadPlan, head: str = "") -> Step:
    """A second of a run that stands alone: ``head`` says which run it is."""
    text = progress_text(
        line, warmup_seconds=plan.warmup_seconds, duration_seconds=plan.duration_seconds
    )
    whole = _seconds(plan)
    done = min(line["second"], whole)
    return Step(head + text, done=done, total=whole, unit="s", classes=_classes(line))


def block_step(line: Mapping[str, Any], plan: LoadPlan, arm: str) -> Step:
    """A second of a block, as its share of the block."""
    whole = _seconds(plan)
    return Step(
        f"{arm}, {line['second']} of {whole:g} s",
        done=min(line["second"] / whole, 1.0) if whole else 0.0,
        unit=SHARE,
        arm=arm,
        classes=_classes(line),
        live=True,
    )


def _seconds(plan: LoadPlan) -> float:
    """Warm-up and measured time."""
    return plan.warmup_seconds + plan.duration_seconds


def _classes(line: Mapping[str, Any]) -> dict[str, Glance]:
    return {
        str(name): Glance(item["requests"], item.get("p99"), item["errors"])
        for name, item in line["classes"].items()
    }
