"""What any nginx needs to see of a system: its program, libraries, users, names, certificates."""

from __future__ import annotations

import os
from pathlib import Path

_SOFTWARE = (
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/share",
    "/usr/local/share",
    "/nix/store",
    "/gnu/store",
)
"""Libraries, what these load by name (name services, TLS providers, converters), time zones, Perl
and Lua: installed software, the same on every host."""
_SETTINGS = (
    "passwd", "group", "nsswitch.conf", "hosts", "host.conf", "resolv.conf", "gai.conf",
    "services", "protocols", "localtime", "timezone", "mime.types", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "ld.so.preload", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "alternatives",
    "crypto-policies", "pki/tls", "pki/ca-trust", "ca-certificates", "ssl/certs",
    "ssl/openssl.cnf", "ssl/cert.pem", "perl", "lua", "fonts", "os-release",
)  # fmt: skip
"""Of /etc; no file with passwords or keys is among them."""
_LINKS = ("/var/run", "/var/lock", "/bin", "/sbin")
"""Names that lead elsewhere; where they are directories of their own, nothing is shown."""
_MOST_INTERPRETER = 256


def system_paths() -> list[str]:
    """What is shown to every nginx; some of it is not there on every host."""
    links = [path for path in _LINKS if os.path.islink(path)]  # noqa: PTH114
    return [*_SOFTWARE, *(f"/etc/{name}" for name in _SETTINGS), *links]


def program_paths(program: str) -> list[str]:
    """What a program needs beside the system: its file, its directory for a script, its shell."""
    path = Path(program)
    found = [program]
    interpreter = _interpreter(path)
    if interpreter is not None:
        # A script runs others from where it stands (the unpacked versions of the matrix do).
        found += [str(path.parent), interpreter]
    return found


def _interpreter(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(_MOST_INTERPRETER)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split(b"\n", 1)[0].split()
    return os.fsdecode(words[0]) if words else None
