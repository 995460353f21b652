"""File bytes to the socket without a copy: ``sendfile``, ``sendfile-max-chunk``."""

import math
from dataclasses import replace
from typing import Final

from nginx_tune.decide.answer import (
    SENDFILE_OFF,
    Quantity,
    known,
    not_applicable,
    setting,
    validate_command,
)
from nginx_tune.decide.bodies import LARGE_BUFFER_BYTES, output_bytes
from nginx_tune.decide.model.blocking import BUSY_HOST_SECONDS
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.reads import SENDFILE_CHUNK_BYTES
from nginx_tune.decide.model.sending import ENCRYPTED_BYTES_PER_SECOND, chunk_wait_seconds
from nginx_tune.decide.objectives import Aim
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import filesystems_under
from nginx_tune.documents.decisions import Decision, Evidence, Predicted
from nginx_tune.documents.units import bytes_text, nginx_size, percent_text, seconds_text

COPIED: Final = "io-sendfile-off-static"
"""The audit rule that this decision violates intentionally with ``sendfile off``."""
FILESYSTEM: Final = "storage.paths filesystem"


def decide_sendfile(s: Situation, plan: PoolPlan) -> Decision:
    """``sendfile``: file bytes to the socket without a copy through nginx.

    It is on for every site that serves files: the kernel moves pages from its cache to the socket.
    TLS, gzip and HTTP/3 cannot use it, and it does no harm there. It is off on shared folders of
    virtual machines, which return stale pages to it. It is also off where thread pools read for
    cleartext HTTP/2: a connection has only one sendfile() in the pool at a time, so all its streams
    wait for a cold one, and each frame is a separate task. Measured
    (``benchmarks/scenarios/http2-cold-files.toml``): p90 of 52 ms, and 0.3 ms with sendfile off.
    Source: ngx_linux_sendfile_thread(), ngx_http_v2_filter_send().

    ``tcp_nopush`` is neither added nor removed; a generated file keeps it where the installed one
    has it. It saves a packet and a wake-up of the client per response: with small files at 20,000 a
    second over loopback, requests without a file took 1.2 ms with it and 2.1 without. But over
    loopback and veth (kernel 6.18, BBR) responses of 128 KiB to a client that had paused came 10 to
    80 ms later with it (benchmarks/README.md, tcp_nopush).
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
            summary=f"Off: with sendfile, files on {shared} (a shared folder) are sent stale or "
            "truncated.",
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
        why = "a cleartext HTTP/2 connection has only one sendfile() in the pool at a time"
        reason = f"nginx-tune: ignore[{COPIED}] {why}"
        known = s.workload.http_version.provenance != "assumed"
        fact = "workload.http_version.value" if known else "site.cleartext_http2"
        return Decision(
            id="sendfile",
            verdict="disable",
            summary="Off with thread pools: a cleartext HTTP/2 connection has only one sendfile() "
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
            risks=["file bytes are copied through nginx's memory: more CPU per byte"],
        )
    offload = " (in the pool, a chunk at a time)" if plan.on else ""
    reason = f"no copy through nginx's memory{offload}"
    if s.tls:
        reason = "for cleartext and kernel TLS; other TLS bodies are read into output_buffers"
    settings = [setting("sendfile", "http", "sendfile", "on", reason=reason)]
    summary = "On: file bytes go to the socket without a copy through nginx's memory."
    if s.tls:
        summary = "On: bodies without TLS or with kernel TLS are not copied through nginx's memory."
    return Decision(
        id="sendfile",
        verdict="enable",
        summary=summary,
        settings=settings,
        evidence=[
            Evidence(fact="workload.tls", value=s.tls, provenance=s.workload.tls.provenance),
            *[
                Evidence(fact=FILESYSTEM, value=filesystem)
                for filesystem in filesystems_under(s.site.roots, s.facts.storage)
            ],
        ],
        confidence="high",
        flips_when=["the files are on a virtual machine's shared folder"],
    )


SMALLEST_CHUNK_BYTES = 512 << 10
"""Smallest chunk, the value of source row A3; smaller chunks only add system calls."""
SHORT_SECONDS = 5e-3
"""Longest transfer that hardly delays other requests."""
DEFAULT_CHUNK_BYTES = SENDFILE_CHUNK_BYTES
"""nginx's default since 1.21.4 (CHANGES); earlier versions have no limit."""
SHORT_CHUNK_BYTES = 128 << 10
"""Chunk where other requests wait for what is sent from memory or encrypted. Source, nginx 1.22.1,
Reno: drawn-5309-039 with 64k to 2m, where small responses took 0.57 ms with 128k and 2.8 with 2m
(p99 4.1 and 7.5), at 11 % fewer bytes per second; with 64k 0.43 ms, at 20 % fewer. drawn-7717-001
and drawn-6151-036: 0.23 and 0.95 ms, 1.4 and 2.3, at 12 and 14 % fewer. Over TLS drawn-8842-004,
buffers of 256k: 0.69 ms with 128k, 1.3 with 2m, as many bytes; with 64k 0.61 ms, at 20 % fewer."""
_FEWER_BYTES = "up to 14 % fewer bytes per second, measured where the CPU is the limit"
_BUSY_RATIO = 0.5
"""Share of the loop's time in encryption above which short turns pay; a value between two measured
loops. In drawn-8842-032 (nginx 1.22.1, buffers of 128k, a loop busy for 2 %) a hot file took
1.12 ms with 64k and 0.88 with 128k, small responses 0.23 and 0.21; the loop of drawn-8842-004 was
busy."""
_RESIDENT_RATIO = 0.995
"""Hit ratio from which the disk does not matter. With fewer hits a small chunk wastes the disk
(drawn-6151-015 and -5309-038: 1.3 to 1.4 times as long)."""
_WAIT_FACTOR = 3.0
"""Largest error of the model in the ratio of two delays, as a factor."""


