"""Ceilings of each resource of a host, in requests and bytes per second of the workload's mix."""

import math
from dataclasses import replace

from nginx_tune.decide.answer import effective_cpus
from nginx_tune.decide.model.blocking import (
    BOUND_BY_DISKS,
    DISK_READ_CPU_SECONDS,
    OFFLOAD_SECONDS,
    REQUEST_CPU_SECONDS,
    SEND_CPU_BYTES_PER_SECOND,
    Ceiling,
    Prediction,
    find_ceiling,
)
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.sending import ENCRYPTED_BYTES_PER_SECOND, MEMORY_BYTES_PER_SECOND
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import BindingResource, Resource

_HANDSHAKE_SECONDS = 2e-3
"""CPU time of a full TLS handshake with an RSA key of 2048 bits. Source: nginx 1.22.1 with OpenSSL
3.0.19 on an EPYC under ``openssl s_time -new -tls1_2``, 2026-11-30: 1,207 in 2.42 s. NGINX blog,
"NGINX SSL Performance": 45 to 60 % of the signatures of ``openssl speed rsa2048`` (1,147 a second
here, so 1.5 to 1.9 ms), and 350 a second on a core of 2014. A P-256 key takes a quarter: over 2,000
a second on a core (NGINX Sizing Guide, 2016)."""
_LONG_BYTES = 4 << 20
"""Length from which positioning hardly counts in a sequential read, as in the longest read-ahead
that is set."""
FACTOR = 3.0
"""Assumed: largest error, as a factor, of typical disks and of CPU times of another host."""
_PROXIED = 2.0
"""Assumed ratio of the CPU time of a proxied response to that of a file, since it has two
connections."""


def most_at_best(i: BlockingInputs, p: Prediction) -> Ceiling:
    """The lowest ceiling if every read-ahead window had its greatest possible length.

    A file system with its own read-ahead (ZFS) may also read that far ahead.
    """
    read = min(i.object_bytes, max(i.disk_read_bytes, _LONG_BYTES))
    return find_ceiling(replace(i, window_bytes=read, turn_bytes=read, sizes=()), p)


def cpu_seconds_each(s: Situation) -> float:
    """CPU time of one response in seconds, without a new connection."""
    size = sent_bytes(s)
    i, p = s.blocking_inputs, s.prediction
    each = REQUEST_CPU_SECONDS + size / (
        ENCRYPTED_BYTES_PER_SECOND if s.tls else SEND_CPU_BYTES_PER_SECOND
    )
    if i is not None and p is not None:
        each += p.tasks_per_request * OFFLOAD_SECONDS
        each += (1 - p.hit_ratio) * i.disk_reads_per_miss * DISK_READ_CPU_SECONDS
    if s.kind == "proxy":
        each *= _PROXIED
    return max(each, s.workload.cpu_per_request.mean_seconds or 0.0)


def handshake_seconds(s: Situation, requests: float = 1.0) -> float:
    """CPU time in seconds for the TLS handshakes of ``requests`` requests."""
    each = _HANDSHAKE_SECONDS if s.tls else 0.0
    return requests / max(1.0, s.requests_per_connection.value or 1.0) * each


def sent_bytes(s: Situation) -> float:
    """Mean bytes sent for one request."""
    sizes = s.workload.sizes
    return sizes.sent_mean_bytes or (s.object_bytes.value or 1.0) * (sizes.sent_ratio or 1.0)


def find_bindings(s: Situation) -> list[BindingResource]:
    """Every resource with a known ceiling, the lowest first."""
    size = sent_bytes(s)
    found: list[BindingResource] = []

    def add(resource: Resource, bytes_per_second: float, provenance: Provenance) -> None:
        rate = bytes_per_second / size
        if math.isfinite(rate) and rate > 0:
            found.append(
                BindingResource(
                    resource=resource,
                    requests_per_second=float(f"{rate:.4g}"),
                    bytes_per_second=float(f"{bytes_per_second:.4g}"),
                    provenance=provenance,
                )
            )

    link, cpus, client = s.link_bytes_per_second, effective_cpus(s.facts), s.client_rate
    if link.value is not None:
        add("link", link.value, link.provenance)
    if cpus.value is not None:
        measured = s.workload.cpu_per_request
        known = measured.provenance if measured.mean_seconds else "assumed"
        add("cpu", cpus.value / (cpu_seconds_each(s) + handshake_seconds(s)) * size, known)
    if client.value is not None and s.concurrency.value and s.concurrency.provenance != "assumed":
        add("clients", client.value * s.concurrency.value, client.provenance)
    i, p = s.blocking_inputs, s.prediction
    if i is not None and p is not None:
        add("memory", i.workers * MEMORY_BYTES_PER_SECOND, "assumed")
        ceiling = find_ceiling(replace(i, link_bytes_per_second=None), p)
        if ceiling.name == BOUND_BY_DISKS:
            add("disks", ceiling.bytes_per_second, s.disk.provenance)
    return sorted(found, key=lambda binding: binding.requests_per_second)
