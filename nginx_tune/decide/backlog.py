"""``backlog``: the listen queue against somaxconn.

The queue holds connections that are made but not yet accepted. It has to bridge a burst while no
worker accepts; a longer one costs next to nothing, one that is too short drops clients, who try
again a second later. The kernel cuts it to net.core.somaxconn at the moment of listen(): raising
somaxconn later does nothing until nginx listens anew, which a reload does only when ``backlog``
itself has changed. With ``reuseport`` every worker has a queue of that length.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, HostSetting

ID: Final = "backlog"
NGINX_DEFAULT = 511
LARGEST = 65535
BURST = 2.0
"""Arrivals in a bad second over the mean of the busy hour."""
STALL_SECONDS = 1.0
"""Longest time in which no worker accepts that the queue should bridge (C2: stalls of 1 s)."""


def decide_backlog(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    somaxconn = _somaxconn(s)
    rate = s.connections_per_second
    limit = Quantity("net.core.somaxconn", somaxconn, "connections")
    if rate.value is None and not s.seen.listen_overflows.value:
        return Decision(
            id=ID,
            verdict="keep",
            summary=f"The default of {NGINX_DEFAULT}: no rate of new connections says otherwise.",
            evidence=known(limit, *_seen(s)),
            confidence="low",
            flips_when=["ListenOverflows rises while nginx runs"],
            next_command="nstat -az TcpExtListenOverflows TcpExtListenDrops",
        )
    wanted = min(LARGEST, int((rate.value or 0.0) * BURST * STALL_SECONDS))
    overflows, now = s.seen.listen_overflows, s.seen.backlog
    if overflows.value:
        # What it holds now was seen not to be enough.
        wanted = min(LARGEST, max(wanted, 2 * int(now.value or NGINX_DEFAULT)))
    if wanted <= NGINX_DEFAULT:
        return Decision(
            id=ID,
            verdict="keep",
            summary=f"The default of {NGINX_DEFAULT} holds {STALL_SECONDS:g} s of a burst.",
            evidence=known(rate, limit, *_seen(s)),
            confidence="medium",
            flips_when=["ListenOverflows rises while nginx runs"],
        )
    value = min(wanted, somaxconn) if somaxconn is not None else wanted
    reason = f"{STALL_SECONDS:g} s of {BURST:g} x {rate.value or 0.0:.0f} new connections a second"
    if overflows.value:
        queue = f"the queue of {now.text}" if now.value else "the queue"
        reason = f"{overflows.value:.0f} overflows of {queue} were seen"
    if value <= NGINX_DEFAULT:
        return Decision(
            id=ID,
            verdict="keep",
            summary=f"{wanted} would be wanted, but somaxconn of {somaxconn} allows no more.",
            evidence=known(rate, limit, *_seen(s)),
            confidence="medium",
            host_settings=_raised(wanted, somaxconn, reason),
            flips_when=[f"net.core.somaxconn is {wanted} or more"],
            next_command=f"sysctl net.core.somaxconn={wanted}",
        )
    return Decision(
        id=ID,
        verdict="raise",
        summary=f"{value}: {reason}.",
        settings=[setting(ID, "server", "listen", f"backlog={value}", reason=reason)],
        host_settings=_raised(wanted, somaxconn, reason) if value < wanted else [],
        evidence=known(rate, limit, *_seen(s)),
        confidence="medium" if s.rate.provenance != "assumed" else "low",
        risks=[
            (
                "a later change of somaxconn alone does nothing: nginx listens again only when "
                "backlog changes"
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
            reason=f"{reason}; backlog is written no longer than it is, so plan again then",
            decision=ID,
        )
    ]


def _seen(s: Situation) -> tuple[Quantity, Quantity]:
    return s.seen.listen_overflows, s.seen.backlog


def _somaxconn(s: Situation) -> int | None:
    if s.facts.network.somaxconn:
        return s.facts.network.somaxconn
    text = s.facts.kernel.sysctls.get("net.core.somaxconn", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004
