"""Workers and their limits: ``workers``, ``connections``, ``file-limits``."""

from msgspec.structs import replace

from nginx_tune.decide.answer import (
    FACTS_COMMAND,
    MAX_WORKERS,
    Quantity,
    effective_cpus,
    known,
    setting,
    validate_command,
    wanted_workers,
)
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
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Decision, Evidence, HostSetting
from nginx_tune.documents.facts import Cpu, Limits
from nginx_tune.documents.units import percent_text, plural


def decide_workers(s: Situation, plan: PoolPlan) -> Decision:
    """``workers``: ``worker_processes``, also in containers with a CPU limit.

    One worker for each usable CPU. ``auto`` counts all online CPUs, which is right on a dedicated
    host and too many under a cgroup quota or, with glibc, under a cpuset: the workers then compete
    for the few CPUs. ``worker_cpu_affinity`` is not set: it pins the threads of a pool to the
    single CPU of their worker, and the scheduler does well without it.

    A host limited by many disks gets fewer workers than CPUs. Each worker has a thread pool for
    each disk, and all threads share a limit (2,048), so another worker means fewer threads per
    disk. The number of workers is then the one that leaves each pool eight threads, or more if the
    CPU needs it: four times the CPU time it takes to use up the disks, the memory and the link.
    Eight is half the number of threads per disk in the source
    (https://blog.nginx.org/blog/thread-pools-boost-performance-9x). That half and the factor of
    four were chosen, not measured.
    """
    cpu = s.facts.cpu
    wanted = wanted_workers(s.facts)
    evidence = known(
        Quantity("cpu.online", cpu.online, "CPUs"),
        Quantity("cpu.cpuset", cpu.cpuset, "CPUs"),
        Quantity("cpu.quota_cpus", cpu.quota_cpus, "CPUs"),
        Quantity("cpu.effective", cpu.effective, "CPUs"),
        Quantity("share of periods throttled by the quota", throttled_share(cpu)),
        Quantity("cpu.steal_ratio", cpu.steal_ratio or None),
    )
    if s.disk_workers is not None:
        return _for_disks(s, plan, s.disk_workers, evidence)
    # A fraction of a CPU can only come from a quota, whatever CPUs the host has.
    is_part = cpu.effective is not None and cpu.online is None and cpu.effective % 1 > 0
    if cpu.effective is not None and (is_part or (cpu.online is not None and wanted < cpu.online)):
        which = "quota" if cpu.quota_cpus is not None or is_part else "cpuset"
        of = "" if cpu.online is None else f" of {cpu.online}"
        reason = f"{cpu.effective:g}{of} CPUs are usable ({which}); auto counts all"
        if wanted == MAX_WORKERS < cpu.effective:
            reason = (
                f"the most that nginx-tune sets, for {cpu.effective:g} usable CPUs; auto counts all"
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
                "a fixed number does not follow a change of the limit",
                *_throttled(s.facts.cpu),
                *_affinity(plan),
            ],
        )
    if cpu.effective is None and cpu.online is None:
        return Decision(
            id="workers",
            verdict="set",
            summary="auto: the number of CPUs is not known; nginx's default is one worker.",
            settings=[
                setting(
                    *("workers", "main", "worker_processes", "auto"),
                    reason="one per CPU; nginx's default is 1",
                )
            ],
            confidence="low",
            flips_when=["nginx runs in a container with a CPU limit"],
            next_command="nginx-tune inspect -f json -o facts.json",
        )
    cpus = effective_cpus(s.facts).value
    each = "the only CPU" if cpus == 1 else f"each of {cpus:g} CPUs"
    reason = f"one for {each}; nginx's default is 1"
    automatic = setting("workers", "main", "worker_processes", "auto", reason=reason)
    if cpu.effective is not None:  # auto differs only once CPUs are added
        same = range(wanted, _AS_GOOD * wanted + 1)
        automatic = replace(automatic, same=[*map(str, same)])
    return Decision(
        id="workers",
        verdict="set",
        summary=f"auto: {reason}.",
        settings=[automatic],
        evidence=evidence,
        confidence="high" if cpu.effective is not None else "medium",
        flips_when=["nginx runs under a CPU limit below the number of online CPUs"],
        risks=[*_throttled(cpu), *_affinity(plan)],
    )


