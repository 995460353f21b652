"""What a check of ``doctor`` found."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.documents.doctor import CheckStatus
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_process import parse_capabilities, parse_status


class Checked(NamedTuple):
    """What a check found."""

    status: CheckStatus
    detail: str
    fix: str = ""
    package: str = ""
    """What to install, as Debian calls it; the distribution's command is then the fix."""


def with_capability(name: str, finding: Checked, host: Host) -> Checked:
    """The finding, unless the right to use what was found is not there."""
    has = _capabilities(host)
    if isinstance(has, Missing):
        return Checked("unknown", has.reason)
    if name not in has:
        return Checked("missing", f"no right to it (CAP_{name.upper()})", "run it with sudo")
    return finding


def _capabilities(host: Host) -> list[str] | Missing:
    text = attempt(host.read_text, "/proc/self/status")
    mask = text if isinstance(text, Missing) else parse_status(text).get("CapEff")
    if isinstance(mask, Missing) or mask is None:
        return mask or Missing("/proc/self/status tells no capabilities")
    return parse_capabilities(mask)