def decide_sendfile_max_chunk(s: Situation, plan: PoolPlan) -> Decision:
    """``sendfile-max-chunk``: the most bytes that one call may send.

    One sendfile() of a cold file reads until the socket is full or the chunk is done, and the
    socket of a fast client never fills. The chunk limits how long the call blocks the loop or a
    thread. A chunk smaller than what the disk transfers during a seek wastes the disk; a larger one
    delays all other requests. So it is the largest of 512 KiB, 1 MiB and nginx's own 2 MiB (since
    1.21.4; unlimited before) whose transfer takes no longer than the seek before it, or five
    milliseconds: 512 KiB to 1 MiB on hard disks and slow flash, 2 MiB on fast flash. On a slow link
    the socket fills first and the chunk matters less.

    Objectives of the workload change it. With a limit on time (``hot.p99 <= 5ms``) a transfer may
    take a tenth of that at most, since other requests wait for several. Where only bytes or
    requests per second are required it is 2 MiB, with which the disk transfers most per seek.

    Where the data is in memory, or hardly a file is as large as a chunk, the disk does not matter
    and the default stays. If clients also take large files as fast as nginx sends them, all other
    requests wait for a chunk of each. The chunk is then 128 KiB. That is a trade: other responses
    take a fifth to two thirds of the time, and where the CPU is the limit 11 to 14 % fewer bytes
    are sent per second. So the default stays where only throughput is required. With thread pools
    each chunk is a task, and the disk determines the chunk: 128 KiB halved the bytes per second
    (drawn-6151-020, Reno) and made other responses 0.5 ms faster.

    Over TLS a pool fills the output buffers and the loop encrypts each in one turn unless the chunk
    ends it. With such fast clients and larger buffers it is 128 KiB too, since other requests wait
    for the turns of all clients. Where a known rate leaves the loop idle for half of the time or
    more, it is one buffer: a smaller chunk only takes more turns.
    """
    if s.kind == "proxy":
        return not_applicable(
            "sendfile-max-chunk", "A proxy without a cache sends from memory, not from files."
        )
    off = s.stays.no_sendfile
    if off or s.shared_folder is not None or (s.cleartext_http2 and plan.on):
        return not_applicable(
            "sendfile-max-chunk", f"{off or SENDFILE_OFF}.", flips="sendfile is enabled"
        )
    spared = _why_no_disk(s)
    chunk = DEFAULT_CHUNK_BYTES if spared else chunk_bytes(s.disk, s.aim)
    bounded = s.build.at_least(1, 21, 4)
    buffer_bytes = _encrypted_at_once(s, plan)
    if bounded and buffer_bytes > SHORT_CHUNK_BYTES:
        return _encrypted(s, buffer_bytes)
    if _wait_from_memory(s, plan, chunk) > BUSY_HOST_SECONDS:
        return _for_others(s, plan, bounded=bounded)
    if spared:
        return _without_disk(s, plan, spared, bounded=bounded)
    return _for_the_disk(s, plan, chunk, bounded=bounded)


