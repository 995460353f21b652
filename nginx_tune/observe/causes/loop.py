"""The causes that keep event loops from running: disks, sleeps, stops, and the CPU.

Causes of the CPU are long computing, saturation, other programs, a quota and a hypervisor.
"""

from collections import Counter

from nginx_tune.documents.measured_server import HeldCall, ServerMeasurement, WorkerUse
from nginx_tune.documents.observation import Cause, CauseEvidence, CauseId
from nginx_tune.documents.units import bytes_text, number_text, percent_text, seconds_text
from nginx_tune.measure.proof.workers import Blocked, mean, measure_blocked
from nginx_tune.observe.causes.parts import (
    CauseWindow,
    figure,
    figures,
    longest_text,
    main_threads,
    percent,
    read_bytes_per_second,
    tail_text,
    turn_figures,
    what_ran,
)

BLOCKED_RATIO = 0.05
"""Minimum share of time in waits for disks that is reported. One arrival in twenty then finds the
loop blocked, which affects the p95."""
_CLEAR_OF_ERROR = 2.0
"""The number of standard errors by which a sampled share must exceed zero."""
_STOPPED_RATIO = 0.005
_FEWEST_LOOKS = 2
_MOSTLY = 0.5
_A_LOG = ("a log", "/")


def blocked_on_disk(window: CauseWindow) -> Cause | None:
    """The cause of main threads in state D, depending on the calls that they wait in."""
    server, seconds = window.server, window.seconds
    blocked = measure_blocked(server, seconds)
    if blocked is None or blocked.worst < BLOCKED_RATIO:
        return None
    if blocked.error is not None and blocked.worst < _CLEAR_OF_ERROR * blocked.error:
        return None
    found, advice = _by_call(server)
    parts = [
        f"{main_threads(len(server.workers))} waited for disks {percent(blocked)} of the window"
    ]
    turns = server.loop_turn_seconds
    if turns is not None:
        parts.append(f"loop turns {tail_text(turns)}longest {longest_text(turns)}")
    if server.block_io_delay_seconds is not None:
        delay = server.block_io_delay_seconds / seconds / len(server.workers)
        parts.append(f"block-I/O delay {number_text(delay)} s/s per worker")
    if rate := read_bytes_per_second(server.disks):
        parts.append(f"{bytes_text(rate)}/s read from the disks")
    not_known = []
    if not _calls_in_d(server):
        not_known.append("the call that waited: a read of a body, open(), stat(), or a log")
    if blocked.method == "samples":
        not_known.append("how long single turns were: they were not traced")
    pools = any((worker.threads or 1) > 1 for worker in server.workers)
    unsure = blocked.method == "samples" or (pools and not _calls_in_d(server))
    return Cause(
        id=found,
        summary=f"{', '.join(parts)}; {advice}",
        confidence="medium" if unsure else "high",
        evidence=blocking_evidence(window, blocked),
        not_known=not_known,
        next_command="nginx-tune recommend --observation FILE",
    )


def _by_call(server: ServerMeasurement) -> tuple[CauseId, str]:
    """The cause and the advice, by the calls that waited most often."""
    pools = any((worker.threads or 1) > 1 for worker in server.workers)
    calls = _calls_in_d(server)
    kinds: Counter[str] = Counter()
    for call in calls:
        kinds[call.kind] += round(call.ratio * 1e6)
    [(kind, share)] = kinds.most_common(1) or [("", 0)]
    if share <= _MOSTLY * kinds.total():
        kind = ""
    if kind == "write":
        return "loop-blocked-on-writes", _advice_on_writes(calls)
    if kind == "names":
        return "loop-blocked-on-names", (
            f"the calls are {_names(calls, kind)}, and no thread pool takes them. open_file_cache "
            "keeps files that are requested again; more memory keeps the other names cached"
        )
    if kind == "page fault" and server.swapped_in_pages:
        return "loop-blocked-on-swap", (
            f"{server.swapped_in_pages:,} pages of nginx's own memory were read back from swap: "
            "add memory, or keep nginx out of swap (vm.swappiness, MemorySwapMax=0)"
        )
    if kind == "page fault":
        return "loop-blocked-on-disk", (
            "these are page faults: the program's own code or a mapped file was evicted for lack "
            "of memory"
        )
    if kind == "read" or not pools:
        also = ", in locations without aio threads" if pools else ""
        return "loop-blocked-on-disk", f"thread pools would take these reads off the loop{also}"
    return "loop-blocked-on-disk", (
        "pools are running, so the blocking calls are those that pools do not take: open(), "
        "stat(), temporary files, logs, or a location without aio threads"
    )


