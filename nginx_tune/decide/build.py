"""What the target's nginx can do: its version and how it was built."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Nginx

_CURRENT = "of today"
"""Where the facts tell no version."""
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Build:
    """A version to compare with and the configure arguments."""

    version: tuple[int, ...] | None
    flags: frozenset[str] | None
    """None when they were not read."""
    text: str
    """In sentences, after "nginx"."""

    def at_least(self, *wanted: int) -> bool:
        """Whether the version is that or newer; an unknown one counts as current."""
        return self.version is None or self.version >= wanted

    def lacks(self, flag: str) -> bool:
        """Whether the build is known to be without ``flag``."""
        return self.flags is not None and flag not in self.flags

    def value_of(self, flag: str) -> str | None:
        """The value of ``--flag=VALUE``, such as a log path."""
        prefix = f"{flag}="
        return next((f[len(prefix) :] for f in self.flags or () if f.startswith(prefix)), None)


def version_evidence(build: Build) -> Evidence:
    """The version as evidence; one that nobody told is assumed to be a current one."""
    if build.text == _CURRENT:
        return Evidence(
            fact="nginx.version", value="not known, taken for a current one", provenance="assumed"
        )
    return Evidence(fact="nginx.version", value=build.text)


def build_of(nginx: Nginx) -> Build:
    """The build that the facts describe."""
    text = nginx.nginx_version or nginx.version
    numbers = tuple(int(n) for n in _NUMBERS.findall(text or "")[:3])
    return Build(
        version=numbers if len(numbers) >= 2 else None,  # noqa: PLR2004  # major.minor at least
        flags=frozenset(nginx.flags) if nginx.flags else None,
        text=text or _CURRENT,
    )
