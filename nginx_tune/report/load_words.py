"""What a load plan asks, in words: the head of a report of one run."""

from __future__ import annotations

from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Upload
from nginx_tune.report.quantities import one_line
from nginx_tune.report.text import bytes_text, number_text, seconds_text

_MOST_CLASSES = 12


def describe_load(plan: LoadPlan, what: str) -> str:
    """The load in a few lines: what was asked (a URL or a file), how, and within what bounds."""
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
        watched = ", answers watched while they come" if item.event_stream else ""
        watched += f", each sends {body_text(item.upload)}" if item.upload else ""
        lines.append(f"  {name}{_loop(item.arrivals)}, {_connections(item)}{watched}")
    left = len(plan.classes) - _MOST_CLASSES
    if left > 0:
        lines.append(f"  and {left} more classes")
    caps = plan.caps
    lines.append(
        f"  caps: {number_text(caps.seconds)} s, {bytes_text(caps.bytes)}, "
        f"{caps.requests:,} requests, {caps.connections:,} connections, "
        f"{number_text(caps.rate_per_second)}/s"
    )
    return "".join(f"{line}\n" for line in lines)


def body_text(upload: Upload) -> str:
    """What bodies are sent, and at what pace."""
    least, most = min(upload.bytes, default=0), max(upload.bytes, default=0)
    size = bytes_text(least) if least == most else f"{bytes_text(least)} to {bytes_text(most)}"
    pace = f" at {bytes_text(upload.bytes_per_second)}/s" if upload.bytes_per_second else ""
    return f"a body of {size}{pace}"


def _length(plan: LoadPlan) -> str:
    text = f"{number_text(plan.duration_seconds)} s"
    if plan.warmup_seconds:
        text += f" after {number_text(plan.warmup_seconds)} s of warm-up"
    text += f", seed {plan.seed}"
    if plan.threads > 1:
        text += f", {plan.threads} threads"
    if plan.stripe.count > 1:
        text += f", load host {plan.stripe.index + 1} of {plan.stripe.count}"
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
        return (
            f"{protocol}, {item.connections:,} connections with up to {streams.streams:,} streams"
        )
    if not item.keepalive:
        return f"a new connection for each request, up to {item.connections:,} at once"
    if item.arrivals.kind == "closed":
        return "each with a connection of its own"
    if item.connection_use == "turns":
        held = item.held_connections or item.connections
        more = f", up to {item.connections:,}" if item.connections > held else ""
        return f"{held:,} connections held and used in turn{more}"
    return f"up to {item.connections:,} connections, the last used first"