def _advice_on_writes(calls: list[HeldCall]) -> str:
    logs: Counter[str] = Counter()
    for call in calls:
        if call.kind == "write":
            logs[call.file] += round(call.ratio * 1e6)
    [(file, _)] = logs.most_common(1)
    if file.startswith(_A_LOG):
        return (
            f"these are writes to {file}: the loop itself writes logs, without a thread pool. "
            "access_log … buffer=64k flush=5s makes the writes rare; another disk makes them fast"
        )
    return (
        "these are writes to temporary files or caches. aio threads with aio_write on takes them "
        "off the loop; larger buffers (proxy_buffers, client_body_buffer_size) make them rare"
    )


def _calls_in_d(server: ServerMeasurement) -> list[HeldCall]:
    return [call for call in server.held_calls if call.state == "D"]


def _names(calls: list[HeldCall], kind: str) -> str:
    return ", ".join(dict.fromkeys(call.call for call in calls if call.kind == kind))


def blocking_evidence(window: CauseWindow, blocked: Blocked) -> list[CauseEvidence]:
    """The figures of waits for disks."""
    server = window.server
    found = [figure("server.state_d_ratio", server.state_d_ratio, "ratio")]
    if server.loop_turn_seconds is not None:
        ratio = server.loop_turn_seconds.blocked_ratio
        found.append(figure("server.loop_turn_seconds.blocked_ratio", ratio, "ratio"))
    found += turn_figures(window)
    found.append(figure("server.block_io_delay_seconds", server.block_io_delay_seconds, "seconds"))
    found.append(figure("server.refaults", server.refaults, "pages"))
    for call in _calls_in_d(server):
        on = f" on {call.file}" if call.file else ""
        found.append(figure(f"samples with {call.call}{on} waiting", call.ratio, "ratio"))
    for disk in server.disks:
        found.append(figure(f"{disk.name} read await", disk.read_await_seconds, "seconds"))
        if disk.writes_per_second:
            found.append(figure(f"{disk.name} write await", disk.write_await_seconds, "seconds"))
        found.append(figure(f"{disk.name} utilisation", disk.utilisation_ratio, "ratio"))
    found.append(figure(f"blocked share by {blocked.method}", blocked.ratio, "ratio"))
    return [call for call in found if call is not None]


_WRITES = ("write", "writev")
_READER_LAGS = "nginx writes to a reader that is too slow, such as a log to a pipe"
_WAITS_ITSELF = (
    "code that nginx runs in its loop waits: a script that sleeps or calls a service, a library "
    "that resolves a name, a lock"
)


def asleep_in_call(window: CauseWindow) -> Cause | None:
    """The cause of turns that sleep: a script or a library that waits inside the loop."""
    turns = window.turns
    if turns is None or turns.asleep_seconds is None or not turns.traced_ratio:
        return None
    workers = len(window.server.workers)
    # Tracing begins shortly before the window.
    share = min(1.0, turns.asleep_seconds / (window.seconds * turns.traced_ratio * workers))
    if share < BLOCKED_RATIO and not window.is_held_by("asleep"):
        return None
    asleep = [call for call in window.server.held_calls if call.state == "S"]
    on = {call: f" on {call.file}" if call.file else "" for call in asleep[:3]}
    calls = ", ".join(dict.fromkeys(f"{call.call}{file}" for call, file in on.items()))
    return Cause(
        id="loop-asleep-in-call",
        summary=f"{main_threads(workers)} slept inside turns {percent_text(share)} of the window"
        f"{f', in {calls}' if calls else ''}; longest turn {longest_text(turns)}: "
        f"{_READER_LAGS if asleep and asleep[0].call in _WRITES else _WAITS_ITSELF}",
        confidence="high" if calls else "medium",
        evidence=turn_figures(window),
        not_known=["the code that makes the call: strace -f -k -p PID shows its stack"],
    )


