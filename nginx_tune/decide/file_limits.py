"""``file-limits``: ``worker_rlimit_nofile`` against the hard limit (NGINX-FACTS 12.3-12.5).

A request holds a descriptor for the client and one for a file or an upstream, and the open file
cache holds its own. When they run out open() fails (the client gets status 500) and connections
wait in the accept queue. The soft limit that nginx is started with is often 1024; nginx raises
it up to the hard limit by itself, above that only with CAP_SYS_RESOURCE.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import setting
from nginx_tune.decide.descriptors import BOUND_BY_LIMIT, USUAL_SOFT_LIMIT, plan_descriptors
from nginx_tune.decide.open_file_cache import open_files
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, HostSetting
from nginx_tune.documents.facts import Limits

ID: Final = "file-limits"
ENOUGH = 65_536
"""A hard limit that no decision here runs into."""
_STEP = 1024


def decide_file_limits(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    d = plan_descriptors(s)
    held_open = open_files(s)
    wanted = -(-(d.kept + held_open) // _STEP) * _STEP
    nofile = min(wanted, d.ceiling)
    limits = s.facts.limits
    evidence = known(
        Quantity("worker_connections", d.connections, "", "assumed"),
        Quantity("descriptors a worker needs", wanted, "descriptors", "assumed"),
        Quantity("limits.nofile_soft", d.soft, "descriptors"),
        Quantity("limits.nofile_hard", limits.nofile_hard, "descriptors"),
        Quantity("limits.nr_open", limits.nr_open, "descriptors"),
    )
    if d.soft is not None and d.soft >= wanted:
        return Decision(
            id=ID,
            verdict="keep",
            summary=f"The soft limit of {d.soft} descriptors already covers {wanted}.",
            evidence=evidence,
            confidence="medium",
            flips_when=[f"nginx is started with a soft limit below {wanted}"],
        )
    reason = f"{d.connections} connections with {d.descriptors_per_connection:.0f} descriptors each"
    if held_open:
        reason += f", {held_open} open files"
    short = wanted > d.ceiling or d.bound_by == BOUND_BY_LIMIT
    soft = d.soft if d.soft is not None else USUAL_SOFT_LIMIT
    return Decision(
        id=ID,
        verdict="raise" if nofile > soft else "set",
        summary=f"{nofile} descriptors a worker: {reason}"
        + (f"; {d.ceiling_fact} of {d.ceiling} allows no more." if short else "."),
        settings=[setting(ID, "main", "worker_rlimit_nofile", str(nofile), reason=reason)],
        host_settings=_raised(limits, reason) if short else [],
        evidence=evidence,
        confidence="medium" if d.soft is not None else "low",
        flips_when=[f"the soft limit nginx is started with is {wanted} or more"],
        risks=[
            (
                "a master without CAP_SYS_RESOURCE cannot pass its hard limit; it logs an alert "
                "and goes on with the old limit"
            )
        ],
        next_command=f"systemctl edit nginx  # LimitNOFILE={ENOUGH}" if short else "",
    )


def _raised(limits: Limits, reason: str) -> list[HostSetting]:
    """The unit's limit, and the kernel's where that is lower."""
    asked = [
        HostSetting(
            kind="unit",
            name="LimitNOFILE",
            value=str(ENOUGH),
            before="" if limits.nofile_hard is None else str(limits.nofile_hard),
            reason=reason,
            decision=ID,
        )
    ]
    if limits.nr_open is not None and limits.nr_open < ENOUGH:
        asked.append(
            HostSetting(
                kind="sysctl",
                name="fs.nr_open",
                value=str(ENOUGH),
                before=str(limits.nr_open),
                reason="no limit of a process can be higher",
                decision=ID,
            )
        )
    return asked
