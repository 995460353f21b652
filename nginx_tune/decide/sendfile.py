"""The bytes of files to the socket: ``sendfile``, ``sendfile-max-chunk``, ``output-buffers``.

What the output buffers of all transfers hold together stays within a share of the page cache.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from nginx_tune.decide.answer import Quantity, known, not_applicable, setting, validate_command
from nginx_tune.decide.model.blocking import BUSY_HOST_SECONDS
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.reads import BUFFER_BYTES, SENDFILE_CHUNK_BYTES
from nginx_tune.decide.model.sending import (
    ENCRYPTED_BYTES_PER_SECOND,
    chunk_wait_seconds,
    thread_wait_seconds,
)
from nginx_tune.decide.objectives import Aim
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import filesystems_under
from nginx_tune.documents.decisions import Decision, Evidence, Predicted
from nginx_tune.documents.units import bytes_text, nginx_size, percent_text, seconds_text

COPIED: Final = "io-sendfile-off-static"
"""The audit's rule that this goes against on purpose."""
FILESYSTEM: Final = "storage.paths filesystem"


def decide_sendfile(s: Situation, plan: PoolPlan) -> Decision:
    """``sendfile``: file bytes to the socket without a copy through nginx.

    On for every site that serves files: the kernel moves pages from its cache to the socket. TLS,
    gzip and HTTP/3 cannot use it, and it does no harm there. Off on shared folders of virtual
    machines, which hand stale pages to it. Off where thread pools read for cleartext HTTP/2: of one
    connection one sendfile() is in the pool at a time, so that all its streams wait for the cold
    one, and each frame is a task of its own. Measured
    (``benchmarks/scenarios/http2-cold-files.toml``): p90 of 52 ms, 0.3 ms without.
    Source: ngx_linux_sendfile_thread(), ngx_http_v2_filter_send().

    ``tcp_nopush`` beside it is neither written nor taken out, and a whole file keeps it where the
    installed one has it. It saves a packet and a wake-up of the client for each response (small
    files at 20,000 a second over loopback: what needs no file took 1.2 ms with it, 2.1 without),
    and over loopback and veth (kernel 6.18) responses of 128 KiB to a client that had paused came
    10 to 80 ms later with it (benchmarks/README.md, tcp_nopush).
    """
    if s.kind == "proxy":
        return not_applicable(
            "sendfile", "A proxy without a cache sends from memory, not from files."
        )
    shared = s.shared_folder
    if shared is not None:
        return Decision(
            id="sendfile",
            verdict="disable",
            summary=f"Off: {shared} serves stale or short files through sendfile.",
            settings=[
                setting(
                    "sendfile", "http", "sendfile", "off", reason=f"{shared} is a shared folder"
                )
            ],
            evidence=[Evidence(fact=FILESYSTEM, value=shared)],
            confidence="medium",
            flips_when=["the files move to a local file system"],
        )
    if s.cleartext_http2 and plan.on:
        why = "of a cleartext HTTP/2 connection one sendfile() is in the pool at a time"
        reason = f"nginx-tune: ignore[{COPIED}] {why}"
        known = s.workload.http_version.provenance != "assumed"
        fact = "workload.http_version.value" if known else "site.cleartext_http2"
        return Decision(
            id="sendfile",
            verdict="disable",
            summary="Off beside the pools: of a cleartext HTTP/2 connection only one sendfile() is "
            "in the pool at a time, and all its streams wait for it.",
            settings=[setting("sendfile", "http", "sendfile", "off", reason=reason)],
            evidence=[
                Evidence(
                    fact=fact,
                    value=s.http_version if known else True,
                    provenance=s.workload.http_version.provenance if known else "declared",
                ),
                Evidence(fact="workload.tls", value=s.tls, provenance=s.workload.tls.provenance),
            ],
            confidence="medium",
            flips_when=["thread-pools is off", "clients speak TLS or HTTP/1.1"],
            risks=["file bytes are copied through nginx's memory: more CPU for each byte"],
        )
    offload = " (in the pool, a chunk at a time)" if plan.on else ""
    reason = f"no copy through nginx's memory{offload}"
    if s.tls:
        reason = "for cleartext and kernel TLS; other TLS bodies are read into output_buffers"
    settings = [setting("sendfile", "http", "sendfile", "on", reason=reason)]
    summary = "On: file bytes go to the socket without a copy through nginx's memory."
    if s.tls:
        summary = "On: without effect on TLS bodies, which are read and encrypted, but harmless."
    return Decision(
        id="sendfile",
        verdict="enable",
        summary=summary,
        settings=settings,
        evidence=[
            Evidence(fact="workload.tls", value=s.tls, provenance=s.workload.tls.provenance),
            *[
                Evidence(fact=FILESYSTEM, value=one)
                for one in filesystems_under(s.site.roots, s.facts.storage)
            ],
        ],
        confidence="high",
        flips_when=["the files are on a virtual machine's shared folder"],
    )