def _for_disks(s: Situation, plan: PoolPlan, workers: int, evidence: list[Evidence]) -> Decision:
    disks = len(s.data_paths)
    reason = (
        f"{disks} disks are the limit, not {effective_cpus(s.facts).text}: each worker has "
        f"{plan.threads} threads per disk, and at most {MAX_THREADS_ALL_WORKERS} are allowed in all"
    )
    fixed = setting("workers", "main", "worker_processes", str(workers), reason=reason)
    return Decision(
        id="workers",
        verdict="set",
        summary=f"{workers}: {reason}.",
        settings=[fixed],
        evidence=[*evidence, *known(Quantity("disks with their own pool", disks))],
        confidence="medium",
        flips_when=[
            "per-disk-pools is not enabled",
            "more memory or faster disks give more work than these workers have CPU time for",
        ],
        risks=[
            "other sites of this nginx have only these workers, even if they need more CPUs",
            *_throttled(s.facts.cpu),
            *_affinity(plan),
        ],
        next_command=plan.judgement.next_command or validate_command(s.facts),
    )


def _throttled(cpu: Cpu) -> list[str]:
    """The risk that a CPU quota throttles, which threads and other processes use up too."""
    share = throttled_share(cpu)
    if cpu.throttled is None or share is None or share < THROTTLED_RATIO:
        return []
    return [
        (
            f"the CPU quota of {cpu.throttled.directory} throttled {percent_text(share, 2)} of the "
            "periods: raise the limit; fewer workers do not help"
        )
    ]


def _affinity(plan: PoolPlan) -> list[str]:
    """The risk of pinned workers, whose threads inherit the CPU."""
    if not plan.on:
        return []
    return ["worker_cpu_affinity would pin all threads of a pool to the CPU of its worker"]


def decide_connections(s: Situation, _plan: PoolPlan) -> Decision:
    """``connections``: ``worker_connections``.

    Slots are per worker and count clients, upstream connections and listeners; a proxied client
    takes two. When none is free nginx closes idle keepalive connections, and then new connections
    right after accepting them: the client sees a reset, and the access log has no line. With HTTP/3
    each stream takes a slot, control streams too: six for an idle client. A slot takes 432 bytes
    from the start, so the number leaves room for idle connections but stays below a tenth of the
    memory and within the descriptor limit.
    """
    d = plan_descriptors(s)
    each = "one slot per client"
    if d.slots_per_client > 1:
        each = "one slot each for client and upstream"
    if of_quic := slots_of_a_client(s):
        own = d.slots_per_client - of_quic
        each = f"an HTTP/3 client takes {of_quic} slots when idle, and {own} per request"
    reason = f"{each}; {d.bound_by}" if d.bound_by else each
    if d.needed > d.connections:
        carried = d.connections // d.slots_per_client * s.workers
        reason += f"; enough for about {carried:,} of {s.concurrency.value:,.0f} clients"
    memory = s.facts.memory.cgroup_limit_bytes or s.facts.memory.total_bytes
    return Decision(
        id="connections",
        verdict="raise" if d.connections > DEFAULT_CONNECTIONS else "lower",
        summary=f"{d.connections} per worker ({d.connections * s.workers} in all); {reason}.",
        settings=[
            setting(
                "connections", "events", "worker_connections", str(d.connections), reason=reason
            )
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
                f"a worker has more than {d.connections // d.slots_per_client} concurrent clients, "
                "including idle keepalive connections"
            )
        ],
        risks=[f"{d.connections * CONNECTION_BYTES // 1024} KiB of memory in each worker"],
    )


def _provenance(s: Situation) -> Provenance:
    known_limit = s.facts.limits.nofile_hard is not None or s.facts.limits.nr_open is not None
    return "measured" if known_limit else "assumed"


