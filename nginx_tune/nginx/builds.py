"""What differs between two builds of nginx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nginx_tune.documents.facts import Nginx
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.parse_elf import parse_elf

_PATHS = ("-path=", "--prefix=", "--user=", "--group=", "--build=")
"""In options that say where things lie, which no request sees."""


class LinkedBuild(NamedTuple):
    """A build with the libraries that its program is linked to; null where they cannot be read."""

    nginx: Nginx
    libraries: list[str] | None

    @property
    def title(self) -> str:
        """Its product and version."""
        return build_title(self.nginx)


def build_title(nginx: Nginx) -> str:
    """The product and version of a build."""
    return f"{nginx.product or 'nginx'} {nginx.version or '(version not known)'}"


def read_linked(host: Host, nginx: Nginx) -> LinkedBuild:
    """A build and its libraries: another allocator shows there. Source: DT_NEEDED."""
    if nginx.binary is None:
        return LinkedBuild(nginx, None)
    try:
        data = host.read_bytes(nginx.binary, limit_bytes=256 << 20)
        elf = parse_elf(lambda at, size: data[at : at + size])
    except (HostReadError, ValueError):
        return LinkedBuild(nginx, None)
    return LinkedBuild(nginx, None if elf is None else sorted(elf.libraries))


def build_differences(baseline: LinkedBuild, candidate: LinkedBuild) -> list[str]:
    """Each difference as a line, the programs themselves first; none where both are one file."""
    before, after = baseline.nginx, candidate.nginx
    if before.binary == after.binary:
        return []
    lines = [f"{baseline.title} ({before.binary}) → {candidate.title} ({after.binary})"]
    if (before.nginx_version, after.nginx_version) != (before.version, after.version):
        lines.append(f"on nginx {before.nginx_version} → {after.nginx_version}")
    if before.openssl != after.openssl:
        lines.append(f"TLS by {before.openssl or 'no library'} → {after.openssl or 'no library'}")
    lines += _sets("configured with", _options(before.flags), _options(after.flags))
    if baseline.libraries is not None and candidate.libraries is not None:
        lines += _sets("linked to", baseline.libraries, candidate.libraries)
    return lines


def _options(flags: Iterable[str]) -> list[str]:
    return [flag for flag in flags if not any(part in flag for part in _PATHS)]


def _sets(what: str, before: Iterable[str], after: Iterable[str]) -> Iterator[str]:
    old, new = dict.fromkeys(before), dict.fromkeys(after)
    gone = [one for one in old if one not in new]
    come = [one for one in new if one not in old]
    if gone:
        yield f"no longer {what} {' '.join(gone)}"
    if come:
        yield f"now {what} {' '.join(come)}"
