"""Listen queues and the workers that accept from them: ``accept``, ``reuseport``, ``backlog``."""

from typing import Final

from nginx_tune.decide.answer import (
    LEARN_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
    validate_command,
    version_evidence,
)
from nginx_tune.decide.model.waiting import (
    shared_queue_wait,
    stall_wait_own,
    stall_wait_shared,
    waiting_seconds,
)
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Confidence, Decision, Evidence, HostSetting, Predicted
from nginx_tune.documents.units import percent_text

EPOLLEXCLUSIVE: Final = "EPOLLEXCLUSIVE"
"""The name of the kernel feature in evidence."""


def decide_accept(s: Situation, _plan: PoolPlan) -> Decision:
    """``accept``: ``accept_mutex`` and ``multi_accept``.

    Both let one worker take connections while the others sleep. The mutex lets one worker listen at
    a time; ``multi_accept`` empties the whole queue at once and, since 1.21.6, stops workers from
    taking turns. Measured with four workers, the busiest takes 40 to 100 % of the connections with
    either, and a quarter without. Both are off by default since 1.11.3.

    Neither matters to a single worker, which takes all connections and uses no mutex
    (ngx_event_process_init). On a nearly idle host an uneven spread is no fault: the worker that
    was busy last has warm caches.
    """
    if s.workers == 1 and s.workers_are_known:
        return not_applicable(
            "accept", "One worker takes all connections either way.", flips="more workers"
        )
    evidence = [
        version_evidence(s.build),
        Evidence(fact=EPOLLEXCLUSIVE, value=s.facts.kernel.features.get("epollexclusive")),
        *known(s.seen.busiest_share),
    ]
    both = "with accept_mutex or multi_accept one worker takes most connections"
    if s.build.version is not None and s.build.at_least(1, 11, 3):
        uneven = not s.build.at_least(1, 21, 6)
        return Decision(
            id="accept",
            verdict="keep",
            summary=f"Both stay off, as nginx {s.build.text} has them: {both}.",
            evidence=evidence,
            confidence="high",
            flips_when=["nginx is older than 1.11.3, where accept_mutex is on"],
            risks=[
                (
                    "before 1.21.6 one worker takes most connections on an idle host, which does "
                    "no harm there"
                )
            ]
            if uneven
            else [],
        )
    return Decision(
        id="accept",
        verdict="disable",
        summary=f"accept_mutex off; multi_accept stays off: {both}.",
        settings=[
            setting(
                "accept",
                "events",
                "accept_mutex",
                "off",
                reason="on before 1.11.3: one worker takes all",
            )
        ],
        evidence=evidence,
        confidence="medium" if s.build.version is None else "high",
        flips_when=["nginx is known to be 1.11.3 or newer, where accept_mutex is off by default"],
    )


CONTENDED_PER_SECOND = 5_000.0
"""New connections per second and worker above which workers contend for one listen queue. This
value is assumed: the figures that nginx published for ``reuseport`` (1.9.1) come from 36 workers at
full speed."""
TOLERABLE_WAIT_SECONDS = 1e-3
"""Longest time that an even spread may add to the mean wait, in seconds."""
MOST_BLOCKED = 0.05
MANY_WORKERS = 8
"""Number of workers from which an uneven spread matters (before nginx 1.21.6). With 4 workers, the
busiest took 77 to 100 % of the connections as measured. In source row C5, p99 fell by a
third."""
TESTED_SAFELY = (1, 13, 4)
"""First version whose ``nginx -t`` opens no reuseport sockets. In older versions it accepts
connections there and drops live clients (change log, 1.13.4; rule ls-reuseport-old-bugs)."""
USUAL_CPU_SECONDS = 50e-6
"""CPU time of a request if it is not known."""