SMALLEST_CHUNK_BYTES = 512 << 10
"""The source's value (A3): less would only add calls."""
SHORT_SECONDS = 5e-3
"""A transfer that hardly anybody minds."""
DEFAULT_CHUNK_BYTES = SENDFILE_CHUNK_BYTES
"""Since 1.21.4 (nginx CHANGES); before that there was no bound."""
CHUNK_FROM_MEMORY_BYTES = 128 << 10
"""The chunk where no disk is read. Source: drawn-5309-039 with 64k to 2m, nginx 1.22.1: twice as
many bytes a second as with 2m, and small answers eighteen times sooner; 64k let some of them wait
for 30 ms."""
ENCRYPTED_TURN_BYTES = 64 << 10
"""Bytes that the loop encrypts in a turn. Source: drawn-8842-004, nginx 1.22.1, buffers of 256k:
small answers took 2.2 ms with 1m, 1.4 with 128k and 0.64 with 64k, for as many bytes a second;
buffers of 32k without a chunk 0.67."""
_BUSY_RATIO = 0.5
"""Share of the loop's time in encryption. Source: drawn-8842-032, nginx 1.22.1, buffers of 128k, a
loop that is busy for 2 %: a hot file took 1.12 ms with 64k and 0.88 with 128k, small answers 0.23
and 0.21. Assumed between that and the loop that drawn-8842-004 keeps busy."""
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
    """``sendfile-max-chunk``: bytes that one transfer may hold the loop or a thread for.

    One sendfile() of a cold file reads until the socket is full or the chunk is done, and a fast
    client's socket is never full. The chunk bounds how long that takes. Smaller than what the disk
    moves while it positions it wastes the disk, larger it makes everybody wait longer. So it is the
    largest of 512 KiB, 1 MiB and nginx's own 2 MiB (since 1.21.4; unlimited before) whose transfer
    takes no longer than the positioning before it, or than five milliseconds: 512 KiB to 1 MiB on
    hard disks and slow flash, 2 MiB on fast flash. On a slow link the socket fills first and the
    chunk matters less.

    An objective of the workload moves it. One that bounds a time (``hot.p99 <= 5ms``) lets a
    transfer take a tenth of that time at most: everybody else waits for several of them. Where only
    bytes or requests a second are asked for, it is 2 MiB: the disk moves most between two starts.

    Where memory holds the data nothing is made for a disk that nobody reads, nor where hardly a
    file is as large: the default stays.
    Where clients then take large files as fast as they are sent everybody else waits for a chunk of
    each of them: it is 128 KiB, which the sending itself only gains by, since a core's cache holds
    it. With thread pools others wait for the CPU that the threads use, and it is the same.

    Over TLS a pool fills the output buffers and the loop encrypts them, all in a turn unless the
    chunk ends it. Where clients take it as fast, and buffers are larger than that, it is 64 KiB:
    they ask again as soon as they are answered, and others wait for all of them. Where a known rate
    leaves the loop idle for half of the time or more, it is one buffer: less only takes more turns.
    """
    if s.kind == "proxy":
        return not_applicable(
            "sendfile-max-chunk", "A proxy without a cache sends from memory, not from files."
        )
    is_off = s.stays.no_sendfile or s.shared_folder is not None
    if is_off or (s.cleartext_http2 and plan.on):
        return not_applicable(
            "sendfile-max-chunk", "sendfile is off here.", flips="sendfile is enabled"
        )
    spared = _why_no_disk(s)
    chunk = DEFAULT_CHUNK_BYTES if spared else chunk_bytes(s.disk, s.aim)
    bounded = s.build.at_least(1, 21, 4)
    buffer_bytes = _encrypted_at_once(s, plan)
    if bounded and buffer_bytes > ENCRYPTED_TURN_BYTES:
        return _encrypted(s, buffer_bytes)
    if _wait_from_memory(s, plan, chunk) > BUSY_HOST_SECONDS:
        return _for_others(s, plan, bounded=bounded)
    if spared:
        return _without_disk(s, plan, spared, bounded=bounded)
    return _for_the_disk(s, plan, chunk, bounded=bounded)


