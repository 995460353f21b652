"""The target of a load: the address of a URL, its permission, its paths, and who listens there.

Names are resolved here, once; the probe resolves none and follows no redirects.
"""

import contextlib
import gzip
import ipaddress
import json
import re
import shutil
import socket
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from nginx_tune.documents.loadplan import LoadClass, LoadPlan, Permit, Target, Tls
from nginx_tune.errors import UsageError
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.lab_mark import lineage
from nginx_tune.host.parse_network import (
    ListeningSocket,
    parse_listeners,
    parse_socket_link,
    parse_unix_listeners,
)

_PORTS = {"http": 80, "https": 443}

_UNIX_URL = re.compile(r"(https?)://unix:(/[^:?#]+)(?::(/.*)?)?")
"""Scheme, socket and path, as in nginx's proxy_pass."""

_DROPPED = re.compile(r"[\t\r\n]|^[\0- ]")
"""Characters that urlsplit drops silently, which would change the path."""

_ABORT_RATIO = 0.2
"""The share of failed requests at which a load stops."""


_TLS = Tls()


class ResolvedUrl(NamedTuple):
    """The target and path of a URL."""

    target: Target
    path: str


def resolve_url(url: str, tls: Tls = _TLS) -> ResolvedUrl:
    """The target and path of a URL; ``tls`` is for https.

    IPv4 addresses are preferred, since most test servers listen only there. With a unix socket
    (``http://unix:/run/x.sock:/path`` as in nginx) no name is looked up.
    Errors: UsageError for a malformed URL, a scheme other than http and https, an unknown name.
    """
    if _DROPPED.search(url):
        raise UsageError(
            f"{url!r} is not a URL: it has a line break, a tab or a leading space",
            hint="write %0A, %0D, %09 and %20 for them in a path",
        )
    unix: str | None = None
    if (named := _UNIX_URL.fullmatch(url)) is not None:
        url, unix = f"{named[1]}://localhost{named[3] or '/'}", named[2]
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"'{url}' is not a URL: {error}") from None
    default_port = _PORTS.get(parts.scheme)
    if default_port is None:
        raise UsageError(
            f"'{url}': the probe supports http and https, not {parts.scheme}"
            if parts.scheme
            else f"'{url}': the URL has no scheme; the probe supports http and https",
            hint="give a URL such as http://127.0.0.1:8080/file",
        )
    if not host:
        raise UsageError(f"'{url}': no host in the URL")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"'{url.replace(parts.netloc, '…')}': user names in URLs are not sent",
            hint="give a load plan with an Authorization header",
        )
    if port == 0:
        raise UsageError(f"'{url}': port 0 cannot be connected to")
    address = "" if unix is not None else resolve_name(host)[0]
    name = f"[{host}]" if ":" in host else host
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    return ResolvedUrl(
        Target(
            address=address,
            port=0 if unix is not None else port or default_port,
            unix=unix,
            host=name if port in (None, default_port) else f"{name}:{port}",
            tls=tls if parts.scheme == "https" else None,
        ),
        f"{path}?{query}" if query else path,
    )


def resolve_name(name: str) -> list[str]:
    """The addresses of a host name (or just the given address), IPv4 first.

    Errors: UsageError for an unknown name.
    """
    try:
        return [str(ipaddress.ip_address(name))]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise UsageError(f"{name}: {reason}") from None
    addresses = dict.fromkeys(str(item[4][0]) for item in found)
    return sorted(addresses, key=lambda address: ":" in address)


def permit_target(plan: LoadPlan, *, allow_targets: Sequence[str], allow_live: bool) -> LoadPlan:
    """The plan with the caller's permissions instead of its own: a file must not lift limits.

    Errors: UsageError for a malformed or unknown name or address.
    """
    for target in (plan.target, *(item.target for item in plan.classes if item.target is not None)):
        _check_address(target)
    abort = plan.abort_error_ratio
    return msgspec.structs.replace(
        plan,
        permit=Permit(live=allow_live, hosts=list(_addresses(allow_targets))),
        abort_error_ratio=_ABORT_RATIO if abort is None else abort,
    )


def _check_address(target: Target) -> None:
    if target.unix is not None:
        return
    try:
        ipaddress.ip_address(target.address)
    except ValueError:
        raise UsageError(
            f"target.address '{target.address}' is not an IP address",
            hint="the probe resolves no names, so a load plan needs an address",
        ) from None


