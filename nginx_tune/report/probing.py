"""A run of the probe as text: the load in words, its progress, and a search for the capacity."""

from collections.abc import Mapping, Sequence
from typing import Any

from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan
from nginx_tune.documents.measurement import Capacity, CapacityStep, LatencyHistogram
from nginx_tune.documents.progress import SHARE, Glance, Step
from nginx_tune.documents.units import plural
from nginx_tune.report.measurement import progress_text
from nginx_tune.report.screen import Line, Screen, ScreenBlock, Table
from nginx_tune.report.text import align, bytes_text, number_text, one_line, seconds_text

_MOST_CLASSES = 12


def describe_load(plan: LoadPlan, what: str) -> str:
    """The load in a few lines: its source (a URL or a file), method and bounds."""
    target = plan.target
    place = f" at {target.address} port {target.port}"
    if target.unix is not None:
        place = f" at the socket {one_line(target.unix)}"
    if target.proxy_protocol is not None:
        place += f", PROXY protocol v{target.proxy_protocol.version}"
        place += f" from {target.proxy_protocol.source}" if target.proxy_protocol.source else ""
    lines = [f"{one_line(what)}{place}, {_length(plan)}"]
    alone = len(plan.classes) == 1
    for item in plan.classes[:_MOST_CLASSES]:
        name = "" if alone else f"{one_line(item.name)}: "
        lines.append(f"  {name}{_loop(item.arrivals)}, {_connections(item)}")
    left = len(plan.classes) - _MOST_CLASSES
    if left > 0:
        lines.append(f"  and {left} more classes")
    caps = plan.caps
    lines.append(
        f"  caps: {number_text(caps.seconds)} s, {bytes_text(caps.bytes)}, "
        f"{plural(caps.requests, 'request')}, {plural(caps.connections, 'connection')}, "
        f"{number_text(caps.rate_per_second)}/s"
    )
    return "".join(f"{line}\n" for line in lines)


def _length(plan: LoadPlan) -> str:
    text = f"{number_text(plan.duration_seconds)} s"
    if plan.warmup_seconds:
        text += f" after {number_text(plan.warmup_seconds)} s of warm-up"
    text += f", seed {plan.seed}"
    if plan.threads > 1:
        text += f", {plan.threads} threads"
    if plan.stripe.count > 1:
        text += f", stripe {plan.stripe.index} of {plan.stripe.count}"
    return text


def _loop(arrivals: Arrivals) -> str:
    if arrivals.kind == "closed":
        users = f"closed loop, {arrivals.users} users"
        think = arrivals.think_seconds
        mean = " on average" if arrivals.gaps == "poisson" else ""
        return f"{users} who pause {seconds_text(think)}{mean}" if think else users
    if arrivals.kind == "replay":
        return f"open loop, as recorded × {number_text(arrivals.speed or 1.0)}"
    if arrivals.kind == "steps":
        rates = " → ".join(_step(step.rate_per_second, step.to_rate_per_second)
                           for step in arrivals.steps or [])  # fmt: skip
        return f"open loop, {rates} requests a second"
    return f"open loop, {arrivals.kind} arrivals, {number_text(arrivals.rate_per_second)}/s"


def _step(rate: float, to: float | None) -> str:
    return number_text(rate) if to is None else f"{number_text(rate)}…{number_text(to)}"


def _connections(item: LoadClass) -> str:
    streams = item.http2 or item.http3
    if streams is not None:
        protocol = "HTTP/3" if item.http2 is None else "HTTP/2"
        opened = plural(item.connections, "connection")
        return f"{protocol}, {opened} with up to {plural(streams.streams, 'stream')}"
    if not item.keepalive:
        return f"a new connection for each request, up to {item.connections:,} at once"
    if item.arrivals.kind == "closed":
        return "each with a connection of its own"
    if item.connection_use == "turns":
        held = item.held_connections or item.connections
        more = f", up to {item.connections:,}" if item.connections > held else ""
        return f"{plural(held, 'connection')} kept open and used in turn{more}"
    return f"up to {plural(item.connections, 'connection')}, the last used first"


def run_step(line: Mapping[str, Any], plan: LoadPlan, head: str = "") -> Step:
    """The progress of a single run after a second; ``head`` names the run."""
    text = progress_text(
        line, warmup_seconds=plan.warmup_seconds, duration_seconds=plan.duration_seconds
    )
    whole = _seconds(plan)
    done = min(line["second"], whole)
    return Step(head + text, done=done, total=whole, unit="s", classes=_classes(line))


def share_step(line: Mapping[str, Any], plan: LoadPlan, variant: str) -> Step:
    """The progress of one run of several after a second, as a share of that run."""
    whole = _seconds(plan)
    return Step(
        f"{variant}, {line['second']} of {whole:g} s",
        done=min(line["second"] / whole, 1.0) if whole else 0.0,
        unit=SHARE,
        variant=variant,
        classes=_classes(line),
        live=True,
    )


def _seconds(plan: LoadPlan) -> float:
    """The length of a run in seconds: warm-up and measured time."""
    return plan.warmup_seconds + plan.duration_seconds