def _for_the_disk(s: Situation, plan: PoolPlan, chunk: int, *, bounded: bool) -> Decision:
    """The decision for data on disk: a cold read of the chunk is as short as objectives require."""
    hold = s.disk.read_seconds(chunk)
    transfer = chunk / s.disk.bytes_per_second
    longest = longest_transfer(s.disk, s.aim)
    aimed = f" ({s.aim.text})" if chunk != chunk_bytes(s.disk) else ""
    evidence = s.aim.evidence + known(
        Quantity("disk read latency", s.disk.latency_seconds, "s", s.disk.provenance),
        Quantity("disk bandwidth", s.disk.bytes_per_second, "bytes/s", s.disk.provenance),
        Quantity("time of one cold chunk (model)", hold, "s", s.disk.provenance),
        Quantity("time of a chunk on the link (model)", _on_link(s, chunk), "s"),
    )
    if chunk == DEFAULT_CHUNK_BYTES and bounded:
        return Decision(
            id="sendfile-max-chunk",
            verdict="keep",
            summary=f"The default of 2m suits this disk{aimed}: reading a chunk takes "
            f"{seconds_text(transfer)}, after a latency of {seconds_text(s.disk.latency_seconds)}.",
            evidence=evidence,
            confidence="medium",
            flips_when=[
                "an objective limits a time"
                if s.aim.only_quantity
                else f"the disks transfer less than {bytes_text(chunk / longest)}/s",
                *_pace_flip(s, plan, chunk),
            ],
        )
    size = nginx_size(chunk)
    who = "a thread of the pool" if plan.on else "the loop"
    default = "2m" if bounded else "unlimited"
    apart = "without TLS " if s.tls else ""
    return Decision(
        id="sendfile-max-chunk",
        verdict="lower" if bounded else "set",
        summary=f"{size}: {apart}a cold chunk then blocks {who} for {seconds_text(hold)}{aimed} "
        f"(the default is {default}).",
        settings=[
            setting(
                "sendfile-max-chunk",
                "http",
                "sendfile_max_chunk",
                size,
                reason=f"{apart}a cold chunk blocks {who} for {seconds_text(hold)}",
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
            f"the disks transfer more than {bytes_text(2 * chunk / longest)}/s"
            if chunk < DEFAULT_CHUNK_BYTES
            else "nginx is 1.21.4 or newer, where it is the default",
            *_pace_flip(s, plan, chunk),
        ],
        next_command=validate_command(s.facts),
    )


def _why_no_disk(s: Situation) -> str:
    """The reason why the disk does not determine the chunk; empty if it does."""
    if s.prediction is not None and s.prediction.hit_ratio >= _RESIDENT_RATIO:
        return "the files are in memory, and no disk is read"
    sizes = s.workload.sizes
    if sizes.provenance != "assumed" and 0 < (sizes.p99_bytes or 0) <= SMALLEST_CHUNK_BYTES:
        return f"99 in 100 responses are smaller than {nginx_size(SMALLEST_CHUNK_BYTES)}"
    return ""


def _without_disk(s: Situation, plan: PoolPlan, why: str, *, bounded: bool) -> Decision:
    """The decision for the default chunk, if the disk does not determine it."""
    size = nginx_size(DEFAULT_CHUNK_BYTES)
    reason = "the default since 1.21.4: one fast client cannot block the loop for a whole file"
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
            "the data outgrows the page cache, so that large files are read from disk",
            *_pace_flip(s, plan, DEFAULT_CHUNK_BYTES),
        ],
    )


def _encrypted_at_once(s: Situation, plan: PoolPlan) -> int:
    """Bytes of the buffer that the loop encrypts in one turn for a fast client; else 0.

    For a slower client, the full socket ends the turn.
    """
    paced = s.workload.concurrency.clients_keep_pace
    if not (paced and plan.on and s.tls and s.read_path.name == "buffers"):
        return 0
    return output_bytes(s, min(LARGE_BUFFER_BYTES, int(s.object_bytes.value or 0)))


def _encrypted(s: Situation, buffer_bytes: int) -> Decision:
    """The decision for bodies that a pool reads into buffers and the loop encrypts."""
    whole = buffer_bytes / ENCRYPTED_BYTES_PER_SECOND
    busy = _encrypting_ratio(s)
    if busy is not None and busy < _BUSY_RATIO:
        size = nginx_size(buffer_bytes)
        summary = (
            f"{size}: the loop encrypts one output buffer in a turn of {seconds_text(whole)}; "
            f"all encryption takes {percent_text(busy, 2)} of its time (model)."
        )
        reason = f"one output buffer per turn of {seconds_text(whole)}; less takes more turns"
        flip = f"encryption takes more than {percent_text(_BUSY_RATIO, 2)} of the loop's time"
    else:
        size = nginx_size(SHORT_CHUNK_BYTES)
        turn = SHORT_CHUNK_BYTES / ENCRYPTED_BYTES_PER_SECOND
        summary = (
            f"{size}: the loop encrypts a buffer of {nginx_size(buffer_bytes)} in turns of "
            f"{seconds_text(turn)} and serves other clients in between, instead of in one turn of "
            f"{seconds_text(whole)}."
        )
        reason = f"a buffer is encrypted in turns of {seconds_text(turn)}, not at once"
        flip = f"encryption takes less than {percent_text(_BUSY_RATIO, 2)} of the loop's time"
    return Decision(
        id="sendfile-max-chunk",
        verdict="lower",
        summary=summary,
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
            "the site drops TLS, or most requests come without it",
            flip,
        ],
        next_command=validate_command(s.facts),
    )