def decide_reuseport(s: Situation, plan: PoolPlan) -> Decision:
    """``reuseport``: a listen queue for each worker.

    A shared queue never waits for a busy or stalled worker: any free worker takes the next
    connection. A queue for each worker spreads connections evenly by their hash and avoids
    contention, but connections in the queue of a worker that handles a heavy request, or blocks in
    a disk read, wait for that worker. So it pays with very many new connections of light requests,
    and where nginx before 1.21.6 gives most connections to one of many workers. It does harm with
    heavy requests, few connections, or loops that block.

    The decision compares both mean waits: M/G/k against k times M/G/1, plus the wait that a stalled
    worker adds. A reload with fewer workers resets the connections in the closed queues, unless the
    kernel migrates them (net.ipv4.tcp_migrate_req=1).
    """
    ruled_out = _ruled_out(s, plan)
    if ruled_out is not None:
        return ruled_out
    uneven = _is_uneven(s)
    rate, connections = s.rate, s.connections_per_second
    evidence = [
        *known(rate, connections, Quantity("workers", s.workers), s.seen.busiest_share),
        version_evidence(s.build),
    ]
    if rate.value is None or connections.value is None:
        if uneven:
            return _enable(s, uneven, evidence, [], "low")
        return Decision(
            id="reuseport",
            verdict="not_enough_evidence",
            summary="Left off, nginx's default: the rate of new connections is not known, and with "
            "a queue for each worker, the new clients of a stalled worker would wait for it.",
            evidence=evidence,
            confidence="low",
            flips_when=[
                f"more than {CONTENDED_PER_SECOND:.0f} new connections a second per worker"
            ],
            next_command=LEARN_COMMAND,
        )
    waits = _waits(s, rate.value, connections.value, plan)
    own, shared = (p.expected for p in waits)
    per_worker = connections.value / s.workers
    tolerable = own - shared < TOLERABLE_WAIT_SECONDS
    contended = (
        f"{per_worker:.0f} new connections a second per worker contend for one queue"
        if per_worker > CONTENDED_PER_SECOND
        else uneven
    )
    if contended and tolerable:
        return _enable(s, contended, evidence, waits, "medium" if uneven else "low")
    why = (
        "at this load clients would wait longer with a queue for each worker"
        if contended
        else "there are too few connections for workers to contend for one queue"
    )
    return Decision(
        id="reuseport",
        verdict="keep",
        summary=f"Left off: {why}, and one queue never waits for a stalled worker.",
        evidence=evidence,
        predicted=waits,
        confidence="medium" if rate.provenance != "assumed" else "low",
        next_command=validate_command(s.facts),
    )


def _is_uneven(s: Situation) -> str:
    """The reason why a shared queue is spread unevenly; empty where it is not.

    Source: ngx_reorder_accept_events() since 1.21.6.
    """
    if s.build.version is None or s.build.at_least(1, 21, 6) or s.workers < MANY_WORKERS:
        return ""
    return f"nginx {s.build.text} gives most connections to a few of {s.workers} workers"


def _enable(
    s: Situation,
    reason: str,
    evidence: list[Evidence],
    waits: list[Predicted],
    confidence: Confidence,
) -> Decision:
    migrates = s.facts.kernel.sysctls.get("net.ipv4.tcp_migrate_req") == "1"
    risks = ["a stalled worker keeps its share of new clients waiting"]
    if not migrates:
        risks.append(
            "a reload with fewer workers resets the connections in the closed queues; "
            "net.ipv4.tcp_migrate_req=1 moves them to other workers"
        )
    if not s.build.at_least(1, 15, 2):
        risks.append("before 1.15.2 nginx ignores it where worker_processes comes after listen")
    return Decision(
        id="reuseport",
        verdict="enable",
        summary=f"On: {reason}.",
        settings=[setting("reuseport", "server", "listen", "reuseport", reason=reason)],
        host_settings=[] if migrates else _migrating(s),
        evidence=evidence,
        predicted=waits,
        confidence=confidence,
        flips_when=["nginx is 1.21.6 or newer"] if _is_uneven(s) == reason else [],
        risks=risks,
        next_command=validate_command(s.facts) if migrates else "sysctl net.ipv4.tcp_migrate_req=1",
    )


def _migrating(s: Situation) -> list[HostSetting]:
    """The sysctl that moves the queued connections of an exiting worker to another worker.

    Source: Documentation/networking/ip-sysctl.rst, tcp_migrate_req (Linux 5.14).
    """
    now = s.facts.kernel.sysctls.get("net.ipv4.tcp_migrate_req")
    if now is None:
        return []  # the kernel lacks it, or is not known to have it
    return [
        HostSetting(
            kind="sysctl",
            name="net.ipv4.tcp_migrate_req",
            value="1",
            before=now,
            reason="connections in the queue of a worker that exits move to another worker",
            decision="reuseport",
        )
    ]


