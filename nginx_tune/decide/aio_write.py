"""``aio-write``: temporary files written by the pool.

With ``aio threads`` alone nginx still writes what an upstream sends to temporary files in the
loop, cache fills among them; when the kernel has too much unwritten data it makes the writer wait,
and all of the worker with it. ``aio_write on`` gives those writes to the pool. It does nothing
without ``aio threads``, nothing for bodies that clients send, and nothing for creating, renaming
or copying the file; until 1.11.13 it could hang or leak.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import not_applicable, setting, validate_command
from nginx_tune.decide.build import version_evidence
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision

ID: Final = "aio-write"
HTTP2_SINCE = (1, 21, 4)
"""The first version that does not hang with it over HTTP/2. Source: nginx change log."""


def decide_aio_write(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind in ("static", "media"):
        return not_applicable(ID, "Nothing is fetched from an upstream, so nothing is written.")
    if not plan.on:
        return not_applicable(
            ID,
            f"aio_write works only with aio threads, which is off: {plan.judgement.reason}.",
            flips="thread-pools is enabled",
        )
    evidence = [version_evidence(s.build)]
    # Hangs and leaks with aio_write were fixed until 1.11.13 (nginx CHANGES).
    if not s.build.at_least(1, 11, 13):
        return not_applicable(
            ID,
            f"nginx {s.build.text} has none, or hangs and leaks with it.",
            evidence=evidence,
            flips="nginx is 1.11.13 or newer",
        )
    if s.http_version == "2" and not s.build.at_least(*HTTP2_SINCE):
        return not_applicable(
            ID,
            f"nginx {s.build.text} can hang with HTTP/2 and aio_write.",
            evidence=evidence,
            flips="nginx is 1.21.4 or newer",
        )
    reason = "cache fills are written by the pool instead of the loop"
    return Decision(
        id=ID,
        verdict="enable",
        summary="Write cache fills in the pool: a full write buffer would block the loop.",
        settings=[setting(ID, "location", "aio_write", "on", reason=reason)],
        evidence=evidence,
        confidence="medium",
        flips_when=["thread-pools is disabled"],
        risks=["an overflowing pool then truncates the response and drops the upstream connection"],
        next_command=validate_command(s),
    )
