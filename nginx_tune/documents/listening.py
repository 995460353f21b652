"""Parts of ``facts`` about listening sockets."""

from __future__ import annotations

from nginx_tune.documents.base import Part


class ListenSocket(Part, frozen=True, kw_only=True):
    """One listening TCP socket, as sock_diag gives it."""

    address: str
    port: int
    inode: int = 0
    backlog: int | None = None
    """The effective one: what listen(2) was given, cut to somaxconn as it was at that time."""
    accept_queue: int | None = None
    """Connections that wait to be accepted."""
    drops: int | None = None
    """Connections dropped at this socket since it listens."""


class Listening(Part, frozen=True, kw_only=True):
    """The listening sockets of one network namespace, and what bounds them."""

    sockets: list[ListenSocket] = []
    somaxconn: int | None = None
    """Of that namespace, now."""
    sysctls: dict[str, str] | None = None
    """Those that this namespace has for itself, as read; null where nobody asked, and of the
    reader's own."""


class Listener(Part, frozen=True, kw_only=True):
    """An address that is listened on, with all its sockets (``reuseport`` has one per worker)."""

    address: str
    port: int
    sockets: int = 1
    backlog: int | None = None
    """Effective, the least of its sockets."""
    accept_queue: int | None = None
    """Connections that wait to be accepted, over all its sockets."""
    longest_accept_queue: int | None = None
    drops: int | None = None
    """Connections dropped since it listens, over all its sockets."""
    of_nginx: bool | None = None
    """Whether the running nginx holds it."""