def _ruled_out(s: Situation, plan: PoolPlan) -> Decision | None:
    if s.workers == 1 and s.workers_are_known:
        return not_applicable(
            "reuseport", "One worker has one queue either way.", flips="more workers"
        )
    if not s.build.at_least(1, 9, 1):
        return not_applicable(
            "reuseport", f"nginx {s.build.text} has no reuseport.", flips="nginx is 1.9.1 or newer"
        )
    if s.facts.kernel.is_linux_before(3, 9):  # socket(7); nginx then fails to start
        return not_applicable(
            "reuseport", "Linux before 3.9 has no SO_REUSEPORT.", flips="a newer kernel"
        )
    if s.is_freebsd:  # SO_REUSEPORT_LB, of FreeBSD 12, since nginx 468e37734
        spread = s.build.at_least(1, 15, 1)
        return not_applicable(
            "reuseport",
            "Only reuseport on Linux is modelled."
            if spread
            else f"On FreeBSD reuseport of nginx {s.build.text} does not spread connections.",
        )
    blocked, provenance = _blocked(s, plan)
    if blocked > MOST_BLOCKED:
        return Decision(
            id="reuseport",
            verdict="disable",
            summary=f"Off: cold reads block a worker {percent_text(blocked, 2)} of the time, and "
            "with a queue per worker new connections would wait for it.",
            evidence=known(
                Quantity("share of time a loop is blocked", blocked, "", provenance),
                Quantity("workers", s.workers),
            ),
            predicted=_stalls(s, blocked),
            confidence="high" if provenance == "measured" else "medium",
            flips_when=[f"workers block less than {percent_text(MOST_BLOCKED, 2)} of the time"],
        )
    if not s.build.at_least(*TESTED_SAFELY):
        return not_applicable(
            "reuseport",
            f"With nginx {s.build.text} even nginx -t can reset live connections on reuseport "
            "sockets (ls-reuseport-old-bugs); 1.13.4 fixed it.",
            flips="nginx is 1.13.4 or newer",
        )
    return None


def _blocked(s: Situation, plan: PoolPlan) -> tuple[float, Provenance]:
    """Share of time that a worker's loop is blocked: observed, or modelled without pools."""
    seen = s.seen
    if seen.blocked.value is not None and (not plan.on or seen.pools_in_use):
        return seen.blocked.value, "measured"
    return (s.prediction.blocked_ratio if s.prediction and not plan.on else 0.0), "assumed"


def _stalls(s: Situation, blocked: float) -> list[Predicted]:
    hold = s.prediction.hold_seconds if s.prediction else 0.0
    spread = _read_spread(s)
    own = stall_wait_own(blocked, hold, spread)
    return _both(own, min(own, stall_wait_shared(s.workers, blocked, hold, spread)))


def _waits(s: Situation, rate: float, connections: float, plan: PoolPlan) -> list[Predicted]:
    """Mean wait of a request: first with a queue for each worker, then with a shared queue.

    Only the first request of a connection waits in a listen queue, so the difference is spread over
    all requests of the connection.
    """
    cpu = s.workload.cpu_per_request
    service = cpu.mean_seconds or USUAL_CPU_SECONDS
    spread = (cpu.stdev_seconds or service) / service
    utilisation = min(0.99, rate * service / s.workers)
    blocked, _ = _blocked(s, plan)
    hold = s.prediction.hold_seconds if s.prediction else 0.0
    own = waiting_seconds(utilisation, service, spread)
    shared = shared_queue_wait(s.workers, utilisation, service, spread)
    first = min(1.0, connections / rate)
    own = shared + (own - shared) * first
    own += first * stall_wait_own(blocked, hold, _read_spread(s))
    shared += first * stall_wait_shared(s.workers, blocked, hold, _read_spread(s))
    return _both(own, min(own, shared))


def _read_spread(s: Situation) -> float:
    """Coefficient of variation of the time that a read blocks a loop."""
    return s.disk.spread_of(s.blocking_inputs.hold_bytes if s.blocking_inputs else 0.0)


def _both(own: float, shared: float) -> list[Predicted]:
    return [
        Predicted(metric="wait with reuseport", low=own / 2, expected=own, high=own * 2, unit="s"),
        Predicted(
            metric="wait with one queue", low=shared / 2, expected=shared, high=shared * 2, unit="s"
        ),
    ]


DEFAULT_BACKLOG = 511
LARGEST_BACKLOG = 65535
BURST = 2.0
"""Ratio of the arrivals in a bad second to their mean in the busy hour."""
STALL_SECONDS = 1.0
"""Longest time without an accept for which the queue should suffice, in seconds (source row C2:
stalls of 1 s)."""