def _addresses(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        yield from resolve_name(name)


MANIFEST_SCHEMA = "nginx-tune/manifest/1"

_SAFE = "/%:@!$&'()*+,;=~-._?"

_MOST_BYTES = 256 << 20
_HEAD_BYTES = 1 << 16


def read_manifest_head(file: Path) -> dict[str, Any] | None:
    """The head line of a manifest, plain or gzip; None for another kind of file.

    Errors: UsageError if the file cannot be read.
    """
    try:
        with _opened(file) as stream:
            line = stream.readline(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(file, error) from None
    try:
        head = json.loads(line)
    except ValueError:
        return None
    known = isinstance(head, dict) and head.get("schema") == MANIFEST_SCHEMA
    return head if known else None


def read_paths(file: Path) -> list[str]:
    """The paths of a file with one path or URL per line; empty lines and # comments are skipped.

    Errors: UsageError if the file cannot be read, is not UTF-8 text, or has no path.
    """
    try:
        with _opened(file) as stream:
            text = stream.read(_MOST_BYTES).decode()
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(file, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text") from None
    paths = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if "://" in line:
            parts = urlsplit(line)
            line = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
        if not line.startswith("/"):
            raise UsageError(f"{file}:{number}: a path must begin with /")
        paths.append(quote(line, safe=_SAFE))
    if not paths:
        raise UsageError(f"{file}: it has no paths")
    return paths


@contextlib.contextmanager
def plain_manifests(plan: LoadPlan) -> Iterator[LoadPlan]:
    """The plan with its gzip manifests decompressed while the context lasts.

    Errors: UsageError if one cannot be read.
    """
    with contextlib.ExitStack() as stack:
        classes = [_with_plain_manifest(item, stack) for item in plan.classes]
        yield msgspec.structs.replace(plan, classes=classes)


def _with_plain_manifest(item: LoadClass, stack: contextlib.ExitStack) -> LoadClass:
    name = item.paths.manifest
    if name is None or not name.endswith(".gz"):
        return item
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="nginx-tune-manifest-"))
    plain = Path(directory) / "manifest.jsonl"
    try:
        with gzip.open(name) as packed, plain.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(Path(name), error) from None
    return msgspec.structs.replace(
        item, paths=msgspec.structs.replace(item.paths, manifest=str(plain))
    )


def _opened(file: Path) -> contextlib.AbstractContextManager[Any]:
    return gzip.open(file) if file.name.endswith(".gz") else file.open("rb")


def _unreadable(file: Path, error: Exception) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(f"cannot read {file}: {reason}")


def find_listening_pids(host: Host, address: str, port: int) -> list[int]:
    """The processes that listen on an address and port, as far as they are visible.

    For nginx, these are the master and its workers.
    """
    ip = ipaddress.ip_address(address)
    inodes = {item.inode for item in _listeners(host) if item.covers(ip, port)}
    return [pid for pid in _pids(host) if inodes and _sockets(host, pid) & inodes]


def find_socket_pids(host: Host, path: str) -> list[int]:
    """The processes that listen on a unix socket."""
    inodes = _socket_inodes(host, path)
    return [pid for pid in _pids(host) if inodes and _sockets(host, pid) & inodes]


def find_workers(host: Host, pids: Sequence[int]) -> list[int]:
    """The workers among some processes: the children of one of them, or else all processes."""
    parents = {pid: next(islice(lineage(host, pid), 1, None), 0) for pid in pids}
    children = [pid for pid in pids if parents[pid] in parents]
    return children or list(pids)


def _socket_inodes(host: Host, path: str) -> set[int]:
    try:
        return parse_unix_listeners(host.read_text("/proc/self/net/unix"), path)
    except HostReadError:
        return set()


def _listeners(host: Host) -> list[ListeningSocket]:
    found = []
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            found += parse_listeners(host.read_text(table), byteorder=sys.byteorder)
        except HostReadError:
            continue  # a kernel without IPv6
    return found


def _pids(host: Host) -> list[int]:
    try:
        return [int(name) for name in host.list_dir("/proc") if name.isascii() and name.isdigit()]
    except HostReadError:
        return []


def _sockets(host: Host, pid: int) -> set[int]:
    """Inodes of a process's sockets; empty if it belongs to another user or has ended."""
    found = set()
    try:
        for name in host.list_dir(f"/proc/{pid}/fd"):
            inode = parse_socket_link(host.read_link(f"/proc/{pid}/fd/{name}"))
            if inode is not None:
                found.add(inode)
    except HostReadError:
        pass  # what was seen until then counts
    return found
