"""An observation as text: the causes, then the figures of the workers."""

from nginx_tune.documents.measured_server import (
    HARMS,
    LoopTurn,
    RoundTrips,
    ServerMeasurement,
    Waiting,
    WorkerUse,
    error_line_count,
)
from nginx_tune.documents.observation import Cause, Observation, OtherNginx, busier_other
from nginx_tune.documents.units import plural
from nginx_tune.measure.proof.latency import QUANTILES, LatencySample, read_statistic
from nginx_tune.report.screen import Line, Screen, ScreenBlock, Table
from nginx_tune.report.text import bytes_text, number_text, one_line, percent_text, seconds_text

_NONE = "–"
_SHOWN = 0.01
_MOST_OTHERS = 8
_BEHIND = {
    "computing": "computing",
    "blocked": "disks",
    "queued": "no CPU",
    "asleep": "sleeps in calls",
    "stopped": "stops",
}


def observation_screen(observation: Observation) -> Screen:
    """The strongest cause as the answer, its figures, the other causes, then the workers."""
    if not observation.causes:
        return [[Line("No cause was looked for.", "answer")], *_seen(observation)]
    strongest, *others = observation.causes
    return [
        [Line(_named(strongest), "answer")],
        _figures(strongest),
        *([Line(_named(cause)), *_figures(cause)] for cause in others),
        *_seen(observation),
    ]


def _named(cause: Cause) -> str:
    return f"{cause.id} ({cause.confidence} confidence): {one_line(cause.summary)}"


def _figures(cause: Cause) -> ScreenBlock:
    """The figures of a cause, its unknowns, the next step."""
    figures = ", ".join(
        f"{one_line(item.metric)} {_figure(item.value, item.unit)}" for item in cause.evidence
    )
    below = [
        *([f"because: {figures}"] if figures else []),
        *(f"not known: {one_line(text)}" for text in cause.not_known),
        *([f"next: {one_line(cause.next_command)}"] if cause.next_command else []),
    ]
    return [Line(text, indent=2) for text in below]


def _seen(observation: Observation) -> Screen:
    """The measured figures of an observation, without its causes."""
    server = observation.server
    return [
        _window(observation),
        _workers(server, observation.duration_seconds),
        _loop(server.loop_turn_seconds),
        _waits(server.loop_turn_seconds),
        _counts(server),
        _waiting(server.waiting),
        _round_trips(server.round_trips),
        _listeners(server),
        _disks(server),
        [Line(f"unfit: {one_line(flag)}", "warning") for flag in observation.flags],
        _unknown(observation),
    ]


def _window(observation: Observation) -> ScreenBlock:
    said = f"nginx {one_line(observation.nginx_version or '')}".strip()
    said += f", process {observation.pid}, {number_text(observation.duration_seconds)} s"
    choice = one_line(observation.nginx_choice)
    lines = [Line(f"{said}, {plural(observation.worker_processes, 'worker')}")]
    lines += [Line(choice)] if choice else []
    lines += [Line(_other(other)) for other in observation.others[:_MOST_OTHERS]]
    more = len(observation.others) - _MOST_OTHERS
    lines += [Line(f"and {more} more running: -f json")] if more > 0 else []
    busier = busier_other(observation)
    if busier is not None:
        lines.append(
            Line(
                f"process {busier.pid} was busier than the one observed: "
                f"nginx-tune observe --pid {busier.pid} shows it",
                "warning",
            )
        )
    return lines


def _other(one: OtherNginx) -> str:
    used = "" if one.cpu_seconds is None else f", used {seconds_text(one.cpu_seconds)} of CPU"
    name = one_line(one.binary or "an nginx")
    return f"not observed: {name} of process {one.pid}{used}: {one_line(one.reason)}"


def _figure(value: float, unit: str) -> str:
    if unit == "seconds":
        return seconds_text(value)
    if unit == "ratio":
        return percent_text(value)
    return f"{number_text(value)} {one_line(unit)}".rstrip()


def _workers(server: ServerMeasurement, seconds: float) -> ScreenBlock:
    header = ("worker", "CPU", "of it loop", "waits D", "runs R", "block I/O", "run queue", "turns",
              "connections")  # fmt: skip
    rows = [_worker_row(worker, seconds) for worker in server.workers]
    return [Table([header, *rows], right=range(1, len(header)))] if rows else []