def _for_the_disk(s: Situation, plan: PoolPlan, chunk: int, *, bounded: bool) -> Decision:
    """The chunk whose cold read holds a thread or the loop no longer than the aim allows."""
    hold = s.disk.read_seconds(chunk)
    transfer = chunk / s.disk.bytes_per_second
    longest = longest_transfer(s.disk, s.aim)
    aimed = f" ({s.aim.text})" if chunk != chunk_bytes(s.disk) else ""
    evidence = aim_evidence(s) + known(
        Quantity("disk read latency", s.disk.latency_seconds, "s", s.disk.provenance),
        Quantity("disk bandwidth", s.disk.bytes_per_second, "bytes/s", s.disk.provenance),
        Quantity("time of one cold chunk (model)", hold, "s", s.disk.provenance),
        Quantity("time of a chunk on the link (model)", _on_link(s, chunk), "s"),
    )
    if chunk == DEFAULT_CHUNK_BYTES and bounded:
        return Decision(
            id="sendfile-max-chunk",
            verdict="keep",
            summary=f"The default of 2m fits this disk{aimed}: it moves one in "
            f"{seconds_text(transfer)}, after {seconds_text(s.disk.latency_seconds)} to the first "
            "byte.",
            evidence=evidence,
            confidence="medium",
            flips_when=[
                "an objective bounds a time"
                if s.aim.only_quantity
                else f"the disks move less than {bytes_text(chunk / longest)}/s",
                *_pace_flip(s, plan, chunk),
            ],
        )
    size = nginx_size(chunk)
    who = "a thread" if plan.on else "the loop"
    default = "2m" if bounded else "without a bound"
    apart = "without TLS " if s.tls else ""
    return Decision(
        id="sendfile-max-chunk",
        verdict="lower" if bounded else "set",
        summary=f"{size}: {apart}one cold chunk then holds {who} for {seconds_text(hold)}{aimed} "
        f"(the default is {default}).",
        settings=[
            setting(
                "sendfile-max-chunk",
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
            if chunk < DEFAULT_CHUNK_BYTES
            else "nginx is 1.21.4 or newer, where it is the default",
            *_pace_flip(s, plan, chunk),
        ],
        next_command=validate_command(s.facts),
    )


def _why_no_disk(s: Situation) -> str:
    """The reason for which no chunk is made for the disk; empty where one is."""
    if s.prediction is not None and s.prediction.hit_ratio >= _RESIDENT_RATIO:
        return "memory holds the files, and no disk is read"
    sizes = s.workload.sizes
    if sizes.provenance != "assumed" and 0 < (sizes.p99_bytes or 0) <= SMALLEST_CHUNK_BYTES:
        return f"99 in 100 answers have less than {nginx_size(SMALLEST_CHUNK_BYTES)}"
    return ""


def _without_disk(s: Situation, plan: PoolPlan, why: str, *, bounded: bool) -> Decision:
    """The default where no disk is read that a chunk could be made for, or no file is so large."""
    size = nginx_size(DEFAULT_CHUNK_BYTES)
    reason = "as since 1.21.4: one fast client does not hold the loop for a whole file"
    line = setting("sendfile-max-chunk", "http", "sendfile_max_chunk", size, reason=reason)
    return Decision(
        id="sendfile-max-chunk",
        verdict="keep" if bounded else "set",
        summary=f"The default of {size} is right: {why}."
        if bounded
        else f"{size}, the default since 1.21.4: {why}.",
        settings=[] if bounded else [line],
        evidence=known(s.page_cache, s.dataset_bytes, s.object_bytes),
        confidence="medium",
        flips_when=[
            "large files are read from the disk: the data outgrows the page cache",
            *_pace_flip(s, plan, DEFAULT_CHUNK_BYTES),
        ],
    )


def _encrypted_at_once(s: Situation, plan: PoolPlan) -> int:
    """The buffer that the loop encrypts in one turn for a client that takes all of it; else 0.

    A slower client's socket ends the turn, and the chunk would only cut what is not encrypted.
    """
    paced = s.workload.concurrency.clients_keep_pace
    if not (paced and plan.on and s.tls and s.read_path.name == "buffers"):
        return 0
    return output_bytes(s, min(LARGE_BUFFER_BYTES, int(s.object_bytes.value or 0)))


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
        size = nginx_size(ENCRYPTED_TURN_BYTES)
        turn = ENCRYPTED_TURN_BYTES / ENCRYPTED_BYTES_PER_SECOND
        said = (
            f"{size}: the loop encrypts a buffer of {nginx_size(buffer_bytes)} in turns of "
            f"{seconds_text(turn)}, between which others get theirs; all of it takes "
            f"{seconds_text(whole)}."
        )
        reason = f"a buffer is encrypted in turns of {seconds_text(turn)}, not at once"
        flip = f"encryption takes less than {percent_text(_BUSY_RATIO, 2)} of the loop's time"
    return Decision(
        id="sendfile-max-chunk",
        verdict="lower",
        summary=said,
        settings=[setting("sendfile-max-chunk", "http", "sendfile_max_chunk", size, reason=reason)],
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
        next_command=validate_command(s.facts),
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
    """The wait of others behind files that memory holds; 0 where it is a disk that counts."""
    i = s.blocking_inputs
    least = _MOSTLY_RESIDENT_RATIO if plan.on else _RESIDENT_RATIO
    if i is None or s.prediction is None or s.prediction.hit_ratio < least:
        return 0.0
    wait_seconds = thread_wait_seconds if plan.on else chunk_wait_seconds
    return wait_seconds(replace(i, clients_keep_pace=True) if as_if_fast else i, chunk)


def _for_others(s: Situation, plan: PoolPlan, *, bounded: bool) -> Decision:
    """The least chunk: others are what it is for, and the sending does not lose by it."""
    size = nginx_size(CHUNK_FROM_MEMORY_BYTES)
    waits = _wait_from_memory(s, plan, DEFAULT_CHUNK_BYTES)
    less = _wait_from_memory(s, plan, CHUNK_FROM_MEMORY_BYTES)
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
        id="sendfile-max-chunk",
        verdict="lower" if bounded else "set",
        summary=f"{size}: memory holds {files} and clients take them as fast as they are sent, "
        f"so that others wait {seconds_text(waits)} with 2m, {seconds_text(less)} with this.",
        settings=[setting("sendfile-max-chunk", "http", "sendfile_max_chunk", size, reason=reason)],
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
        next_command=validate_command(s.facts),
    )


def _pace_flip(s: Situation, plan: PoolPlan, chunk: int) -> list[str]:
    """That others would wait, if clients took large files as fast as they are sent."""
    waits = _wait_from_memory(s, plan, chunk, as_if_fast=True)
    if waits <= BUSY_HOST_SECONDS:
        return []
    size = nginx_size(CHUNK_FROM_MEMORY_BYTES)
    where = "where clients take files as fast as they are sent"
    text = f"{size} {where}; others wait {seconds_text(waits)} behind them"
    return [f"concurrency.clients_keep_pace: {text}"]


def _on_link(s: Situation, chunk: int) -> float | None:
    """Seconds of a chunk on the link: if longer than the disk takes, the socket fills first."""
    link = s.link_bytes_per_second.value
    return None if link is None else chunk / link


NO_AIM = Aim()


def chunk_bytes(disk: ModelDisk, aim: Aim = NO_AIM) -> int:
    """The largest power of two within [512k, 2m] whose transfer is not too long."""
    longest = longest_transfer(disk, aim)
    chunk = DEFAULT_CHUNK_BYTES
    while chunk > SMALLEST_CHUNK_BYTES and chunk / disk.bytes_per_second > longest:
        chunk //= 2
    return chunk


def longest_transfer(disk: ModelDisk, aim: Aim = NO_AIM) -> float:
    """Seconds for which a transfer may hold the disk: as long as the positioning before it.

    As long as it takes where only bytes count, and no longer than objectives let others wait.
    """
    if aim.only_quantity:
        return math.inf
    usual = max(disk.latency_seconds, SHORT_SECONDS)
    return usual if aim.wait_seconds is None else min(usual, aim.wait_seconds)


def aim_evidence(s: Situation) -> list[Evidence]:
    """The objective that decides, where there is one."""
    if not s.aim.text:
        return []
    return [Evidence(fact="workload.objectives", value=s.aim.text, provenance="declared")]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


BUFFERS = 2
LARGE_BUFFER_BYTES = 256 << 10
"""The largest buffer where the kernel reads ahead: more saves next to nothing."""
DIRECT_BUFFER_BYTES = 1 << 20
"""The largest where it does not: the disk moves as much at once as the buffer holds."""
BUFFERS_MEMORY_SHARE = 0.05
"""Share of the page cache that the buffers of all transfers may take away."""


def output_bytes(s: Situation, largest: int) -> int:
    """A buffer of at most ``largest`` bytes: a power of two for which there is memory.

    And, over TLS, which the loop encrypts in the time that objectives let others wait.
    """
    cache, peak = s.page_cache.value or 0.0, s.concurrency.value or 0.0
    room = BUFFERS_MEMORY_SHARE * cache / max(1.0, peak) / BUFFERS
    if s.tls and s.aim.wait_seconds is not None:
        room = min(room, s.aim.wait_seconds * ENCRYPTED_BYTES_PER_SECOND)
    size = BUFFER_BYTES
    while size * 2 <= min(room, largest):
        size *= 2
    return size


def _or_time(s: Situation) -> str:
    return f", or the time that others may wait ({s.aim.limit_text})" if s.aim.limit_text else ""


def decide_output_buffers(s: Situation, plan: PoolPlan) -> Decision:
    """``output-buffers``: read size where sendfile cannot be used.

    TLS, gzip and HTTP/3 need the bytes in nginx's memory, and files are then read a buffer at a
    time: 245 reads, each one task of the pool, for 8 MB with the default of ``2 32k``, and 16 with
    buffers of 512 KiB. Larger buffers pay only together with a pool, since on the loop a larger
    read holds it longer; each transfer holds two of them in memory. Over TLS the loop encrypts what
    a buffer holds in one turn: where an objective bounds a time, that turn takes a tenth of it at
    most.
    """
    folder = s.shared_folder
    copies = f"sendfile is off on {folder}" if folder else "sendfile is off"
    is_off = folder is not None or s.stays.no_sendfile
    if s.kind == "proxy" or not (s.tls or is_off or (s.cleartext_http2 and plan.on)):
        return not_applicable(
            "output-buffers",
            "Files leave through sendfile, which uses no buffers.",
            flips="the site speaks TLS",
        )
    if not plan.on:
        return not_applicable(
            "output-buffers",
            (f"{copies}, but reads" if is_off else "Reads")
            + " stay on the loop, and a larger one would only hold it longer.",
            flips="thread-pools is enabled",
        )
    mean, cache, peak = s.object_bytes, s.page_cache, s.concurrency
    evidence = aim_evidence(s) + known(mean, cache, peak)
    size = output_bytes(s, min(LARGE_BUFFER_BYTES, int(mean.value or 0)))
    if size == BUFFER_BYTES:
        return Decision(
            id="output-buffers",
            verdict="keep",
            summary=f"The default of 2 32k: objects are small, or memory is{_or_time(s)}.",
            evidence=evidence,
            confidence="medium",
            flips_when=["objects are larger than 64 KiB and memory has room for larger buffers"],
        )
    tasks = BUFFER_BYTES / size
    text = nginx_size(size)
    return Decision(
        id="output-buffers",
        verdict="raise",
        summary=f"{BUFFERS} {text}: files are read a buffer at a time, each a task of the pool.",
        settings=[
            setting(
                "output-buffers",
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
