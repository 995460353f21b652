"""``file-limits``: ``worker_rlimit_nofile`` against the hard limit.

A request holds a descriptor for the client and one for a file or an upstream, and the open file
cache holds its own. Before it serves anybody a worker has all log files open, those of every
virtual host, and all listeners, of all workers with ``reuseport``. When they run out open() fails
(the client gets status 500) and connections wait in the accept queue; a worker that has none left
at its start serves nobody (epoll_create() failed, 24: Too many open files). The soft limit that
nginx is started with is often 1024; nginx raises it up to the hard limit by itself, above that only
with CAP_SYS_RESOURCE.

``worker_rlimit_nofile`` sets the limit, whatever it was: what is written is the need, and nothing
where the limit that nginx is started with is enough. More than the hard limit would be refused
to a master without CAP_SYS_RESOURCE (setrlimit() fails with EPERM, and workers go on with the old
limit). The limits of who read the facts, a shell's, are not nginx's: where theirs is below the need
nothing is written, which might be lower than what workers have.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import FACTS_COMMAND, setting
from nginx_tune.decide.descriptors import (
    BOUND_BY_LIMIT,
    RESERVE,
    USUAL_SOFT_LIMIT,
    DescriptorPlan,
    limit_for,
    plan_descriptors,
    suffices,
)
from nginx_tune.decide.open_file_cache import open_files
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence, HostSetting
from nginx_tune.documents.facts import Limits

ID: Final = "file-limits"
ENOUGH = 65_536
"""A hard limit that no decision here runs into."""
NEEDED = "descriptors a worker needs"
"""The name of that number in the evidence."""


def decide_file_limits(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    d = plan_descriptors(s)
    held_open = open_files(s)
    needed = d.kept + held_open
    wanted = limit_for(needed)
    nofile = min(wanted, d.ceiling)
    limits = s.facts.limits
    evidence = known(
        Quantity("worker_connections", d.connections, "", "assumed"),
        Quantity(NEEDED, needed, "descriptors", "assumed"),
        Quantity("limits.nofile_soft", d.soft, "descriptors"),
        Quantity("limits.nofile_hard", limits.nofile_hard, "descriptors"),
        Quantity("limits.nr_open", limits.nr_open, "descriptors"),
    )
    if d.soft is not None and suffices(d.soft, needed):
        return Decision(
            id=ID,
            verdict="keep",
            summary=f"The soft limit of {d.soft} descriptors already covers {needed}.",
            evidence=evidence,
            confidence="medium",
            flips_when=[f"nginx is started with a soft limit below {wanted}"],
        )
    reason = _reason(d, held_open)
    short = needed > d.ceiling or d.bound_by == BOUND_BY_LIMIT
    if short and d.soft is None and limits.nofile_hard is not None:
        return _left(d, reason, wanted, evidence)
    soft = d.soft if d.soft is not None else USUAL_SOFT_LIMIT
    all_clients = int(d.needed * d.descriptors_per_connection) + d.at_start
    enough = max(wanted, limit_for(all_clients), ENOUGH)
    return Decision(
        id=ID,
        verdict="raise" if nofile > soft else "set",
        summary=f"{nofile} descriptors a worker: {reason}"
        + (f"; {d.ceiling_fact} of {d.ceiling} allows no more." if short else "."),
        settings=[setting(ID, "main", "worker_rlimit_nofile", str(nofile), reason=reason)],
        host_settings=_raised(limits, enough, reason) if short else [],
        evidence=evidence,
        confidence="medium" if d.soft is not None else "low",
        flips_when=[f"the soft limit nginx is started with is {wanted} or more"],
        risks=[
            (
                "a master without CAP_SYS_RESOURCE cannot pass its hard limit; it logs an alert "
                "and goes on with the old limit"
            )
        ],
        next_command=f"systemctl edit nginx  # LimitNOFILE={enough}" if short else "",
    )


def _reason(d: DescriptorPlan, held_open: int) -> str:
    text = f"{d.connections} connections with {d.descriptors_per_connection:.0f} descriptors each"
    if d.at_start > RESERVE:
        text += f", {d.at_start} logs, listeners and channels"
    return f"{text}, {held_open} open files" if held_open else text


def _left(d: DescriptorPlan, reason: str, wanted: int, evidence: list[Evidence]) -> Decision:
    """Nothing is written: it might be lower than what workers have, and would not be enough."""
    return Decision(
        id=ID,
        verdict="not_enough_evidence",
        summary=f"Left as it is: {wanted} descriptors a worker are wanted ({reason}), and only the "
        f"limit of {d.ceiling} of whoever read the facts is known. A line in nginx.conf would "
        "hold whatever nginx is started with, which may be more.",
        evidence=evidence,
        confidence="low",
        flips_when=[f"the hard limit nginx is started with is {wanted} or more"],
        next_command=FACTS_COMMAND,
    )


def _raised(limits: Limits, enough: int, reason: str) -> list[HostSetting]:
    """The unit's limit and the kernel's, each where it is lower."""
    asked = []
    if limits.nofile_hard is None or limits.nofile_hard < enough:
        asked.append(
            HostSetting(
                kind="unit",
                name="LimitNOFILE",
                value=str(enough),
                before="" if limits.nofile_hard is None else str(limits.nofile_hard),
                reason=reason,
                decision=ID,
            )
        )
    if limits.nr_open is not None and limits.nr_open < enough:
        asked.append(
            HostSetting(
                kind="sysctl",
                name="fs.nr_open",
                value=str(enough),
                before=str(limits.nr_open),
                reason="no limit of a process can be higher",
                decision=ID,
            )
        )
    return asked
