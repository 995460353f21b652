"""CPUs that nginx can use, and the workers that are wanted for them."""

from __future__ import annotations

import math

from nginx_tune.decide.quantity import Quantity
from nginx_tune.documents.facts import Facts

MAX_WORKERS = 512


def effective_cpus(facts: Facts) -> Quantity:
    """CPUs' worth of time that nginx can use."""
    cpu = facts.cpu
    value = cpu.effective or cpu.online
    return Quantity("cpu.effective" if cpu.effective else "cpu.online", value, "CPUs")


def wanted_workers(facts: Facts) -> int:
    """Worker processes that we would configure: one for each of those CPUs."""
    cpus = effective_cpus(facts).value
    return 1 if cpus is None else max(1, min(MAX_WORKERS, math.ceil(cpus)))
