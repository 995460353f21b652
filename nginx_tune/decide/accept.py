"""``accept``: ``accept_mutex`` and ``multi_accept``.

Both let one worker take connections while the others sleep: the mutex by letting one listen at a
time, ``multi_accept`` by emptying the whole queue at once - and since 1.21.6 also by switching
off the turn-taking of the workers. Measured with four workers, the busiest takes 40 to 100 % of
the connections with either, a quarter without. Both off is nginx's default since 1.11.3.

Neither matters to one worker, which takes all connections and uses no mutex
(ngx_event_process_init). An uneven spread on a host with little to do is no fault by itself: the
worker that was busy last has warm caches.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.build import version_evidence
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence

ID: Final = "accept"
EPOLLEXCLUSIVE: Final = "EPOLLEXCLUSIVE"
"""The name of the kernel's feature in the evidence."""


def decide_accept(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision: both off, which is the default since 1.11.3."""
    if s.workers == 1 and s.workers_are_known:
        return not_applicable(
            ID, "One worker takes all connections either way.", flips="more workers"
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
            id=ID,
            verdict="keep",
            summary=f"Both stay off, as nginx {s.build.text} has them: {both}.",
            evidence=evidence,
            confidence="high",
            flips_when=["nginx is older than 1.11.3, where accept_mutex is on"],
            risks=[
                (
                    "before 1.21.6 an idle host gives most connections to one worker, which is no "
                    "fault by itself"
                )
            ]
            if uneven
            else [],
        )
    return Decision(
        id=ID,
        verdict="disable",
        summary=f"accept_mutex off, multi_accept as it is (off): {both}.",
        settings=[
            setting(
                ID, "events", "accept_mutex", "off", reason="on before 1.11.3: one worker takes all"
            )
        ],
        evidence=evidence,
        confidence="medium" if s.build.version is None else "high",
        flips_when=["nginx is known to be 1.11.3 or newer: then nothing needs to be set"],
    )
