"""``file-limits``: ``worker_rlimit_nofile`` against the hard limit (NGINX-FACTS 12.3-12.5)."""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import setting
from nginx_tune.decide.descriptors import USUAL_SOFT_LIMIT, plan_descriptors
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision

ID: Final = "file-limits"


def decide_file_limits(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    d = plan_descriptors(s)
    limits = s.facts.limits
    evidence = known(
        Quantity("worker_connections", d.connections, "", "assumed"),
        Quantity("descriptors a worker needs", d.wanted, "descriptors", "assumed"),
        Quantity("limits.nofile_soft", limits.nofile_soft, "descriptors"),
        Quantity("limits.nofile_hard", limits.nofile_hard, "descriptors"),
        Quantity("limits.nr_open", limits.nr_open, "descriptors"),
    )
    if d.soft is not None and d.soft >= d.wanted:
        return Decision(
            id=ID,
            verdict="keep",
            summary=f"The soft limit of {d.soft} descriptors already covers {d.wanted}.",
            evidence=evidence,
            confidence="medium",
            flips_when=[f"nginx is started with a soft limit below {d.wanted}"],
        )
    reason = f"{d.connections} connections with {d.descriptors_per_connection:.0f} descriptors each"
    if d.open_files:
        reason += f", {d.open_files} open files"
    short = d.wanted > d.ceiling
    soft = d.soft if d.soft is not None else USUAL_SOFT_LIMIT
    return Decision(
        id=ID,
        verdict="raise" if d.nofile > soft else "set",
        summary=f"{d.nofile} descriptors a worker: {reason}"
        + (f"; {d.ceiling_fact} of {d.ceiling} allows no more." if short else "."),
        settings=[setting(ID, "main", "worker_rlimit_nofile", str(d.nofile), reason=reason)],
        evidence=evidence,
        confidence="medium" if d.soft is not None else "low",
        flips_when=[f"the soft limit nginx is started with is {d.wanted} or more"],
        risks=[
            (
                "a master without CAP_SYS_RESOURCE cannot pass its hard limit; it logs an alert "
                "and goes on with the old limit"
            )
        ],
        next_command="systemctl edit nginx, LimitNOFILE=" + str(d.wanted) if short else "",
    )