def _encrypting_ratio(s: Situation) -> float | None:
    """Share of a loop's time in encryption; None where the rate is not known."""
    if not s.rate.value or s.rate.provenance == "assumed":
        return None
    per_second = s.rate.value * (s.object_bytes.value or 0.0)
    return per_second / ENCRYPTED_BYTES_PER_SECOND / s.workers


def _wait_from_memory(
    s: Situation, plan: PoolPlan, chunk: int, *, as_if_fast: bool = False
) -> float:
    """Seconds that other requests wait for files in memory.

    0 if the disk or a pool determines the chunk, or if only throughput counts.
    """
    i = s.blocking_inputs
    if i is None or plan.on or s.aim.only_quantity:
        return 0.0
    if s.prediction is None or s.prediction.hit_ratio < _RESIDENT_RATIO:
        return 0.0
    return chunk_wait_seconds(replace(i, clients_keep_pace=True) if as_if_fast else i, chunk)


def _for_others(s: Situation, plan: PoolPlan, *, bounded: bool) -> Decision:
    """The decision for the smallest chunk, where other requests wait less at the same speed."""
    size = nginx_size(SHORT_CHUNK_BYTES)
    waits = _wait_from_memory(s, plan, DEFAULT_CHUNK_BYTES)
    less = _wait_from_memory(s, plan, SHORT_CHUNK_BYTES)
    origin = s.workload.concurrency.provenance  # it also applies to clients_keep_pace
    reason = "the files are in memory, and other requests wait for a chunk of each file being sent"
    predicted = []
    if bounded and not s.rate.value:
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
        summary=f"{size}: the files are in memory and clients take them as fast as nginx sends, so "
        f"other requests wait {seconds_text(waits)} with 2m and {seconds_text(less)} with this.",
        settings=[setting("sendfile-max-chunk", "http", "sendfile_max_chunk", size, reason=reason)],
        evidence=[
            *known(s.page_cache, s.dataset_bytes, s.object_bytes, s.concurrency, s.rate),
            *known(Quantity("wait behind files being sent (model)", waits, "s", origin)),
        ],
        predicted=predicted,
        confidence="medium",
        flips_when=[
            "clients are slower than the loop: their sockets are full",
            "the data outgrows the page cache",
        ],
        risks=[_FEWER_BYTES],
        next_command=validate_command(s.facts),
    )


def _pace_flip(s: Situation, plan: PoolPlan, chunk: int) -> list[str]:
    """For ``flips_when``: the effect of clients that keep pace; empty if the chunk stays."""
    waits = _wait_from_memory(s, plan, chunk, as_if_fast=True)
    if waits <= BUSY_HOST_SECONDS:
        return []
    size = nginx_size(SHORT_CHUNK_BYTES)
    where = "where clients take files as fast as nginx sends"
    text = f"{size} {where}; other requests wait {seconds_text(waits)} behind them"
    return [f"concurrency.clients_keep_pace: {text}"]


def _on_link(s: Situation, chunk: int) -> float | None:
    """Seconds that a chunk takes on the link; None where its speed is not known."""
    link = s.link_bytes_per_second.value
    return None if link is None else chunk / link


NO_AIM = Aim()


def chunk_bytes(disk: ModelDisk, aim: Aim = NO_AIM) -> int:
    """The largest chunk (512k, 1m or 2m) whose transfer is short enough."""
    longest = longest_transfer(disk, aim)
    chunk = DEFAULT_CHUNK_BYTES
    while chunk > SMALLEST_CHUNK_BYTES and chunk / disk.bytes_per_second > longest:
        chunk //= 2
    return chunk


def longest_transfer(disk: ModelDisk, aim: Aim = NO_AIM) -> float:
    """Longest transfer in seconds: as long as the seek before it, or as objectives allow.

    The time is unlimited if only throughput counts.
    """
    if aim.only_quantity:
        return math.inf
    usual = max(disk.latency_seconds, SHORT_SECONDS)
    return usual if aim.wait_seconds is None else min(usual, aim.wait_seconds)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