def stopped(window: CauseWindow) -> Cause | None:
    """The cause of workers stopped by a signal or a debugger; no worker stops itself."""
    ratios = {}
    for worker in window.server.workers:
        ratio = worker.state_ratios.get("T", 0.0) + worker.state_ratios.get("t", 0.0)
        if ratio >= _STOPPED_RATIO and ratio * worker.state_samples >= _FEWEST_LOOKS:
            ratios[worker.pid] = ratio
    if not ratios:
        return None
    who = ", ".join(f"{pid} ({percent_text(ratio)})" for pid, ratio in ratios.items())
    return Cause(
        id="worker-stopped",
        summary=f"workers were stopped during part of the window: {who}; their connections wait, "
        "and so do new ones if a worker has its own queue. The cause is outside nginx: a debugger, "
        "strace, a snapshot or SIGSTOP",
        confidence="high",
        evidence=figures(
            ("largest share of samples in state T", max(ratios.values()), "ratio"),
            ("server.loop_turn_seconds.max", window.turns.max if window.turns else None, "seconds"),
        ),
        not_known=["the sender of the signal: 'auditctl -a always,exit -S kill' records it"],
    )


_SATURATED = 0.9
_MUCH_OF_A_CPU, _NEVER_IDLE = 0.5, 0.95
"""A loop that is never idle is saturated, even if other programs take some of its CPU."""
_CONTENDED = 0.2
_THROTTLED_PERIODS = 0.05
_STOLEN = 0.05


def held_by_cpu(window: CauseWindow) -> Cause | None:
    """The cause of turns that compute for longer than allowed."""
    turns = window.turns
    if turns is None or not window.is_held_by("computing") or _is_refuted(window):
        return None
    wait = window.arrival_wait_seconds
    ran, not_known = _ran(window.server)
    busiest = max(_shares(window))
    return Cause(
        id="loop-held-by-cpu",
        summary=f"single turns of the loop compute for up to {longest_text(turns)}, and everything "
        f"else on it waits: {seconds_text(wait)} on average; the busiest main thread computed "
        f"{percent_text(busiest)} of the window{ran}",
        confidence="high" if window.exceeds(window.wait_by("computing")) else "medium",
        evidence=[
            *turn_figures(window),
            *_samples(window.server),
            *figures(("busiest main thread's share of a CPU", busiest, "ratio")),
        ],
        not_known=not_known,
    )


def saturated(window: CauseWindow) -> Cause | None:
    """The cause of loops that are hardly ever idle, though each turn is short."""
    shares = _shares(window)
    at_work = [_at_work(window, worker) for worker in window.server.workers]
    busy = [
        share
        for share, work in zip(shares, at_work, strict=True)
        if share >= _SATURATED or (share >= _MUCH_OF_A_CPU and work >= _NEVER_IDLE)
    ]
    if not busy or held_by_cpu(window) is not None:
        return None
    ran, not_known = _ran(window.server)
    return Cause(
        id="cpu-saturated",
        summary=f"{len(busy)} of {len(shares)} workers spent up to {percent_text(max(busy))} "
        f"of the window computing: their loops are busy, not blocked{ran}",
        confidence="high",
        evidence=[
            *figures(("busiest main thread's share of a CPU", max(busy), "ratio")),
            *_samples(window.server),
        ],
        not_known=not_known,
    )


def throttled(window: CauseWindow) -> Cause | None:
    """The cause of a CPU quota that was used up."""
    quota = window.server.quota
    if quota is None or not quota.periods or not quota.throttled_periods:
        return None
    share = quota.throttled_periods / quota.periods
    if share < _THROTTLED_PERIODS:
        return None
    return Cause(
        id="cpu-throttled",
        summary=f"the control group used up its CPU quota in {percent_text(share)} of the periods "
        f"({quota.throttled_periods:,} of {quota.periods:,}), and then all of nginx stopped until "
        "the next period: raise the quota (cpu.max, CPUQuota=, limits.cpu), or have fewer workers",
        confidence="high",
        evidence=figures(
            ("throttled periods", quota.throttled_periods, ""),
            ("periods", quota.periods, ""),
            ("time throttled, sum over CPUs", quota.throttled_seconds, "seconds"),
            ("server.run_queue_seconds", window.server.run_queue_seconds, "seconds"),
        ),
        not_known=["the CPU time that nginx needs without a limit"],
    )


