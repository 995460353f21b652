"""From a URL on the command line to the one address that is asked, and what is permitted.

Names are resolved here, once; the probe itself resolves none and follows no redirect.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from nginx_tune.documents.loadplan import LoadPlan, Permit, Target, Tls
from nginx_tune.errors import UsageError

_PORTS = {"http": 80, "https": 443}

_UNIX_URL = re.compile(r"(https?)://unix:(/[^:?#]+)(?::(/.*)?)?")
"""As in nginx's proxy_pass: scheme, socket, path."""

_DROPPED = re.compile(r"[\t\r\n]|^[\0- ]")
"""What urlsplit leaves out without a word: another path would be asked than the one given."""

_ABORT_RATIO = 0.2
"""A server is left alone when it fails this share of the requests."""


_TLS = Tls()


class ResolvedUrl(NamedTuple):
    """A URL, resolved."""

    target: Target
    path: str


def resolve_url(url: str, tls: Tls = _TLS, *, unix: str | None = None) -> ResolvedUrl:
    """The address, port, ``Host`` header and path of a URL; ``tls`` is for https.

    An IPv4 address is taken before an IPv6 one: most test servers listen on IPv4 alone. With the
    path of a unix socket (``unix``, or ``http://unix:/run/x.sock:/path`` as nginx writes it) no
    name is looked up.
    Errors: UsageError for another scheme than http or https, a URL that is none, an unknown name.
    """
    if _DROPPED.search(url):
        raise UsageError(
            f"{url!r} is no URL: it has a line break, a tab or a blank in front",
            hint="in a path they are written %0A, %0D, %09 and %20",
        )
    named = _UNIX_URL.fullmatch(url)
    if named is not None:
        if unix is not None:
            raise UsageError(f"'{url}' names a unix socket, and so does --unix")
        url, unix = f"{named[1]}://localhost{named[3] or '/'}", named[2]
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"'{url}' is no URL: {error}") from None
    default_port = _PORTS.get(parts.scheme)
    if default_port is None:
        raise UsageError(
            f"'{url}': the probe speaks http and https, not {parts.scheme or 'this'}",
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
        raise UsageError(f"'{url}': port 0 cannot be asked")
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
    """The addresses of a name, IPv4 first; an address is its own.

    Errors: UsageError when there is none.
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
    """The plan with what the caller permits, in place of what it permits itself.

    A plan is a file like any other: it may not open the guard rails on its own. Servers that
    nginx-tune started need no permit: the probe knows them (``probes/src/own_servers.rs``).
    Errors: UsageError for what is no name or address.
    """
    for one in (plan.target, *(item.target for item in plan.classes if item.target is not None)):
        _check_address(one)
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
            f"target.address '{target.address}' is no IP address",
            hint="a load plan names the address; the probe resolves no names",
        ) from None


def _addresses(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        yield from resolve_name(name)
