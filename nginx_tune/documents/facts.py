"""``facts``: a host as far as it is known; nginx itself, its processes and its logs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from nginx_tune.documents.base import VOLATILE, Document, Part, Unknown
from nginx_tune.documents.facts_machine import (
    Cpu,
    Kernel,
    Limits,
    Link,
    Listener,
    Memory,
    Network,
    Queues,
    Rings,
    Softnet,
    Swap,
    Tcp,
    Throttled,
)
from nginx_tune.documents.facts_storage import (
    Array,
    Dataset,
    Disk,
    DiskClass,
    Layer,
    PathStorage,
    Residency,
    SizeBucket,
    Sizes,
    Storage,
)
from nginx_tune.documents.log_messages import LoggedMessage

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


class Worker(Part, frozen=True, kw_only=True):
    """A running nginx worker process."""

    pid: Annotated[int, VOLATILE]
    nofile_soft: int | None = None
    nofile_hard: int | None = None
    threads: Annotated[int | None, VOLATILE] = None
    cpus_allowed: str | None = None
    age_seconds: Annotated[float | None, VOLATILE] = None
    user_id: int | None = None
    """Effective."""
    capabilities: list[str] | None = None
    """Effective."""
    limits: dict[str, int] = {}
    """Other soft limits that are set: ``processes``, ``locked_memory_bytes``,
    ``address_space_bytes``, ``core_file_bytes``, ``file_size_bytes``."""


class Running(Part, frozen=True, kw_only=True):
    """A running nginx master and its workers."""

    pid: Annotated[int, VOLATILE]
    binary: str | None = None
    conf_path: str | None = None
    prefix: str | None = None
    given: str = ""
    """Directives that its command line gives (``-g``); values of ``env`` left out."""
    workers: list[Worker] = []
    other_masters: Annotated[list[int], VOLATILE] = []
    """Process ids of further nginx masters on this host."""
    other_mount_namespace: bool | None = None
    """True when it sees other files than the reader: in a container, say, or a chroot."""
    other_network_namespace: bool | None = None
    cpus_allowed: str | None = None
    """Of the master; workers inherit it."""
    age_seconds: Annotated[float | None, VOLATILE] = None
    generations: Annotated[int | None, VOLATILE] = None
    """Sets of workers that live, each of one start or reload; more than one: connections keep
    old workers alive."""
    reloaded: Annotated[bool | None, VOLATILE] = None
    """Whether the workers are of a later reload than the master's start."""
    leaving_workers: Annotated[int, VOLATILE] = 0
    """Workers of an earlier generation that are shutting down."""
    modules: list[str] | None = None
    """Dynamic modules that it has loaded, by file."""
    ktls_connections: Annotated[int | None, VOLATILE] = None
    """Connections whose sending the kernel encrypts now, in its network namespace."""


class Instance(Part, frozen=True, kw_only=True):
    """One of the nginx masters of a host."""

    pid: Annotated[int, VOLATILE]
    binary: str | None = None
    conf_path: str | None = None
    """As on its command line; null when it took the compiled-in one."""
    workers: int = 0
    other_mount_namespace: bool | None = None


IN_CONTAINER = "in a container or a chroot"
"""In the reason of a master that has another root than who looks."""


class NginxCandidate(Part, frozen=True, kw_only=True):
    """An nginx that could have been meant."""

    binary: str = ""
    """Where its program lies, or the name of one that was looked for; empty when not known."""
    source: Literal["named", "running", "installed"]
    pid: Annotated[int, VOLATILE] = 0
    """Of its master; 0 for one that does not run."""
    chosen: bool = False
    """Whether its program is the nginx that is meant."""
    reason: str = ""
    """Why it was chosen or not."""


class Nginx(Part, frozen=True, kw_only=True):
    """The nginx program."""

    binary: str | None = None
    product: str | None = None
    """``nginx``, ``openresty``, ``angie``, ``freenginx``, ``tengine``, ``nginx-plus``."""
    version: str | None = None
    """The product's own version."""
    nginx_version: str | None = None
    """The nginx version that features are judged by."""
    flags: list[str] = []
    """Configure arguments without their values for compiler options, e.g. ``--with-threads``."""
    conf_path: str | None = None
    prefix: str | None = None
    error_log_path: str | None = None
    user: str | None = None
    """Of its configuration, ``user``, and the group if there is one; null when that was not read
    or does not say."""
    mime_types_path: str | None = None
    """The file of media types that its configuration includes; null as for ``user``."""
    gzip: list[str] | None = None
    """The ``gzip`` lines of http in its configuration that can be written elsewhere, such as
    ``gzip on``; null as for ``user``."""
    tcp_nopush: bool | None = None
    """Whether http in its configuration says ``tcp_nopush on``; null as for ``user``."""
    pid_path: str | None = None
    libc: str | None = None
    """``glibc`` or ``musl``: they count CPUs each by a rule of their own."""
    libc_version: str | None = None
    openssl: str | None = None
    """The TLS library it runs with, e.g. ``OpenSSL 3.0.15``."""
    openssl_built: str | None = None
    """The one it was built with."""
    running: Running | None = None
    instances: list[Instance] = []
    """Every master that can be seen; ``running`` is the one that was looked at (``--pid``)."""
    choice: Annotated[str, VOLATILE] = ""
    """Which one was taken, and why, in a sentence; empty when there is none."""
    candidates: list[NginxCandidate] = []
    """What could have been meant: the chosen one, and why the others were not."""
    may_run: bool = True
    """Whether the program may be run; one of somebody else's or in a container is only read."""


class AccessLog(Part, frozen=True, kw_only=True):
    """An access log of the configuration that the host's nginx has."""

    path: str
    """As nginx opens it."""
    is_file: bool
    """Whether it is a plain file, or not there yet; false for a pipe, a terminal, a device or a
    link to one, as ``/var/log/nginx/access.log`` is in the official images."""


class ErrorLog(Part, frozen=True, kw_only=True):
    """What an nginx error log says about what workers ran out of."""

    path: str
    pool_overflow: Annotated[dict[str, int], VOLATILE] = {}
    """Lines ``thread pool "NAME" queue overflow`` by pool name, in the part that was read."""
    connections_exhausted: Annotated[dict[str, int], VOLATILE] = {}
    """Lines ``N worker_connections are not enough`` by N: each is a refused connection."""
    operations_too_slow: Annotated[int, VOLATILE] = 0
    """Lines ``thread operation took too long`` (a minute; nginx 1.25.4 and later)."""
    messages: Annotated[list[LoggedMessage], VOLATILE] = []
    """Lines with any message that names a cause (``documents/log_messages.py``)."""
    bytes_read: Annotated[int | None, VOLATILE] = None
    complete: Annotated[bool, VOLATILE] = True
    """False when only the last part of a large file was read."""


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
    declared: bool | UnsetType = UNSET
    """Left out of what was read of a host; true where somebody described it."""


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
