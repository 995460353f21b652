"""The workers and their limits: ``workers``, ``connections``, ``file-limits``."""

from __future__ import annotations

from msgspec.structs import replace

from nginx_tune.decide.answer import FACTS_COMMAND, Quantity, known, setting, validate_command
from nginx_tune.decide.descriptors import (
    BOUND_BY_LIMIT,
    USUAL_SOFT_LIMIT,
    DescriptorPlan,
    plan_descriptors,
)
from nginx_tune.decide.hindrances import THROTTLED_RATIO, throttled_share
from nginx_tune.decide.model.connections import (
    CONNECTION_BYTES,
    DEFAULT_CONNECTIONS,
    RESERVE,
    limit_for,
    suffices,
)
from nginx_tune.decide.model.pool import MAX_THREADS_ALL_WORKERS
from nginx_tune.decide.open_file_cache import open_files
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.protocols import slots_of_a_client
from nginx_tune.decide.situation import MAX_WORKERS, Situation, effective_cpus, wanted_workers
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Decision, Evidence, HostSetting
from nginx_tune.documents.facts import Cpu, Limits
from nginx_tune.documents.units import percent_text, plural


def decide_workers(s: Situation, plan: PoolPlan) -> Decision:
    """``workers``: ``worker_processes`` where containers lie about CPUs.

    One worker for each CPU that can really be used. ``auto`` counts the CPUs that are online: right
    on a host of one's own, too many under a cgroup quota or, with glibc, under a cpuset: the
    workers then share few CPUs and hold each other up. No ``worker_cpu_affinity``: it pins the
    threads of a pool to the one CPU of their loop, and the scheduler does well without.

    Fewer than CPUs where many disks decide: each worker has a pool of threads for each disk, and
    all threads together have a bound (2,048), so that a worker more is fewer threads on each disk.
    Workers are then as many as leave each pool eight threads, and never fewer than four times the
    CPU time of what disks, memory and link can give.
    """
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
    if s.disk_workers is not None:
        return _for_disks(s, plan, s.disk_workers, evidence)
    if cpu.effective is not None and cpu.online is not None and wanted < cpu.online:
        which = "quota" if cpu.quota_cpus is not None else "cpuset"
        reason = f"{cpu.effective:g} of {cpu.online} CPUs are usable ({which}); auto counts all"
        if wanted == MAX_WORKERS < cpu.effective:
            reason = (
                f"the most that is set here, for {cpu.effective:g} usable CPUs; auto counts all"
            )
        return Decision(
            id="workers",
            verdict="set",
            summary=f"{wanted}: {reason}.",
            settings=[setting("workers", "main", "worker_processes", str(wanted), reason=reason)],
            evidence=evidence,
            confidence="high",
            flips_when=["the container's CPU limit changes"],
            risks=[
                "a fixed number does not follow a changed limit",
                *_throttled(s.facts.cpu),
                *_affinity(plan),
            ],
        )
    if cpu.effective is None and cpu.online is None:
        return Decision(
            id="workers",
            verdict="set",
            summary="auto: the number of CPUs is not known; nginx's default would be one worker.",
            settings=[
                setting(
                    "workers", "main", "worker_processes", "auto", reason="one a CPU; default is 1"
                )
            ],
            confidence="low",
            flips_when=["nginx runs in a container with a CPU limit"],
            next_command="nginx-tune inspect -f json -o facts.json",
        )
    reason = f"one for each of {effective_cpus(s.facts).value:g} CPUs; nginx's default is 1"
    automatic = setting("workers", "main", "worker_processes", "auto", reason=reason)
    if cpu.effective is not None:  # auto would only follow CPUs that are added
        same = range(wanted, _AS_GOOD * wanted + 1)
        automatic = replace(automatic, same=[*map(str, same)])
    return Decision(
        id="workers",
        verdict="set",
        summary=f"auto: {reason}.",
        settings=[automatic],
        evidence=evidence,
        confidence="high" if cpu.effective is not None else "medium",
        flips_when=["nginx runs under a CPU limit below the CPUs online"],
        risks=[*_throttled(cpu), *_affinity(plan)],
    )


def _for_disks(s: Situation, plan: PoolPlan, workers: int, evidence: list[Evidence]) -> Decision:
    disks = len(s.data_paths)
    reason = (
        f"{disks} disks decide, not {effective_cpus(s.facts).text}: {plan.threads} threads of each "
        f"worker read each disk, and all may be {MAX_THREADS_ALL_WORKERS}"
    )
    fixed = setting("workers", "main", "worker_processes", str(workers), reason=reason)
    return Decision(
        id="workers",
        verdict="set",
        summary=f"{workers}: {reason}.",
        settings=[fixed],
        evidence=[*evidence, *known(Quantity("disks with a pool of their own", disks))],
        confidence="medium",
        flips_when=[
            "per-disk-pools is not enabled",
            "memory or faster disks give more than these workers have CPU time for",
        ],
        risks=[
            "other sites of this nginx that need many CPUs have these workers alone",
            *_throttled(s.facts.cpu),
            *_affinity(plan),
        ],
        next_command=plan.judgement.next_command or validate_command(s.facts),
    )


def _throttled(cpu: Cpu) -> list[str]:
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


