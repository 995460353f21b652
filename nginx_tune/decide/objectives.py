"""The aim of a site: what its objectives ask of the choices that trade one answer for others.

A larger piece moves more bytes for each start of a disk, and whoever comes meanwhile waits for all
of it. Without objectives the choices keep a middle; an objective moves them to its side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.documents.workload import Objective

WAIT_SHARE = 0.1
"""Assumed: share of what an answer may take that it may wait behind one piece of another: its own
reads, the way to the client and other pieces take the rest."""
_EXPRESSION = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*(<=?|>=?)\s*([0-9.]+)\s*(us|µs|ms|s|)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_OF_TIME = {"mean": None, "p50": 0.5, "p90": 0.1, "p99": 0.01, "p999": 0.001, "max": 0.0}
"""Share of the answers that may take longer, by statistic."""
_OF_QUANTITY = frozenset({"bytes_per_second", "requests_per_second"})


class Aim(NamedTuple):
    """What the objectives of a workload ask for."""

    limit_seconds: float | None = None
    """The least time that an answer may take; null where none is bounded."""
    limit_share: float | None = None
    """Share of the answers that may take longer; null where it bounds the mean."""
    limit_text: str = ""
    """That objective."""
    only_quantity: bool = False
    """True if bytes or requests a second are asked for, and no time is."""
    quantity_text: str = ""

    @property
    def wait_seconds(self) -> float | None:
        """The longest that one piece of another answer may hold a loop or a thread."""
        return None if self.limit_seconds is None else WAIT_SHARE * self.limit_seconds

    @property
    def text(self) -> str:
        """The objective that decides; empty for none."""
        return self.limit_text or self.quantity_text


def aim_of(objectives: Sequence[Objective]) -> Aim:
    """The aim in some objectives; those of errors, counts and ratios bear on no choice."""
    limits: list[Aim] = []
    quantity = ""
    for one in objectives:
        found = _EXPRESSION.match(one.expression)
        if found is None:
            continue
        statistic = found[1].rpartition(".")[2]
        text = " ".join(one.expression.split())
        is_upper = found[2].startswith("<")
        if statistic in _OF_TIME and is_upper and found[4] in _SECONDS:
            seconds = float(found[3]) * _SECONDS[found[4]]
            limits.append(Aim(seconds, _OF_TIME[statistic], text))
        elif statistic in _OF_QUANTITY and not is_upper:
            quantity = quantity or text
    if not limits:
        return Aim(only_quantity=bool(quantity), quantity_text=quantity)
    return min(limits, key=lambda one: one.limit_seconds or 0.0)
