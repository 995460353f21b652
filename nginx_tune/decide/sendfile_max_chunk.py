"""``sendfile-max-chunk``: bytes that one transfer may hold the loop or a thread for.

One sendfile() of a cold file reads until the socket is full or the chunk is done, and a fast
client's socket is never full. The chunk bounds how long that takes. Smaller than what the disk
moves while it positions it wastes the disk, larger it makes everybody wait longer. So it is the
largest of 512 KiB, 1 MiB and nginx's own 2 MiB (since 1.21.4; unlimited before) whose transfer
takes no longer than the positioning before it, or than five milliseconds: 512 KiB to 1 MiB on hard
disks and slow flash, 2 MiB on fast flash. On a slow link the socket fills first and the chunk
matters less.

Where memory holds the data no disk is wasted, and where clients take large files as fast as they
are sent everybody else waits for a chunk of each of them: then it is 128 KiB, which the sending
itself only gains by, since a core's cache holds it. With thread pools others wait for the CPU that
the threads use, and it is the same.

Over TLS a pool fills the output buffers and the loop encrypts them, all in a turn unless the chunk
ends it. Where clients take it as fast, and buffers are larger than that, it is 64 KiB: they ask
again as soon as they are answered, and others wait for all of them. Where a known rate leaves the
loop idle for half of the time or more, it is one buffer: less only takes more turns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nginx_tune.decide.answer import not_applicable, setting, validate_command
from nginx_tune.decide.model.blocking import BUSY_HOST_SECONDS
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.protocol import SENDFILE_CHUNK_BYTES
from nginx_tune.decide.model.turns import (
    ENCRYPTED_BYTES_PER_SECOND,
    chunk_wait_seconds,
    thread_wait_seconds,
)
from nginx_tune.decide.output_sizes import LARGE_BYTES, output_bytes
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Predicted
from nginx_tune.documents.units import bytes_text, nginx_size, percent_text, seconds_text

ID: Final = "sendfile-max-chunk"
SMALLEST_BYTES = 512 << 10
"""The source's value (A3): less would only add calls."""
SHORT_SECONDS = 5e-3
"""A transfer that hardly anybody minds."""
DEFAULT_BYTES = SENDFILE_CHUNK_BYTES
"""Since 1.21.4 (nginx CHANGES); before that there was no bound."""
FROM_MEMORY_BYTES = 128 << 10
"""Where no disk is read. Source: drawn-5309-039 with 64k to 2m, nginx 1.22.1: twice as many bytes a
second as with 2m, and small answers eighteen times sooner; 64k let some of them wait for 30 ms."""
ENCRYPTED_BYTES = 64 << 10
"""What the loop encrypts in a turn. Source: drawn-8842-004, nginx 1.22.1, buffers of 256k: small
answers took 2.2 ms with 1m, 1.4 with 128k and 0.64 with 64k, for as many bytes a second; buffers of
32k without a chunk 0.67."""
_BUSY_RATIO = 0.5
"""Of the loop's time, in encryption. Source: drawn-8842-032, nginx 1.22.1, buffers of 128k, a loop
that is busy for 2 %: a hot file took 1.12 ms with 64k and 0.88 with 128k, small answers 0.23 and
0.21. Assumed between that and the loop that drawn-8842-004 keeps busy."""
_RESIDENT_RATIO = 0.995
"""Hits from which on the disk does not count."""
_MOSTLY_RESIDENT_RATIO = 0.9
"""The same where threads wait for it. With fewer hits than 0.55 a small chunk wastes the disk
(drawn-6151-015 and -5309-038: 1.3 to 1.4 times as long); between the two nothing was measured. On
fast flash with fewer hits 128k had small answers 0.06 of 0.29 ms sooner for as many bytes
(drawn-8842-011), and large hot files a fifth to three fifths later (drawn-4201-002, -024 and -033,
-6151-007): the latter weighs more."""
_WAIT_FACTOR = 3.0
"""The model's error in the ratio of two times of a request that others hold up."""


