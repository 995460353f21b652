"""``facts``: what is known of a host. This file has nginx itself, its processes and its logs."""

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from nginx_tune.documents.base import VOLATILE, Document, Natural, Part, Unknown
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

    pid: Annotated[Natural, VOLATILE]
    nofile_soft: Natural | None = None
    nofile_hard: Natural | None = None
    threads: Annotated[Natural | None, VOLATILE] = None
    cpus_allowed: str | None = None
    age_seconds: Annotated[float | None, VOLATILE] = None
    user_id: Natural | None = None
    """Effective user id."""
    capabilities: list[str] | None = None
    """Effective capabilities."""
    limits: dict[str, Natural] = {}
    """Other soft limits, if set: ``processes``, ``locked_memory_bytes``,
    ``address_space_bytes``, ``core_file_bytes``, ``file_size_bytes``."""


class Running(Part, frozen=True, kw_only=True):
    """A running nginx master and its workers."""

    pid: Annotated[Natural, VOLATILE]
    binary: str | None = None
    conf_path: str | None = None
    prefix: str | None = None
    given: str = ""
    """Directives from its command line (``-g``), without values of ``env``."""
    workers: list[Worker] = []
    other_masters: Annotated[list[Natural], VOLATILE] = []
    """Process ids of further nginx masters on this host."""
    other_mount_namespace: bool | None = None
    """True if nginx sees other files than nginx-tune does, as in a container or a chroot."""
    other_network_namespace: bool | None = None
    cpus_allowed: str | None = None
    """CPUs allowed for the master, which workers inherit."""
    age_seconds: Annotated[float | None, VOLATILE] = None
    generations: Annotated[Natural | None, VOLATILE] = None
    """Worker generations alive, one per start or reload; more than one where connections keep old
    workers alive."""
    reloaded: Annotated[bool | None, VOLATILE] = None
    """True if the master has reloaded since its start."""
    leaving_workers: Annotated[Natural, VOLATILE] = 0
    """Workers of an earlier generation that are shutting down."""
    modules: list[str] | None = None
    """Files of its loaded dynamic modules."""
    ktls_connections: Annotated[Natural | None, VOLATILE] = None
    """Connections that the kernel encrypts now, in its network namespace."""


class Instance(Part, frozen=True, kw_only=True):
    """One of the nginx masters of a host."""

    pid: Annotated[Natural, VOLATILE]
    binary: str | None = None
    conf_path: str | None = None
    """Path on its command line; null for the compiled-in path."""
    workers: Natural = 0
    other_mount_namespace: bool | None = None


IN_CONTAINER = "in a container or a chroot"
"""Part of the reason for a master whose root directory differs from nginx-tune's."""


class NginxCandidate(Part, frozen=True, kw_only=True):
    """An nginx that may be the intended one."""

    binary: str = ""
    """Path of its program, or the name that was searched for; empty when not known."""
    source: Literal["named", "running", "installed"]
    pid: Annotated[Natural, VOLATILE] = 0
    """Process id of its master; 0 if nginx does not run."""
    chosen: bool = False
    """True if nginx-tune chose its program."""
    reason: str = ""
    """The reason for or against it."""


class Nginx(Part, frozen=True, kw_only=True):
    """The nginx program."""

    binary: str | None = None
    product: str | None = None
    """``nginx``, ``openresty``, ``angie``, ``freenginx``, ``tengine``, ``nginx-plus``."""
    version: str | None = None
    """The product's own version."""
    nginx_version: str | None = None
    """The nginx version that determines features."""
    flags: list[str] = []
    """Configure arguments without their values for compiler options, e.g. ``--with-threads``."""
    conf_path: str | None = None
    prefix: str | None = None
    error_log_path: str | None = None
    user: str | None = None
    """User and group in its configuration; null if the configuration was not read or has no
    ``user``."""
    mime_types_path: str | None = None
    """The file of media types that its configuration includes; null if none was found."""
    gzip: list[str] | None = None
    """The ``gzip`` lines of http in its configuration that fit another configuration too, such as
    ``gzip on``; null if the configuration was not read."""
    tcp_nopush: bool | None = None
    """True if http in its configuration has ``tcp_nopush on``; null if the configuration was not
    read."""
    pid_path: str | None = None
    libc: str | None = None
    """``glibc`` or ``musl``, which count CPUs differently."""
    libc_version: str | None = None
    openssl: str | None = None
    """The TLS library that nginx runs with, e.g. ``OpenSSL 3.0.15``."""
    openssl_built: str | None = None
    """The TLS library that nginx was built with."""
    running: Running | None = None
    instances: list[Instance] = []
    """All visible masters; ``running`` is the examined one (``--pid``)."""
    choice: Annotated[str, VOLATILE] = ""
    """The chosen master with the reason, in a sentence; empty if no master was chosen."""
    candidates: list[NginxCandidate] = []
    """All candidates with the reason for or against each."""
    may_run: bool = True
    """True if the program may be run. A program of another user or of a container is only read."""


class AccessLog(Part, frozen=True, kw_only=True):
    """An access log in the configuration of the host's nginx."""

    path: str
    """Path as nginx opens it."""
    is_file: bool
    """True for a regular file or a missing one; false for a pipe, a terminal, a device or a link to
    one, such as ``/var/log/nginx/access.log`` in the official images."""


class ErrorLog(Part, frozen=True, kw_only=True):
    """Messages of an nginx error log on exhausted resources."""

    path: str
    pool_overflow: Annotated[dict[str, Natural], VOLATILE] = {}
    """Lines ``thread pool "NAME" queue overflow`` by pool name, in the part that was read."""
    connections_exhausted: Annotated[dict[str, Natural], VOLATILE] = {}
    """Number of lines ``N worker_connections are not enough`` by N; each line is a refused
    connection."""
    operations_too_slow: Annotated[Natural, VOLATILE] = 0
    """Lines ``thread operation took too long`` (a minute; nginx 1.25.4 and later)."""
    messages: Annotated[list[LoggedMessage], VOLATILE] = []
    """Lines with a message that names a cause (``documents/log_messages.py``)."""
    bytes_read: Annotated[Natural | None, VOLATILE] = None
    complete: Annotated[bool, VOLATILE] = True
    """False when only the last part of a large file was read."""


class Facts(Document, frozen=True, kw_only=True, tag="nginx-tune/facts/1"):
    """All facts of a host."""

    kernel: Kernel = Kernel()
    cpu: Cpu = Cpu()
    memory: Memory = Memory()
    storage: Storage = Storage()
    network: Network = Network()
    limits: Limits = Limits()
    nginx: Nginx = Nginx()
    datasets: list[Dataset] = []
    listeners: list[Listener] = []
    """Listening TCP addresses in the network namespace of the running nginx, or else of
    nginx-tune."""
    error_logs: list[ErrorLog] = []
    access_logs: list[AccessLog] = []
    """The access logs that could be examined."""
    unknown: list[Unknown] = []
    declared: bool | UnsetType = UNSET
    """True for a described host; omitted for facts that were read."""


def with_nginx_version(facts: Facts | None, version: str) -> Facts:
    """The facts with another nginx version; the known facts of its build stay."""
    known = facts if facts is not None else Facts()
    nginx = replace(
        known.nginx,
        product=known.nginx.product or "nginx",
        version=known.nginx.version and version,
        nginx_version=version,
    )
    return replace(known, nginx=nginx)
