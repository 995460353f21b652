"""How long others wait behind large answers that memory holds, where nothing else ends a turn.

Read through buffers, a file is read and sent until the socket takes no more (``SOCKET_BYTES``).
Who takes it as fast as it comes, on the server's own network, takes all of it in one turn of the
loop: no ``sendfile_max_chunk`` ends it, since each pass carries the two buffers alone. A task of a
pool does: the loop turns to others after every buffer.

Source: ngx_output_chain(), ngx_http_write_filter(); a cell drawn at random, files of 20 MB among
        small ones over TLS, all in memory: small answers took 1.1 to 1.8 ms, 0.4 ms with pools.
"""

from __future__ import annotations

from nginx_tune.model.inputs import BlockingInputs

MEMORY_BYTES_PER_SECOND = 3e9
"""Cached bytes that one worker gets into sockets: 913-1081 x 4 MiB/s (LAB-NOTES §1), less a
margin, since there the pool threads used a second core."""
ENCRYPTED_BYTES_PER_SECOND = 1.2e9
"""The same over TLS, AES-256-GCM with AES-NI: 2 ms of CPU for 2.6 MB, nginx 1.22.1."""
_BEARABLE = 0.7
"""Share of its time that a loop may send, the price of pools included: beyond it CPU is what is
short, and pools take more of it."""


def send_seconds(i: BlockingInputs, size_bytes: float) -> float:
    """CPU time for sending so many bytes."""
    return size_bytes / (ENCRYPTED_BYTES_PER_SECOND if i.encrypts else MEMORY_BYTES_PER_SECOND)


def turn_wait_seconds(i: BlockingInputs, offload_seconds: float) -> float:
    """Mean wait of one event behind answers that are sent in one turn; 0 where nobody knows.

    ``offload_seconds``: what a pool would take of the loop for one answer.
    Source: Pollaczek-Khinchine, W = lambda * E[S^2] / (2 * (1 - rho)).
    """
    if not i.clients_keep_pace or not i.goes_on_bytes or not i.rate_per_second:
        return 0.0
    each = i.rate_per_second / i.workers
    mean = send_seconds(i, i.object_bytes)
    used = each * mean
    if used + each * offload_seconds > _BEARABLE:
        return 0.0
    squares = sum(g.share * g.over_mean**2 for g in i.sizes) or 1.0
    return each * squares * mean**2 / (2 * (1 - used))