def decide_connections(s: Situation, _plan: PoolPlan) -> Decision:
    """``connections``: ``worker_connections``.

    Slots are per worker and count clients, upstream connections and listeners; a proxied client
    takes two. When none is free nginx closes idle keepalive connections, then new ones right after
    accepting them: the client sees a reset and the access log nothing. Over HTTP/3 each stream
    takes one, those of control too: six for an idle client. A slot costs 432 bytes, taken at start,
    so the number has room for idle connections but stays below a tenth of the memory and below what
    the descriptor limit carries.
    """
    d = plan_descriptors(s)
    each = "client and upstream take a slot each" if d.slots_per_client > 1 else "a slot a client"
    if of_quic := slots_of_a_client(s):
        own = d.slots_per_client - of_quic
        each = f"a client of HTTP/3 takes {of_quic} slots when idle, and {own} for each request"
    reason = f"{each}; {d.bound_by}" if d.bound_by else each
    if d.needed > d.connections:
        carried = d.connections // d.slots_per_client * s.workers
        reason += f"; this host carries about {carried:,} of {s.concurrency.value:,.0f} clients"
    memory = s.facts.memory.cgroup_limit_bytes or s.facts.memory.total_bytes
    return Decision(
        id="connections",
        verdict="raise" if d.connections > DEFAULT_CONNECTIONS else "lower",
        summary=f"{d.connections} a worker ({d.connections * s.workers} in all); {reason}.",
        settings=[
            setting(
                "connections", "events", "worker_connections", str(d.connections), reason=reason
            ),
        ],
        evidence=known(
            s.concurrency,
            s.seen.connections_refused,
            Quantity("workers", s.workers),
            Quantity("memory limit", memory, "bytes"),
            Quantity(d.ceiling_fact, d.ceiling, "descriptors", _provenance(s)),
        ),
        confidence="medium" if s.concurrency.provenance != "assumed" else "low",
        flips_when=[
            (
                f"a worker has more than {d.connections // d.slots_per_client} clients at once, "
                "idle keepalive ones included"
            )
        ],
        risks=[f"{d.connections * CONNECTION_BYTES // 1024} KiB of memory in each worker"],
    )


def _provenance(s: Situation) -> Provenance:
    known_limit = s.facts.limits.nofile_hard is not None or s.facts.limits.nr_open is not None
    return "measured" if known_limit else "assumed"


_AS_GOOD = 2
"""Workers for each CPU up to which fewer would change next to nothing: idle ones cost memory."""
ENOUGH_DESCRIPTORS = 65_536
"""A hard limit that no decision here runs into."""
DESCRIPTORS_NEEDED = "descriptors a worker needs"
DESCRIPTORS_EACH = "descriptors a connection"
"""The names of those numbers in the evidence."""


def decide_file_limits(s: Situation, _plan: PoolPlan) -> Decision:
    """``file-limits``: ``worker_rlimit_nofile`` against the hard limit.

    A request holds a descriptor for the client and one for a file or an upstream, and the open file
    cache holds its own. Before it serves anybody a worker has all log files open, those of every
    virtual host, and all listeners, of all workers with ``reuseport``. When they run out open()
    fails (the client gets status 500) and connections wait in the accept queue; a worker that has
    none left at its start serves nobody (epoll_create() failed, 24: Too many open files). The soft
    limit that nginx is started with is often 1024; nginx raises it up to the hard limit by itself,
    above that only with CAP_SYS_RESOURCE.

    ``worker_rlimit_nofile`` sets the limit, whatever it was: what is written is the need, and
    nothing where the limit that nginx is started with is enough. More than the hard limit would be
    refused to a master without CAP_SYS_RESOURCE (setrlimit() fails with EPERM, and workers go on
    with the old limit). The limits of who read the facts, a shell's, are not nginx's: where theirs
    is below the need nothing is written, which might be lower than what workers have.
    """
    d = plan_descriptors(s)
    held_open = open_files(s)
    needed = d.kept + held_open
    wanted = limit_for(needed)
    nofile = min(wanted, d.ceiling)
    limits = s.facts.limits
    evidence = known(
        Quantity("worker_connections", d.connections, "", "assumed"),
        Quantity(DESCRIPTORS_NEEDED, needed, "descriptors", "assumed"),
        Quantity(DESCRIPTORS_EACH, d.descriptors_per_connection, "descriptors", "assumed"),
        Quantity("limits.nofile_soft", d.soft, "descriptors"),
        Quantity("limits.nofile_hard", limits.nofile_hard, "descriptors"),
        Quantity("limits.nr_open", limits.nr_open, "descriptors"),
    )
    if d.soft is not None and suffices(d.soft, needed):
        return Decision(
            id="file-limits",
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
    all_clients = d.needed * d.descriptors_per_connection + d.at_start
    enough = max(wanted, limit_for(all_clients), ENOUGH_DESCRIPTORS)
    return Decision(
        id="file-limits",
        verdict="raise" if nofile > soft else "set",
        summary=f"{nofile} descriptors a worker: {reason}"
        + (f"; {d.ceiling_fact} of {d.ceiling} allows no more." if short else "."),
        settings=[
            setting("file-limits", "main", "worker_rlimit_nofile", str(nofile), reason=reason)
        ],
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
    each = plural(d.descriptors_per_connection, "descriptor")
    text = f"{d.connections} connections with {each} each"
    if d.at_start > RESERVE:
        text += f", {d.at_start} logs, listeners and channels"
    return f"{text}, {held_open} open files" if held_open else text


def _left(d: DescriptorPlan, reason: str, wanted: int, evidence: list[Evidence]) -> Decision:
    """Nothing is written: it might be lower than what workers have, and would not be enough."""
    return Decision(
        id="file-limits",
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
                decision="file-limits",
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
                decision="file-limits",
            )
        )
    return asked
