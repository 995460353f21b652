"""``output-buffers``: read size where sendfile cannot be used.

TLS, gzip and HTTP/3 need the bytes in nginx's memory, and files are then read a buffer at a time:
245 reads, each one task of the pool, for 8 MB with the default of ``2 32k``, and 16 with buffers
of 512 KiB. Larger buffers pay only together with a pool, since on the loop a larger read holds it
longer; each transfer holds two of them in memory.
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.model.protocol import BUFFER_BYTES
from nginx_tune.decide.output_sizes import BUFFERS, LARGE_BYTES, output_bytes
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Predicted
from nginx_tune.documents.units import nginx_size

ID: Final = "output-buffers"


def decide_output_buffers(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    folder = s.shared_folder
    copies = f"sendfile is off on {folder}" if folder else "sendfile is off"
    is_off = folder is not None or s.stays.no_sendfile
    if s.kind == "proxy" or not (s.tls or is_off or (s.cleartext_http2 and plan.on)):
        return not_applicable(
            ID,
            "Files leave through sendfile, which uses no buffers.",
            flips="the site speaks TLS",
        )
    if not plan.on:
        return not_applicable(
            ID,
            (f"{copies}, but reads" if is_off else "Reads")
            + " stay on the loop, and a larger one would only hold it longer.",
            flips="thread-pools is enabled",
        )
    mean, cache, peak = s.object_bytes, s.page_cache, s.concurrency
    evidence = known(mean, cache, peak)
    size = output_bytes(s, min(LARGE_BYTES, int(mean.value or 0)))
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
        summary=f"{BUFFERS} {text}: files are read a buffer at a time, each a task of the pool.",
        settings=[
            setting(
                ID,
                "http",
                "output_buffers",
                str(BUFFERS),
                text,
                reason=f"files are read a buffer at a time: {1 / tasks:.0f} times fewer pool tasks",
            )
        ],
        evidence=evidence,
        predicted=[
            Predicted(
                metric="ratio(pool tasks a response)", low=tasks, expected=tasks, high=tasks * 2
            )
        ],
        confidence="medium",
        flips_when=["the site stops speaking TLS" if s.tls else "sendfile can be used"],
        risks=[f"each transfer holds up to {nginx_size(size * BUFFERS)} of memory"],
    )
