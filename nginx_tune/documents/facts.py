"""``facts``: what is known about a host, and what is not."""

from __future__ import annotations

from msgspec.structs import replace

from nginx_tune.documents.base import Document, Unknown
from nginx_tune.documents.facts_dataset import Dataset, Residency, SizeBucket, Sizes
from nginx_tune.documents.facts_machine import (
    Cpu,
    Kernel,
    Limits,
    Memory,
    Swap,
    Throttled,
)
from nginx_tune.documents.facts_network import (
    Link,
    Network,
    Queues,
    Rings,
    Softnet,
    Tcp,
)
from nginx_tune.documents.facts_nginx import (
    AccessLog,
    ErrorLog,
    Instance,
    Nginx,
    NginxCandidate,
    Running,
    Worker,
)
from nginx_tune.documents.facts_storage import Array, Disk, DiskClass, Layer, PathStorage, Storage
from nginx_tune.documents.listening import Listener

__all__ = [
    "AccessLog",
    "Array",
    "Cpu",
    "Dataset",
    "Disk",
    "DiskClass",
    "ErrorLog",
    "Facts",
    "Instance",
    "Kernel",
    "Layer",
    "Limits",
    "Link",
    "Memory",
    "Network",
    "Nginx",
    "NginxCandidate",
    "PathStorage",
    "Queues",
    "Residency",
    "Rings",
    "Running",
    "SizeBucket",
    "Sizes",
    "Softnet",
    "Storage",
    "Swap",
    "Tcp",
    "Throttled",
    "Unknown",
    "Worker",
]


class Facts(Document, frozen=True, kw_only=True, tag="nginx-tune/facts/1"):
    """What is known about a host."""

    kernel: Kernel = Kernel()
    cpu: Cpu = Cpu()
    memory: Memory = Memory()
    storage: Storage = Storage()
    network: Network = Network()
    limits: Limits = Limits()
    nginx: Nginx = Nginx()
    datasets: list[Dataset] = []
    listeners: list[Listener] = []
    """Listening TCP addresses of the network namespace of the running nginx, else the reader's."""
    error_logs: list[ErrorLog] = []
    access_logs: list[AccessLog] = []
    """What the access logs are that could be looked at; empty where none was."""
    unknown: list[Unknown] = []


def with_nginx_version(facts: Facts | None, version: str) -> Facts:
    """The facts with that version; of its build nothing is known unless the facts say it."""
    known = facts if facts is not None else Facts()
    nginx = replace(
        known.nginx,
        product=known.nginx.product or "nginx",
        version=known.nginx.version and version,
        nginx_version=version,
    )
    return replace(known, nginx=nginx)