def decide_backlog(s: Situation, _plan: PoolPlan) -> Decision:
    """``backlog``: the listen queue against somaxconn.

    The queue holds established connections that no worker has accepted yet. It must hold a burst
    that arrives while no worker accepts. A longer queue costs next to nothing; one that is too
    short drops clients, which try again a second later. The kernel caps it at net.core.somaxconn
    when listen() is called: raising somaxconn later does nothing until nginx calls listen() again,
    and a reload does so only when ``backlog`` itself has changed. With ``reuseport`` every worker
    has a queue of that length.
    """
    somaxconn = _somaxconn(s)
    rate = s.connections_per_second
    limit = Quantity("net.core.somaxconn", somaxconn, "connections")
    if rate.value is None and not s.seen.listen_overflows.value:
        return Decision(
            id="backlog",
            verdict="keep",
            summary=f"The default of {DEFAULT_BACKLOG}: the rate of new connections is not known.",
            evidence=known(limit, *_seen(s)),
            confidence="low",
            flips_when=["ListenOverflows rises while nginx runs"],
            next_command="nstat -az TcpExtListenOverflows TcpExtListenDrops",
        )
    wanted = min(LARGEST_BACKLOG, int((rate.value or 0.0) * BURST * STALL_SECONDS))
    overflows, now = s.seen.listen_overflows, s.seen.backlog
    if overflows.value:
        # The current length was observed to be too short.
        wanted = min(LARGEST_BACKLOG, max(wanted, 2 * int(now.value or DEFAULT_BACKLOG)))
    if wanted <= DEFAULT_BACKLOG:
        return Decision(
            id="backlog",
            verdict="keep",
            summary=f"The default of {DEFAULT_BACKLOG} holds {STALL_SECONDS:g} s of a burst.",
            evidence=known(rate, limit, *_seen(s)),
            confidence="medium",
            flips_when=["ListenOverflows rises while nginx runs"],
        )
    value = min(wanted, somaxconn) if somaxconn is not None else wanted
    reason = (
        f"room for {STALL_SECONDS:g} s at {BURST * (rate.value or 0.0):,.0f} new connections a "
        f"second, {BURST:g} times the rate"
    )
    if overflows.value:
        queue = f"the queue of {now.text}" if now.value else "the queue"
        reason = f"{queue} overflowed {overflows.value:.0f} times"
    if value <= DEFAULT_BACKLOG:
        return Decision(
            id="backlog",
            verdict="keep",
            summary=f"The load needs {wanted}, but net.core.somaxconn is {somaxconn}.",
            evidence=known(rate, limit, *_seen(s)),
            confidence="medium",
            host_settings=_raised(wanted, somaxconn, reason),
            flips_when=[f"net.core.somaxconn is {wanted} or more"],
            next_command=f"sysctl net.core.somaxconn={wanted}",
        )
    return Decision(
        id="backlog",
        verdict="raise",
        summary=f"{value}: {reason}.",
        settings=[setting("backlog", "server", "listen", f"backlog={value}", reason=reason)],
        host_settings=_raised(wanted, somaxconn, reason) if value < wanted else [],
        evidence=known(rate, limit, *_seen(s)),
        confidence="medium" if s.rate.provenance != "assumed" else "low",
        risks=[
            (
                "changing somaxconn later has no effect by itself: nginx calls listen() again only "
                "when backlog changes"
            )
        ],
        next_command=f"sysctl net.core.somaxconn={wanted}" if value < wanted else "",
    )


def _raised(wanted: int, somaxconn: int | None, reason: str) -> list[HostSetting]:
    return [
        HostSetting(
            kind="sysctl",
            name="net.core.somaxconn",
            value=str(wanted),
            before="" if somaxconn is None else str(somaxconn),
            reason=f"{reason}; the kernel caps backlog at this value, so plan again after raising "
            "it",
            decision="backlog",
        )
    ]


def _seen(s: Situation) -> tuple[Quantity, Quantity]:
    return s.seen.listen_overflows, s.seen.backlog


def _somaxconn(s: Situation) -> int | None:
    if s.facts.network.somaxconn:
        return s.facts.network.somaxconn
    text = s.facts.kernel.sysctls.get("net.core.somaxconn", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004