def _worker_row(worker: WorkerUse, seconds: float) -> tuple[str, ...]:
    waits = _NONE
    if worker.state_d_ratio is not None:
        waits = percent_text(worker.state_d_ratio, error=worker.state_d_error)
    held = _NONE
    if worker.connections is not None:
        held = number_text(worker.connections)
        if worker.connection_ratio is not None:
            held += f" ({percent_text(worker.connection_ratio, 2)})"
    return (
        str(worker.pid),
        _share(worker.cpu_seconds, seconds),
        _share(worker.main_thread_cpu_seconds, seconds),
        waits,
        _share(worker.state_ratios.get("R"), 1.0),
        _share(worker.block_io_delay_seconds, seconds),
        _share(worker.run_queue_seconds, seconds),
        _NONE if worker.loop_turns is None else f"{worker.loop_turns:,}",
        held,
    )


def _share(part: float | None, whole: float) -> str:
    return _NONE if part is None or not whole else percent_text(part / whole)


def _loop(turns: LoopTurn | None) -> ScreenBlock:
    if turns is None or not turns.count:
        return []
    quantiles = ", ".join(
        f"{name} {'≥ ' if _is_bound(turns, name) else ''}{seconds_text(value)}"
        for name, value in (
            *((name, read_statistic([LatencySample(turns)], name).value) for name in QUANTILES),
            ("longest", turns.max),
        )
        if value is not None
    )
    blocked = "" if turns.blocked_ratio is None else f"; {percent_text(turns.blocked_ratio)} in D"
    sampled = turns.traced_ratio
    part = "" if sampled is None or sampled > 0.99 else f", {percent_text(sampled, 2)} of the time"  # noqa: PLR2004
    method = f" ({one_line(turns.method)}{part})" if turns.method else ""
    return [Line(f"loop turns: {turns.count:,}, {quantiles}{blocked}{method}")]


def _waits(turns: LoopTurn | None) -> ScreenBlock:
    """The mean wait of an arrival for its event loop, by cause."""
    if turns is None or not turns.arrival_wait_seconds:
        return []
    parts = sorted(turns.arrival_wait_by.items(), key=lambda item: -item[1])
    shown = [
        f"{_BEHIND.get(part, part)} {percent_text(seconds / turns.arrival_wait_seconds, 2)}"
        for part, seconds in parts
        if seconds >= _SHOWN * turns.arrival_wait_seconds
    ]
    waits = seconds_text(turns.arrival_wait_seconds)
    return [Line(f"an arrival waits {waits} for its loop on average: {', '.join(shown)}")]


def _waiting(waiting: Waiting | None) -> ScreenBlock:
    """The numbers of clients and upstream connections that wait, and of busy pool threads."""
    if waiting is None:
        return []
    said = f"at a time: {number_text(waiting.clients_waiting)} of {number_text(waiting.clients)} "
    said += "clients wait for an answer"
    if waiting.client_seconds is not None:
        said += f" ({seconds_text(waiting.client_seconds)} so far)"
    if waiting.clients_unclear:
        said += f", {number_text(waiting.clients_unclear)} wait or are idle"
    said += f", {number_text(waiting.clients_sending)} have not received theirs"
    if waiting.upstreams or waiting.upstreams_connecting:
        said += f"; {number_text(waiting.upstreams_waiting)} of {number_text(waiting.upstreams)} "
        said += "upstream connections wait, "
        if waiting.upstreams_unclear:
            said += f"{number_text(waiting.upstreams_unclear)} wait or are idle, "
        said += f"{number_text(waiting.upstreams_connecting)} connect"
    if waiting.pool_busy_ratio is not None:
        busy = waiting.pool_busy_ratio * waiting.pool_threads
        said += f"; {number_text(busy)} of {waiting.pool_threads:.0f} pool threads are at work"
    return [Line(said)]


def _round_trips(trips: RoundTrips | None) -> ScreenBlock:
    """The round-trip times to clients."""
    if trips is None:
        return []
    quantiles = {"p50": trips.p50_seconds, "p90": trips.p90_seconds, "p99": trips.p99_seconds}
    shown = [
        f"{name} {seconds_text(value)}" for name, value in quantiles.items() if value is not None
    ]
    found = ", ".join(shown) or "too few for a quantile"
    return [
        Line(
            f"round trip to clients: {found} ({plural(trips.connections, 'connection')}, tcpi_rtt)"
        )
    ]