def decide_sendfile_max_chunk(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind == "proxy":
        return not_applicable(ID, "A proxy without a cache sends from memory, not from files.")
    is_off = s.stays.no_sendfile or s.shared_folder is not None
    if is_off or (s.cleartext_http2 and plan.on):
        return not_applicable(ID, "sendfile is off here.", flips="sendfile is enabled")
    chunk = chunk_bytes(s.disk)
    bounded = s.build.at_least(1, 21, 4)
    buffer_bytes = _encrypted_at_once(s, plan)
    if bounded and buffer_bytes > ENCRYPTED_BYTES:
        return _encrypted(s, buffer_bytes)
    if _wait_from_memory(s, plan, chunk) > BUSY_HOST_SECONDS:
        return _for_others(s, plan, bounded=bounded)
    hold = s.disk.read_seconds(chunk)
    transfer = chunk / s.disk.bytes_per_second
    longest = longest_transfer(s.disk)
    evidence = known(
        Quantity("disk read latency", s.disk.latency_seconds, "s", s.disk.provenance),
        Quantity("disk bandwidth", s.disk.bytes_per_second, "bytes/s", s.disk.provenance),
        Quantity("time of one cold chunk (model)", hold, "s", s.disk.provenance),
        Quantity("time of a chunk on the link (model)", _on_link(s, chunk), "s"),
    )
    if chunk == DEFAULT_BYTES and bounded:
        return Decision(
            id=ID,
            verdict="keep",
            summary=f"The default of 2m fits this disk: it moves one in "
            f"{seconds_text(transfer)}, after {seconds_text(s.disk.latency_seconds)} to the first "
            "byte.",
            evidence=evidence,
            confidence="medium",
            flips_when=[
                f"the disks move less than {bytes_text(chunk / longest)}/s",
                *_pace_flip(s, plan, chunk),
            ],
        )
    size = nginx_size(chunk)
    who = "a thread" if plan.on else "the loop"
    default = "2m" if bounded else "without a bound"
    apart = "without TLS " if s.tls else ""
    return Decision(
        id=ID,
        verdict="lower" if bounded else "set",
        summary=f"{size}: {apart}one cold chunk then holds {who} for {seconds_text(hold)} "
        f"(the default is {default}).",
        settings=[
            setting(
                ID,
                "http",
                "sendfile_max_chunk",
                size,
                reason=f"{apart}one cold chunk holds {who} for {seconds_text(hold)}",
            )
        ],
        evidence=evidence,
        predicted=[
            Predicted(
                metric="seconds of one cold chunk",
                low=hold / 3,
                expected=hold,
                high=hold * 3,
                unit="s",
            )
        ],
        confidence="medium" if s.disk.provenance != "assumed" else "low",
        flips_when=[
            f"the disks move more than {bytes_text(2 * chunk / longest)}/s"
            if chunk < DEFAULT_BYTES
            else "nginx is 1.21.4 or newer, where it is the default",
            *_pace_flip(s, plan, chunk),
        ],
        next_command=validate_command(s),
    )


def _encrypted_at_once(s: Situation, plan: PoolPlan) -> int:
    """The buffer that the loop encrypts in one turn for a client that takes all of it; else 0.

    A slower client's socket ends the turn, and the chunk would only cut what is not encrypted.
    """
    paced = s.workload.concurrency.clients_keep_pace
    if not (paced and plan.on and s.tls and s.read_path.name == "buffers"):
        return 0
    return output_bytes(s, min(LARGE_BYTES, int(s.object_bytes.value or 0)))


def _encrypted(s: Situation, buffer_bytes: int) -> Decision:
    """The chunk for bodies that the loop encrypts out of the buffers that a pool has filled."""
    whole = buffer_bytes / ENCRYPTED_BYTES_PER_SECOND
    busy = _encrypting_ratio(s)
    if busy is not None and busy < _BUSY_RATIO:
        size = nginx_size(buffer_bytes)
        said = (
            f"{size}: the loop encrypts one output buffer in a turn of {seconds_text(whole)}; "
            f"all encryption takes {percent_text(busy, 2)} of its time (model)."
        )
        reason = f"an output buffer in a turn of {seconds_text(whole)}; less takes more turns"
        flip = f"encryption takes more than {percent_text(_BUSY_RATIO, 2)} of the loop's time"
    else:
        size = nginx_size(ENCRYPTED_BYTES)
        turn = ENCRYPTED_BYTES / ENCRYPTED_BYTES_PER_SECOND
        said = (
            f"{size}: the loop encrypts a buffer of {nginx_size(buffer_bytes)} in turns of "
            f"{seconds_text(turn)}, between which others get theirs; all of it takes "
            f"{seconds_text(whole)}."
        )
        reason = f"a buffer is encrypted in turns of {seconds_text(turn)}, not at once"
        flip = f"encryption takes less than {percent_text(_BUSY_RATIO, 2)} of the loop's time"
    return Decision(
        id=ID,
        verdict="lower",
        summary=said,
        settings=[setting(ID, "http", "sendfile_max_chunk", size, reason=reason)],
        evidence=known(
            s.object_bytes,
            s.concurrency,
            s.rate,
            Quantity("output buffer", buffer_bytes, "bytes", s.object_bytes.provenance),
        ),
        confidence="medium",
        flips_when=[
            "clients are slower than the loop: their sockets are full",
            "the site stops speaking TLS, or most requests come without",
            flip,
        ],
        next_command=validate_command(s),
    )


def _encrypting_ratio(s: Situation) -> float | None:
    """The share of a loop's time in encryption; null where clients ask as soon as they can."""
    if not s.rate.value or s.rate.provenance == "assumed":
        return None
    per_second = s.rate.value * (s.object_bytes.value or 0.0)
    return per_second / ENCRYPTED_BYTES_PER_SECOND / s.workers


def _wait_from_memory(
    s: Situation, plan: PoolPlan, chunk: int, *, as_if_fast: bool = False
) -> float:
    """What others wait behind files that memory holds; 0 where it is a disk that counts."""
    i = s.blocking_inputs
    least = _MOSTLY_RESIDENT_RATIO if plan.on else _RESIDENT_RATIO
    if i is None or s.prediction is None or s.prediction.hit_ratio < least:
        return 0.0
    wait_seconds = thread_wait_seconds if plan.on else chunk_wait_seconds
    return wait_seconds(replace(i, clients_keep_pace=True) if as_if_fast else i, chunk)


def _for_others(s: Situation, plan: PoolPlan, *, bounded: bool) -> Decision:
    """The least chunk: others are what it is for, and the sending does not lose by it."""
    size = nginx_size(FROM_MEMORY_BYTES)
    waits = _wait_from_memory(s, plan, DEFAULT_BYTES)
    less = _wait_from_memory(s, plan, FROM_MEMORY_BYTES)
    origin = s.workload.concurrency.provenance  # who says that clients keep pace
    files = "most of the files" if plan.on else "the files"
    who = "a CPU of the threads that send" if plan.on else "a chunk of each that is being sent"
    reason = f"memory holds {files}, and others wait for {who}"
    predicted = []
    if bounded and not s.rate.value and not plan.on:
        ratio = (BUSY_HOST_SECONDS + less) / (BUSY_HOST_SECONDS + waits)
        predicted.append(
            Predicted(
                metric="ratio(memory.mean)",
                low=_rounded(ratio / _WAIT_FACTOR),
                expected=_rounded(ratio),
                high=_rounded(ratio * _WAIT_FACTOR),
            )
        )
    return Decision(
        id=ID,
        verdict="lower" if bounded else "set",
        summary=f"{size}: memory holds {files} and clients take them as fast as they are sent, "
        f"so that others wait {seconds_text(waits)} with 2m, {seconds_text(less)} with this.",
        settings=[setting(ID, "http", "sendfile_max_chunk", size, reason=reason)],
        evidence=[
            *known(s.page_cache, s.dataset_bytes, s.object_bytes, s.concurrency, s.rate),
            *known(Quantity("wait behind files that are sent (model)", waits, "s", origin)),
        ],
        predicted=predicted,
        confidence="medium",
        flips_when=[
            "clients are slower than the loop: their sockets are full",
            "the data outgrows the page cache, and the disk has to be read",
        ],
        next_command=validate_command(s),
    )


def _pace_flip(s: Situation, plan: PoolPlan, chunk: int) -> list[str]:
    """That others would wait, if clients took large files as fast as they are sent."""
    waits = _wait_from_memory(s, plan, chunk, as_if_fast=True)
    if waits <= BUSY_HOST_SECONDS:
        return []
    size = nginx_size(FROM_MEMORY_BYTES)
    where = "where clients take files as fast as they are sent"
    text = f"{size} {where}; others wait {seconds_text(waits)} behind them"
    return [f"concurrency.clients_keep_pace: {text}"]


def _on_link(s: Situation, chunk: int) -> float | None:
    """Where this is the longer time the socket fills, and the disk is not what is waited for."""
    link = s.link_bytes_per_second.value
    return None if link is None else chunk / link


def chunk_bytes(disk: ModelDisk) -> int:
    """The largest power of two within [512k, 2m] whose transfer is not too long."""
    chunk = DEFAULT_BYTES
    while chunk > SMALLEST_BYTES and chunk / disk.bytes_per_second > longest_transfer(disk):
        chunk //= 2
    return chunk


def longest_transfer(disk: ModelDisk) -> float:
    """Seconds for which a transfer may hold the disk: as long as the positioning before it."""
    return max(disk.latency_seconds, SHORT_SECONDS)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
