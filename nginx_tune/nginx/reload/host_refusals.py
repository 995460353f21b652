"""Reasons for nginx to refuse a configuration on this host that a sandbox does not show.

A sandbox has directories, addresses and ports of its own. Only new directives are checked: the
previous configuration works on this host, or it is for another one.

Source: ngx_conf_open_file, ngx_init_cycle (opens logs), ngx_create_paths (creates only the last
        directory of a path), ngx_create_pidfile, ngx_open_listening_sockets (with ``-t`` it does
        not report addresses in use); a ``lock_file`` is not opened (ngx_shmtx_create).
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.tree import ConfTree
from nginx_tune.errors import NginxTuneError
from nginx_tune.host.live_network import (
    BoundSocket,
    find_holder,
    in_network,
    read_bound,
    why_not_here,
)
from nginx_tune.host.parse_network import parse_unix_listeners
from nginx_tune.nginx.reload.address import (
    Binding,
    bindings_of,
    in_the_way,
    may_share,
    socket_files_of,
)
from nginx_tune.nginx.reload.workers import held_sockets

_LOGS = ("access_log", "error_log")
_MADE = ("_temp_path", "_cache_path")
"""Endings of the names of directives whose directories nginx creates."""
_NO_FILES = frozenset({"off", "stderr", "none"})


class HostRefusal(NamedTuple):
    """A reason why nginx would refuse a configuration on this host."""

    line: Directive | None
    text: str
    remedy: str

    def answer_clause(self, name: Callable[[str], str]) -> str:
        """The place, reason and remedy on one line; ``name`` shortens file names."""
        return f"{self.place(name)}{self.text}; {self.remedy}"

    def place(self, name: Callable[[str], str] = str) -> str:
        """The file and line, as the beginning of a message."""
        return "" if self.line is None else f"{name(self.line.file)}:{self.line.line}: "


class Looked(NamedTuple):
    """The refusals, and notes on checks that were not possible."""

    refusals: list[HostRefusal]
    notes: list[str]


def refused_here(before: ConfTree, after: ConfTree, masters: Sequence[int]) -> Looked:
    """The reasons why nginx would refuse, on this host, a configuration that replaces another.

    ``masters`` are the processes that run either of them; their sockets do not conflict.
    """
    files = [*_files(before, after), *_socket_files(before, after, masters)]
    sockets = taken_here(before, after, masters)
    return Looked([*files, *_addresses(before, after, masters), *sockets.refusals], sockets.notes)


def taken_here(before: ConfTree, after: ConfTree, masters: Sequence[int]) -> Looked:
    """Ports that other programs hold, which ``nginx -t`` does not report."""
    new = _new_bindings(before, after)
    if not new:
        return Looked([], [])
    try:
        bound = read_bound(masters[0] if masters else None)
    except (OSError, NginxTuneError) as error:
        words = getattr(error, "strerror", None) or str(error)
        return Looked([], [f"the taken ports of this host could not be read: {words}"])
    own = frozenset[int]().union(*map(held_sockets, masters))
    known = {sock.place for sock in bindings_of(before)}
    others = [
        sock
        for sock in bound
        if sock.inode not in own and (sock.kind, sock.address, sock.port) not in known
    ]
    ports = {sock.port for sock in others}
    user_id = _user_of(masters)
    found = [
        refusal
        for sock in new
        if sock.port in ports and (refusal := _taken(sock, others, user_id)) is not None
    ]
    return Looked(found, [])


def _taken(binding: Binding, others: Iterable[BoundSocket], user_id: int) -> HostRefusal | None:
    for other in in_the_way(binding, others):
        holder = find_holder(other.inode)
        if may_share(binding, other, holder, user_id):
            continue
        whose = "another program" if holder is None else f"{holder.name} (process {holder.pid})"
        theirs = Binding(other.kind, other.address, other.port).name
        udp = " over UDP" if binding.kind == "udp" else ""
        return HostRefusal(
            binding.line,
            f"bind() to {binding.name}{udp} fails (98: Address already in use): {whose} holds "
            f"{theirs}",
            "stop that program, or name another address or port",
        )
    return None


def _new_bindings(before: ConfTree, after: ConfTree) -> list[Binding]:
    known = {binding.place for binding in bindings_of(before)}
    return [binding for binding in bindings_of(after) if binding.place not in known]


def _user_of(masters: Sequence[int]) -> int:
    for pid in masters:
        try:
            return Path(f"/proc/{pid}").stat().st_uid
        except OSError:
            continue
    return os.geteuid()


def _addresses(before: ConfTree, after: ConfTree, masters: Sequence[int]) -> list[HostRefusal]:
    """The refusals of addresses that no interface of the host has."""
    new = {binding.address: binding for binding in reversed(_new_bindings(before, after))}
    there = {binding.address for binding in bindings_of(before)}
    found = []
    for address, binding in new.items():
        if address in there:
            continue
        try:
            number = in_network(masters[0] if masters else None, partial(why_not_here, address))
        except OSError:
            continue  # the note on ports says so
        if number is not None:
            call = "socket()" if number == errno.EAFNOSUPPORT else "bind()"
            why = "this kernel has no IPv6" if number == errno.EAFNOSUPPORT else (
                "no interface of this host has that address"
            )  # fmt: skip
            text = f"{call} to {binding.name} fails ({number}: {os.strerror(number)}): {why}"
            hint = "name one that it has, or let it bind others (net.ipv4.ip_nonlocal_bind)"
            found.append(HostRefusal(binding.line, text, hint))
    return found


def _files(before: ConfTree, after: ConfTree) -> list[HostRefusal]:
    """The refusals of logs and pid files that nginx opens, and of directories that it creates."""
    known = _written(before)
    return [
        HostRefusal(line, f"{line.name} {line.value}: nginx cannot {what} it ({why})", remedy)
        for path, (line, what) in _written(after).items()
        if path not in known
        for why, remedy in _why_not(path, makes=what == "make")
    ]


def _written(tree: ConfTree) -> dict[str, tuple[Directive, str]]:
    """Files that nginx opens and directories that it creates when it starts, by full path."""
    found: dict[str, tuple[Directive, str]] = {}
    for line in tree.main.walk():
        makes = line.name.endswith(_MADE)
        if not line.args or not (makes or line.name in _LOGS or line.name == "pid"):
            continue
        name = line.value
        if name in _NO_FILES or ":" in name or "$" in name:
            continue
        path = tree.full_path(name)
        if path is not None:
            found.setdefault(path, (line, "make" if makes else "open"))
    return found


def _why_not(path: str, *, makes: bool) -> list[tuple[str, str]]:
    """The reasons why a path cannot be written or created, with the remedies; empty if it can.

    A dangling link is followed, since nginx creates its target.
    """
    real = os.path.realpath(path)
    there = _status(real)
    if there is not None:
        if stat.S_ISDIR(there.st_mode):
            return [] if makes else [(_words(errno.EISDIR), "name a file in it")]
        if makes or not stat.S_ISREG(there.st_mode):
            return []
    parent = os.path.dirname(real)  # noqa: PTH120
    status = _status(parent)
    if status is None:
        return [(_words(errno.ENOENT), f"mkdir -p {quote(parent)}")]
    if not stat.S_ISDIR(status.st_mode):
        return [(_words(errno.ENOTDIR), "name a place in a directory")]
    if _is_read_only(parent):
        return [(_words(errno.EROFS), "name a place that can be written")]
    return []


def _socket_files(before: ConfTree, after: ConfTree, masters: Sequence[int]) -> list[HostRefusal]:
    known = socket_files_of(before)
    found = []
    for path, line in socket_files_of(after).items():
        if path in known or any(_listens(pid, path) for pid in masters):
            continue
        parent = os.path.dirname(path)  # noqa: PTH120
        number = errno.EADDRINUSE if os.path.lexists(path) else 0
        remedy = f"remove {quote(path)} if nobody listens there, or name another"
        if not number and _status(parent) is None:
            number, remedy = errno.ENOENT, f"mkdir -p {quote(parent)}"
        if number:
            text = f"bind() to unix:{path} fails ({_words(number)})"
            found.append(HostRefusal(line, text, remedy))
    return found


def _listens(pid: int, path: str) -> bool:
    """True if a process listens at a socket file, so that its reload keeps the socket."""
    try:
        text = Path(f"/proc/{pid}/net/unix").read_text(errors="surrogateescape")
    except OSError:
        return False
    return not held_sockets(pid).isdisjoint(parse_unix_listeners(text, path))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None


def _is_read_only(directory: str) -> bool:
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _words(number: int) -> str:
    return f"{number}: {os.strerror(number)}"


def masters_of(instances: Iterable[tuple[int, str | None]], paths: Collection[str]) -> list[int]:
    """The masters that read one of the paths, from pairs of pid and main file."""
    real = {os.path.realpath(path) for path in paths}
    return [pid for pid, conf in instances if conf and os.path.realpath(conf) in real]