def contention(window: CauseWindow) -> Cause | None:
    """The cause of main threads that are ready to run but have no CPU."""
    server = window.server
    shares = [(w.run_queue_seconds or 0.0) / window.seconds for w in server.workers]
    quota = server.quota
    if throttled(window) is not None and quota is not None:
        # The scheduler counts a throttled thread as waiting for a CPU.
        by_quota = quota.throttled_seconds / window.seconds
        shares = [max(0.0, share - by_quota) for share in shares]
        held = False
    else:
        held = window.is_held_by("queued")
    if max(shares) < _CONTENDED and not held:
        return None
    return Cause(
        id="cpu-contention",
        summary=f"main threads were ready to run without a CPU for {percent_text(mean(shares))} of "
        f"the window (worst: {percent_text(max(shares))})",
        confidence="high" if max(shares) >= _CONTENDED else "medium",
        evidence=[
            *figures(("server.run_queue_seconds", server.run_queue_seconds, "seconds")),
            *(turn_figures(window) if held else []),
        ],
        not_known=["the threads that took the CPU: other workers, pools or other programs"],
    )


def stolen(window: CauseWindow) -> Cause | None:
    """The cause of CPU time that the hypervisor gave to other guests."""
    ratio = window.server.steal_ratio
    if ratio is None or ratio < _STOLEN:
        return None
    return Cause(
        id="cpu-steal",
        summary=f"the hypervisor gave {percent_text(ratio)} of this machine's CPU time to other "
        "guests: turns take longer, and no setting of nginx changes that",
        confidence="high",
        evidence=figures(("server.steal_ratio", ratio, "ratio")),
        not_known=["whether nginx's CPUs lose more time than the others"],
    )


def _is_refuted(window: CauseWindow) -> bool:
    """True if the threads' CPU times rule out that turns computed for so long.

    An arrival during a turn waits half its length on average. So the mean wait is at most half the
    longest turn times the share of time spent computing. A factor of two allows for the different
    clocks. Stolen time counts in the turn, but not in the thread's CPU time.
    """
    known = [worker.main_thread_cpu_seconds for worker in window.server.workers]
    seconds = [part for part in known if part is not None]
    if len(seconds) < len(known) or window.turns is None:
        return False
    ran = mean(seconds) / window.seconds / max(0.1, 1.0 - (window.server.steal_ratio or 0.0))
    return window.wait_by("computing") > 2 * ran * (window.turns.max or 0.0) / 2


def _shares(window: CauseWindow) -> list[float]:
    return [(w.main_thread_cpu_seconds or 0.0) / window.seconds for w in window.server.workers]


def _at_work(window: CauseWindow, worker: WorkerUse) -> float:
    """The share of the window in which a loop was in a turn, or its thread ran or was ready to."""
    runs = (worker.main_thread_cpu_seconds or 0.0) + (worker.run_queue_seconds or 0.0)
    traced = window.turns.traced_ratio or 0.0 if window.turns else 0.0
    waits = worker.loop_blocked_seconds or 0.0
    turns = ((worker.loop_busy_seconds or 0.0) - waits) / traced if traced else 0.0
    return max(runs, turns) / window.seconds


def _ran(server: ServerMeasurement) -> tuple[str, list[str]]:
    """The code that used the CPU, as the end of a sentence, and what is unknown about it."""
    ran = what_ran(server.cpu_samples)
    if ran:
        return f": {ran}", ["the requests: the access log with $request_time shows them"]
    lacking = "the kind of work: TLS, compression, scripts or copying"
    known = [
        (worker.user_ratio, worker.main_thread_cpu_seconds or 0.0)
        for worker in server.workers
        if worker.user_ratio is not None
    ]
    if not known:
        return "", [lacking]
    user = max(known, key=lambda one: one[1])[0]
    return f", {percent_text(user)} of that outside the kernel", [lacking]


def _samples(server: ServerMeasurement) -> list[CauseEvidence]:
    total = sum(server.cpu_samples.values())
    shown = list(server.cpu_samples.items())[:4] if total else []
    return figures(*((f"samples with {name} computing", n / total, "ratio") for name, n in shown))
