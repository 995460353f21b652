"""``workers``: ``worker_processes`` where containers lie about CPUs.

One worker for each CPU that can really be used. ``auto`` counts the CPUs that are online: right
on a host of one's own, too many under a cgroup quota or, with glibc, under a cpuset: the workers
then share few CPUs and hold each other up. No ``worker_cpu_affinity``: it pins the threads of a
pool to the one CPU of their loop, and the scheduler does well without.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nginx_tune.decide.answer import setting
from nginx_tune.decide.hindrances import THROTTLED_RATIO, throttled_share
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.usable_cpus import MAX_WORKERS, effective_cpus, wanted_workers
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Cpu
from nginx_tune.documents.units import percent_text

ID: Final = "workers"


def decide_workers(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    cpu = s.facts.cpu
    wanted = wanted_workers(s.facts)
    evidence = known(
        Quantity("cpu.online", cpu.online, "CPUs"),
        Quantity("cpu.cpuset", cpu.cpuset, "CPUs"),
        Quantity("cpu.quota_cpus", cpu.quota_cpus, "CPUs"),
        Quantity("cpu.effective", cpu.effective, "CPUs"),
        Quantity("periods held back by the quota", throttled_share(cpu)),
        Quantity("cpu.steal_ratio", cpu.steal_ratio or None),
    )
    if cpu.effective is not None and cpu.online is not None and wanted < cpu.online:
        which = "quota" if cpu.quota_cpus is not None else "cpuset"
        reason = f"{cpu.effective:g} of {cpu.online} CPUs are usable ({which}); auto counts all"
        if wanted == MAX_WORKERS < cpu.effective:
            reason = (
                f"the most that is set here, for {cpu.effective:g} usable CPUs; auto counts all"
            )
        return Decision(
            id=ID,
            verdict="set",
            summary=f"{wanted}: {reason}.",
            settings=[setting(ID, "main", "worker_processes", str(wanted), reason=reason)],
            evidence=evidence,
            confidence="high",
            flips_when=["the container's CPU limit changes"],
            risks=[
                "a fixed number does not follow a changed limit",
                *_held_back(s.facts.cpu),
                *_affinity(plan),
            ],
        )
    if cpu.effective is None and cpu.online is None:
        return Decision(
            id=ID,
            verdict="set",
            summary="auto: the number of CPUs is not known; nginx's default would be one worker.",
            settings=[
                setting(ID, "main", "worker_processes", "auto", reason="one a CPU; default is 1")
            ],
            confidence="low",
            flips_when=["nginx runs in a container with a CPU limit"],
            next_command="nginx-tune inspect -f json -o facts.json",
        )
    reason = f"one for each of {effective_cpus(s.facts).value:g} CPUs; nginx's default is 1"
    automatic = setting(ID, "main", "worker_processes", "auto", reason=reason)
    if cpu.effective is not None:  # auto would only follow CPUs that are added
        automatic = replace(automatic, same=[f"{cpu.effective:g}"])
    return Decision(
        id=ID,
        verdict="set",
        summary=f"auto: {reason}.",
        settings=[automatic],
        evidence=evidence,
        confidence="high" if cpu.effective is not None else "medium",
        flips_when=["nginx runs under a CPU limit below the CPUs online"],
        risks=[*_held_back(cpu), *_affinity(plan)],
    )


def _held_back(cpu: Cpu) -> list[str]:
    """A quota is spent by all that runs at once: threads and other processes of the group too."""
    share = throttled_share(cpu)
    if cpu.throttled is None or share is None or share < THROTTLED_RATIO:
        return []
    held = f"the quota of {cpu.throttled.directory} held its group back in {percent_text(share, 2)}"
    return [f"{held} of the periods: fewer workers add no CPU time, a higher limit does"]


def _affinity(plan: PoolPlan) -> list[str]:
    """Threads are made after the worker was pinned, and inherit that."""
    if not plan.on:
        return []
    return [
        "worker_cpu_affinity would pin every thread of a pool to the CPU of its loop: leave it out"
    ]