def _classes(line: Mapping[str, Any]) -> dict[str, Glance]:
    return {
        str(name): Glance(item["requests"], item.get("p99"), item["errors"])
        for name, item in line["classes"].items()
    }


_LIMITS = {
    "objective": "objective",
    "failures": "failures",
    "connections": "connections of the probe",
    "probe": "the probe itself",
    "samples": "too few samples",
    "bound": "the highest rate allowed",
    "steps": "the number of runs",
    "interrupted": "an interruption",
}


def capacity_screen(capacity: Capacity) -> Screen:
    """The answer, then a line for each run of the search."""
    header = ("rate", "met", "measured", "in the way")
    rows = [
        (
            _rate(step.rate_per_second),
            "yes" if step.met else "no",
            ", ".join(_value(name, value) for name, value in step.measured.items()),
            "" if step.limited_by is None else _LIMITS[step.limited_by],
        )
        for step in capacity.steps
    ]
    objective = " and ".join(one_line(text) for text in capacity.objectives)
    return [_answer(capacity, objective), [Table([header, *rows], right=[0])] if rows else []]


def step_text(step: CapacityStep) -> str:
    """One run of the search as text, for progress."""
    verdict = "holds" if step.met else f"does not hold ({_LIMITS[step.limited_by or 'objective']})"
    return f"{_rate(step.rate_per_second)}: {verdict}"


def _answer(capacity: Capacity, objective: str) -> ScreenBlock:
    if capacity.capacity_per_second is not None:
        head = f"capacity: {_rate(capacity.capacity_per_second)} with {objective}"
    elif capacity.at_least_per_second is not None:
        held = _rate(capacity.at_least_per_second)
        head = f"capacity: at least {held} with {objective}"
        head += "" if capacity.limited_by == "bound" else "; its limit was not found"
    elif capacity.limited_by == "interrupted" and capacity.missed_per_second is None:
        head = f"no capacity found: {objective} is not judged yet"
    else:
        head = f"no capacity found: {objective} did not hold"
    block = [Line(head, "answer")]
    if capacity.limited_by:
        why = f" ({one_line(capacity.reason)})" if capacity.reason else ""
        block.append(Line(f"limited by: {_LIMITS[capacity.limited_by]}{why}"))
    elif capacity.reason:
        block.append(Line(one_line(capacity.reason)))
    return block


def _rate(value: float) -> str:
    return f"{number_text(value)}/s"


def _value(name: str, value: float | None) -> str:
    if value is None:
        return f"{one_line(name)} –"
    timed = name.rpartition(".")[2] in ("p50", "p90", "p99", "p999", "mean", "max", "stdev")
    return f"{one_line(name)} {seconds_text(value) if timed else number_text(value)}"


_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
_CELLS = 50
"""Cells of the longest bar, as many as in the source text."""
_HEAD = ("from", "below", "", "count")


def render_histograms(histograms: Sequence[LatencyHistogram]) -> str:
    """Each histogram with its figures and buckets; the fullest bucket has the longest bar."""
    return "\n".join(map(_text, histograms))


def _text(one: LatencyHistogram) -> str:
    head = f"{_title(one)}\n"
    if not one.count:
        return head + "  no samples\n"
    most = max((bucket.count for bucket in one.buckets), default=0)
    rows = [
        (
            seconds_text(bucket.from_seconds) if bucket.from_seconds else "0",
            seconds_text(bucket.below_seconds),
            f"|{bar(bucket.count, most).ljust(_CELLS)}|",
            f"{bucket.count:,}",
        )
        for bucket in one.buckets
    ]
    table = align([_HEAD, *rows], right=(0, 1, 3), indent=2) if rows else ""
    return head + align([_NAMES, _figures(one)], right=range(6), indent=2) + table + _notes(one)


def bar(count: int, most: int, cells: int = _CELLS) -> str:
    """A bar as long as its share of ``most``, to an eighth of a cell; a count of 1 is visible."""
    if not count or not most:
        return ""
    whole, eighths = divmod(max(count * cells * 8 // most, 1), 8)
    return _FULL * whole + (_EIGHTHS[eighths] if eighths else "")


_NAMES = ("min", "mean", "median", "max", "stdev", "count")


def _figures(one: LatencyHistogram) -> tuple[str, ...]:
    values = {
        "min": one.min_seconds,
        "mean": one.mean_seconds,
        "median": one.median_seconds,
        "max": one.max_seconds,
        "stdev": one.stdev_seconds,
    }
    cells = [
        "–"
        if value is None
        else ("≥ " if name in one.at_least else "") + (seconds_text(value) if value else "0")
        for name, value in values.items()
    ]
    return (*cells, f"{one.count:,}")


def _title(one: LatencyHistogram) -> str:
    said = one_line(one.latency)
    if one.variant:
        said += f", {one_line(one.variant)}"
    if one.variant and one.runs:
        said += f", {plural(one.runs, 'run')}"
    if one.left_out:
        said += f" ({one.left_out} more discarded and left out)"
    return said


def _notes(one: LatencyHistogram) -> str:
    if not one.censored:
        return ""
    return f"  {one.censored:,} never finished or failed by time: they count here with their age\n"
