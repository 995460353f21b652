"""``output-buffers``: read size where sendfile cannot be used (NGINX-FACTS 2.3, 2.4).

TLS, gzip and HTTP/3 need the bytes in nginx's memory, and files are then read a buffer at a time:
245 reads, each one task of the pool, for 8 MB with the default of ``2 32k``, and 16 with buffers
of 512 KiB. Larger buffers pay only together with a pool, since on the loop a larger read holds it
longer; each transfer holds two of them in memory.

``directio`` stays unset: it reads past the page cache and turns sendfile off for large files, so
each request for the same file goes to the disk again; it has no effect on cached responses of a
proxy. It can keep a flood of large cold files from pushing out small hot ones: to be measured
with validate before it is used.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.model_protocol import BUFFER_BYTES
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Predicted
from nginx_tune.documents.units import nginx_size

ID: Final = "output-buffers"
BUFFERS = 2
LARGE_BYTES = 256 << 10
MEMORY_SHARE = 0.05
"""Share of the page cache that the buffers of all transfers may take away."""


def decide_output_buffers(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind == "proxy" or not s.tls:
        return not_applicable(
            ID,
            "Files leave through sendfile, which uses no buffers.",
            flips="the site speaks TLS",
        )
    if not plan.on:
        return not_applicable(
            ID,
            "Reads stay on the loop, and a larger one would only hold it longer.",
            flips="thread-pools is enabled",
        )
    mean, cache, peak = s.object_bytes, s.page_cache, s.concurrency
    evidence = known(mean, cache, peak)
    room = MEMORY_SHARE * (cache.value or 0.0) / max(1.0, peak.value or 1.0) / BUFFERS
    size = BUFFER_BYTES
    while size * 2 <= min(room, LARGE_BYTES, mean.value or 0.0):
        size *= 2
    if size == BUFFER_BYTES:
        return Decision(
            id=ID,
            verdict="keep",
            summary="The default of 2 32k: objects are small, or memory is.",
            evidence=evidence,
            confidence="medium",
            flips_when=["objects are larger than 64 KiB and memory has room for larger buffers"],
        )
    tasks = BUFFER_BYTES / size
    text = nginx_size(size)
    return Decision(
        id=ID,
        verdict="raise",
        summary=f"{BUFFERS} {text}: TLS bodies are read in pieces of a buffer, each a pool task.",
        settings=[
            setting(
                ID,
                "http",
                "output_buffers",
                str(BUFFERS),
                text,
                reason=f"TLS reads a buffer at a time: {1 / tasks:.0f} times fewer pool tasks",
            )
        ],
        evidence=evidence,
        predicted=[
            Predicted(
                metric="ratio(pool tasks a response)", low=tasks, expected=tasks, high=tasks * 2
            )
        ],
        confidence="medium",
        flips_when=["the site stops speaking TLS"],
        risks=[f"each transfer holds up to {nginx_size(size * BUFFERS)} of memory"],
    )
