"""Objectives of a workload, and their effect on the balance between throughput and latency.

A larger read transfers more bytes per seek, but other requests wait until it is finished. Without
objectives the decisions balance both; an objective shifts the balance to throughput or latency.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nginx_tune.decide.model.answers import AnswerGoal, Statistic
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.workload import Objective

WAIT_SHARE = 0.1
"""Assumed share of a response-time limit that may be spent waiting for one read of another
response; its own reads, other waits and the network take the rest."""
_EXPRESSION = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*(<=?|>=?)\s*([0-9.]+)\s*(us|µs|ms|s|)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_OF_TIME = {"mean": None, "p50": 0.5, "p90": 0.1, "p99": 0.01, "p999": 0.001, "max": 0.0}
"""Share of responses that may take longer, by statistic."""
_OF_QUANTITY = frozenset({"bytes_per_second", "requests_per_second"})


class Aim(NamedTuple):
    """The strictest limit on time among the objectives, or a demand for throughput alone."""

    limit_seconds: float | None = None
    """The lowest limit on response times; None if there is no limit."""
    limit_share: float | None = None
    """Share of responses that may exceed the limit; None if the limit is on the mean."""
    limit_text: str = ""
    """The objective that sets the limit."""
    only_quantity: bool = False
    """True if objectives demand bytes or requests per second and no objective limits a time."""
    quantity_text: str = ""

    @property
    def wait_seconds(self) -> float | None:
        """Longest time in seconds that one read may block a loop or a thread."""
        return None if self.limit_seconds is None else WAIT_SHARE * self.limit_seconds

    @property
    def text(self) -> str:
        """The decisive objective; empty if there is none."""
        return self.limit_text or self.quantity_text

    @property
    def evidence(self) -> list[Evidence]:
        """The decisive objective as evidence; empty if there is none."""
        fact = "workload.objectives"
        return [Evidence(fact=fact, value=self.text, provenance="declared")] * bool(self.text)


class TimeGoal(NamedTuple):
    """An objective that bounds the times of whole answers."""

    goal: AnswerGoal
    objective: Objective


_OF_ANSWERS: Mapping[str, Statistic] = {
    "mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p999",
}  # fmt: skip
FROM_MEMORY = ("hot", "memory")
"""Request classes that read no disk; all others may request any file."""


def time_goal(objectives: Sequence[Objective]) -> TimeGoal | None:
    """The first objective that bounds the times of whole answers; None if there is none."""
    for objective in objectives:
        found = _EXPRESSION.fullmatch(objective.expression.strip())
        if found is None or not found[2].startswith("<") or found[4] not in _SECONDS:
            continue
        of_class, _, name = found[1].rpartition(".")
        seconds = float(found[3]) * _SECONDS[found[4]]
        if name in _OF_ANSWERS and "." not in of_class and seconds > 0:
            hits = of_class in FROM_MEMORY
            return TimeGoal(AnswerGoal(_OF_ANSWERS[name], seconds, hits=hits), objective)
    return None


def aim_of(objectives: Sequence[Objective]) -> Aim:
    """The aim of some objectives; those on errors, counts and ratios are ignored."""
    limits: list[Aim] = []
    quantity = ""
    for objective in objectives:
        found = _EXPRESSION.match(objective.expression)
        if found is None:
            continue
        statistic = found[1].rpartition(".")[2]
        text = " ".join(objective.expression.split())
        is_upper = found[2].startswith("<")
        if statistic in _OF_TIME and is_upper and found[4] in _SECONDS:
            seconds = float(found[3]) * _SECONDS[found[4]]
            limits.append(Aim(seconds, _OF_TIME[statistic], text))
        elif statistic in _OF_QUANTITY and not is_upper:
            quantity = quantity or text
    if not limits:
        return Aim(only_quantity=bool(quantity), quantity_text=quantity)
    return min(limits, key=lambda aim: aim.limit_seconds or 0.0)
