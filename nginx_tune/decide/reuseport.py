"""``reuseport``: a listen queue for each worker, both sides of the trade (B1-B7)."""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import not_applicable, setting, validate_command
from nginx_tune.decide.model_accept import own_queue_wait, shared_queue_wait
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence, Predicted

ID: Final = "reuseport"

CONTENDED_PER_SECOND = 5_000.0
"""New connections a second and worker at which workers contend for one listen queue. Assumed:
nginx's own figures for the option (1.9.1) were taken on 36 workers at full speed."""
TOLERABLE_WAIT_SECONDS = 1e-3
"""Added mean wait that an even spread may cost."""
MOST_BLOCKED = 0.05


def decide_reuseport(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    ruled_out = _ruled_out(s, plan)
    if ruled_out is not None:
        return ruled_out
    rate, connections = s.rate, s.connections_per_second
    if rate.value is None or connections.value is None:
        return Decision(
            id=ID,
            verdict="not_enough_evidence",
            summary="Left off, as nginx has it: the rate of new connections is not known, and with "
            "a queue for each worker a stalled one holds its share of new clients.",
            evidence=known(Quantity("workers", s.workers)),
            confidence="low",
            flips_when=[
                f"more than {CONTENDED_PER_SECOND:.0f} new connections a second for each worker"
            ],
            next_command="nginx-tune recommend --workload workload.json",
        )
    waits = _waits(s, rate.value)
    own, shared = (p.expected for p in waits)
    per_worker = connections.value / s.workers
    evidence = [
        *known(rate, connections, Quantity("workers", s.workers)),
        Evidence(fact="nginx.version", value=s.build.text),
    ]
    flips = [
        (
            f"new connections a second and worker cross {CONTENDED_PER_SECOND:.0f}; you have "
            f"{per_worker:.4g}"
        )
    ]
    if per_worker > CONTENDED_PER_SECOND and own - shared < TOLERABLE_WAIT_SECONDS:
        return _enable(s, per_worker, evidence, waits, flips)
    why = (
        "connections are too few for the workers to contend for one queue"
        if per_worker <= CONTENDED_PER_SECOND
        else "at this load queues of their own would make clients wait longer"
    )
    return Decision(
        id=ID,
        verdict="keep",
        summary=f"Left off: {why}, and one queue never waits for a stalled worker.",
        evidence=evidence,
        predicted=waits,
        confidence="medium" if rate.provenance != "assumed" else "low",
        flips_when=flips,
        next_command=validate_command(s),
    )


def _enable(
    s: Situation,
    per_worker: float,
    evidence: list[Evidence],
    waits: list[Predicted],
    flips: list[str],
) -> Decision:
    risks = ["a reload with fewer workers resets connections that wait in a closed queue (B6)"]
    if s.facts.kernel.sysctls.get("net.ipv4.tcp_migrate_req") == "1":
        risks = []
    if not s.build.at_least(1, 13, 4):
        risks.append(f"with nginx {s.build.text} a mere nginx -t can reset live connections")
    if not s.build.at_least(1, 15, 2):
        risks.append("before 1.15.2 it is ignored where worker_processes comes after listen")
    reason = f"{per_worker:.0f} new connections a second and worker contend for one queue"
    return Decision(
        id=ID,
        verdict="enable",
        summary=f"On: {reason}.",
        settings=[setting(ID, "server", "listen", "reuseport", reason=reason)],
        evidence=evidence,
        predicted=waits,
        confidence="low",
        flips_when=flips,
        risks=risks,
        next_command="sysctl net.ipv4.tcp_migrate_req=1" if risks else "",
    )


def _ruled_out(s: Situation, plan: PoolPlan) -> Decision | None:
    if s.workers == 1 and s.effective_cpus.value is not None:
        return not_applicable(ID, "One worker has one queue either way.", flips="more workers")
    if not s.build.at_least(1, 9, 1):
        return not_applicable(
            ID, f"nginx {s.build.text} has no reuseport.", flips="nginx is 1.9.1 or newer"
        )
    if s.is_freebsd:
        return not_applicable(ID, "FreeBSD's SO_REUSEPORT does not balance between processes.")
    blocked = s.prediction.blocked_ratio if s.prediction and not plan.on else 0.0
    if blocked > MOST_BLOCKED:
        return Decision(
            id=ID,
            verdict="disable",
            summary=f"Off: cold reads block each loop {blocked:.0%} of the time, and a queue of "
            "its own would wait behind that.",
            evidence=known(
                Quantity("share of time a loop is blocked (model)", blocked, "", "assumed")
            ),
            confidence="medium",
            flips_when=[f"loops are blocked less than {MOST_BLOCKED:.0%} of the time"],
        )
    return None


def _waits(s: Situation, rate: float) -> list[Predicted]:
    """Mean wait with own queues, then with the shared one."""
    cpu = s.workload.cpu_per_request
    service = cpu.mean_seconds or 50e-6
    spread = (cpu.stdev_seconds or service) / service
    utilisation = min(0.99, rate * service / s.workers)
    own = own_queue_wait(utilisation, service, spread)
    shared = shared_queue_wait(s.workers, utilisation, service, spread)
    return [
        Predicted(metric="wait with reuseport", low=own / 2, expected=own, high=own * 2, unit="s"),
        Predicted(
            metric="wait with one queue", low=shared / 2, expected=shared, high=shared * 2, unit="s"
        ),
    ]