def _is_bound(turns: LoopTurn, name: str) -> bool:
    """True for a figure that is a lower bound because a turn of the loop was seen only in part."""
    return {"longest": "max"}.get(name, name) in turns.at_least


def _counts(server: ServerMeasurement) -> ScreenBlock:
    status = server.stub_status
    lines = []
    if status is not None:
        lines.append(
            f"stub_status: {plural(status.requests, 'request')}, "
            f"{number_text(status.requests_per_second)}/s, "
            f"{plural(status.accepts, 'connection')} accepted, {status.dropped:,} dropped"
        )
    logged = [(harm.words, harm.counted(server)) for harm in HARMS if harm.is_kind]
    known = [f"{count:,} {words}" for words, count in logged if count]
    unseen = sum(count == 0 for _, count in logged)
    worse = error_line_count(server) or 0
    others = worse - sum(count or 0 for _, count in logged)
    if (known or unseen) and others > 0:
        known.append(f"{others:,} other lines of level error or worse")
    known += (
        [f"no {'other ' if known else ''}line that shows harm ({unseen} kinds)"] if unseen else []
    )
    lines += [f"error logs: {', '.join(known)}"] if known else []
    wait = server.pool_queue_wait_seconds
    if wait is not None:
        lines.append(
            f"pool queues: {wait.count:,} tasks waited p50 {seconds_text(wait.p50)}, "
            f"p99 {seconds_text(wait.p99)}, longest {seconds_text(wait.max)}"
        )
    if server.refaults is not None:
        where = "the workers' cgroup" if server.refault_source == "cgroup" else "the whole host"
        lines.append(f"page cache: {server.refaults:,} pages of files read again ({where})")
    if server.observer_cpu_seconds is not None:
        lines.append(f"watching cost {seconds_text(server.observer_cpu_seconds)} of CPU")
    return [Line(line) for line in lines]


def _listeners(server: ServerMeasurement) -> ScreenBlock:
    header = ("listener", "sockets", "backlog", "longest queue", "drops")
    rows = [
        (
            f"{one_line(listener.address)}:{listener.port}",
            str(listener.sockets),
            *(
                _NONE if value is None else f"{value:,}"
                for value in (listener.backlog, listener.accept_queue_max, listener.drops)
            ),
        )
        for listener in server.listeners
    ]
    return [Table([header, *rows], right=range(1, len(header)))] if rows else []


def _disks(server: ServerMeasurement) -> ScreenBlock:
    header = ("disk", "busy", "reads", "read", "await", "writes", "written", "await", "in flight")
    rows = [
        (
            one_line(disk.name) + (f" (under {', '.join(disk.below)})" if disk.below else ""),
            _share(disk.utilisation_ratio, 1.0),
            _NONE if disk.reads_per_second is None else f"{number_text(disk.reads_per_second)}/s",
            _NONE
            if disk.read_bytes_per_second is None
            else f"{bytes_text(disk.read_bytes_per_second)}/s",
            _NONE if disk.read_await_seconds is None else seconds_text(disk.read_await_seconds),
            _NONE if disk.writes_per_second is None else f"{number_text(disk.writes_per_second)}/s",
            _NONE
            if disk.write_bytes_per_second is None
            else f"{bytes_text(disk.write_bytes_per_second)}/s",
            _NONE if disk.write_await_seconds is None else seconds_text(disk.write_await_seconds),
            _NONE if disk.in_flight is None else number_text(disk.in_flight),
        )
        for disk in server.disks
    ]
    return [Table([header, *rows], right=range(1, len(header)))] if rows else []


def _unknown(observation: Observation) -> ScreenBlock:
    by_reason: dict[str, list[str]] = {}
    for field in observation.unknown:
        names = by_reason.setdefault(one_line(field.reason), [])
        names.append(one_line(field.path.removeprefix("/server/")))
    return [
        Line(f"not measured: {', '.join(names)}: {reason}", "note")
        for reason, names in by_reason.items()
    ]