_AS_GOOD = 2
"""Workers per usable CPU up to which an existing number is as good as one worker per CPU."""
ENOUGH_DESCRIPTORS = 65_536
"""Number of descriptors that is enough for any decision."""
DESCRIPTORS_NEEDED = "descriptors needed per worker"
DESCRIPTORS_EACH = "descriptors per connection"
CAN_RAISE = "limits.can_raise"
"""Names of evidence, as are the two constants above."""


def decide_file_limits(s: Situation, _plan: PoolPlan) -> Decision:
    """``file-limits``: ``worker_rlimit_nofile`` and the hard limit.

    A request takes a descriptor for the client and one for a file or an upstream; the open file
    cache takes more. At its start a worker already has all log files open, those of every
    virtual host, and all listeners, with ``reuseport`` those of all workers. When descriptors run
    out, open() fails (the client gets status 500) and connections wait in the accept queue. A
    worker that has none left at its start cannot serve at all (epoll_create() failed, 24: Too many
    open files). The soft limit that nginx starts with is often 1024. nginx can raise it up to the
    hard limit, and beyond that only with CAP_SYS_RESOURCE.

    ``worker_rlimit_nofile`` replaces the limit, so the value is the need, and nothing is written
    where nginx already starts with enough. A master without CAP_SYS_RESOURCE cannot exceed the hard
    limit (setrlimit() fails with EPERM, and workers keep the old limit). Facts read in a shell have
    the limits of the shell, not of nginx. Where those are below the need nothing is written, since
    it might lower the workers' limit.
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
    if limits.is_hard_final:
        evidence.append(Evidence(fact=CAN_RAISE, value=False))
    if d.soft is not None and suffices(d.soft, needed):
        return Decision(
            id="file-limits",
            verdict="keep",
            summary=f"The soft limit of {d.soft} descriptors already covers {needed}.",
            evidence=evidence,
            confidence="medium",
            flips_when=[f"nginx starts with a soft limit below {wanted}"],
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
        summary=f"{nofile} descriptors per worker: {reason}"
        + (f"; {d.ceiling_fact} is {d.ceiling}." if short else "."),
        settings=[
            setting("file-limits", "main", "worker_rlimit_nofile", str(nofile), reason=reason)
        ],
        host_settings=_raised(limits, enough, reason) if short else [],
        evidence=evidence,
        confidence="medium" if d.soft is not None else "low",
        flips_when=[f"nginx starts with a soft limit of {wanted} or more"],
        risks=[
            (
                "a master without CAP_SYS_RESOURCE cannot exceed its hard limit: it logs an alert "
                "and keeps the old limit"
            )
        ],
        next_command=f"systemctl edit nginx  # LimitNOFILE={enough}" if short else "",
    )


def _reason(d: DescriptorPlan, held_open: int) -> str:
    each = plural(d.descriptors_per_connection, "descriptor")
    text = f"{d.connections} connections with {each} each"
    if d.at_start > RESERVE:
        text += f", {d.at_start} descriptors of logs, listeners and channels"
    return f"{text}, {held_open} open files" if held_open else text


def _left(d: DescriptorPlan, reason: str, wanted: int, evidence: list[Evidence]) -> Decision:
    """The decision without a line, which might lower the workers' unknown limit.

    The facts only have the limit of the shell in which they were read.
    """
    return Decision(
        id="file-limits",
        verdict="not_enough_evidence",
        summary=f"Unchanged: each worker needs {wanted} descriptors ({reason}), but the facts only "
        f"have the limit of the shell that read them, {d.ceiling}. nginx may start with more, "
        "which worker_rlimit_nofile would lower.",
        evidence=evidence,
        confidence="low",
        flips_when=[f"nginx starts with a hard limit of {wanted} or more"],
        next_command=FACTS_COMMAND,
    )


def _raised(limits: Limits, enough: int, reason: str) -> list[HostSetting]:
    """Host settings for the limits of the unit and the kernel that are too low."""
    raised = []
    if limits.nofile_hard is None or limits.nofile_hard < enough:
        raised.append(
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
        raised.append(
            HostSetting(
                kind="sysctl",
                name="fs.nr_open",
                value=str(enough),
                before=str(limits.nr_open),
                reason="no process can have a higher limit",
                decision="file-limits",
            )
        )
    return raised
