"""Parts of decisions: numbers with their provenance, CPUs and link, nginx's build, commands."""

import math
import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Decision, DecisionId, DirectiveContext, Evidence, Setting
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.facts_machine import DECLARED
from nginx_tune.documents.units import bytes_text, number_text, seconds_text


@dataclass(frozen=True)
class Quantity:
    """A number on which a decision depends, with unit and provenance."""

    fact: str
    value: float | None
    unit: str = ""
    provenance: Provenance = "measured"

    def evidence(self) -> Evidence:
        """The number as evidence, whole or rounded to six digits."""
        value: float | int | None = self.value
        if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
            value = int(value)
        elif isinstance(value, float):
            value = float(f"{value:.6g}")
        return Evidence(fact=self.fact, value=value, unit=self.unit, provenance=self.provenance)

    @property
    def text(self) -> str:
        """The number with its unit, for people."""
        if self.unit == "bytes":
            return bytes_text(self.value)
        if self.unit == "s":
            return seconds_text(self.value)
        return f"{number_text(self.value)} {self.unit}".strip()


def known(*quantities: Quantity) -> list[Evidence]:
    """Evidence from the quantities whose value is known."""
    return [q.evidence() for q in quantities if q.value is not None]


_CURRENT = "(version unknown)"
"""Text in place of a version that the facts do not have."""
_NUMBERS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Build:
    """nginx's version and configure arguments."""

    version: tuple[int, ...] | None
    flags: frozenset[str] | None
    """Names of the configure arguments; None if they were not read."""
    text: str
    """The version as text, to follow the word "nginx" in a sentence."""

    def at_least(self, *wanted: int) -> bool:
        """True if the version is at least ``wanted``; an unknown version counts as the newest."""
        return self.version is None or self.version >= wanted

    def lacks(self, flag: str) -> bool:
        """True if the build is known to lack ``flag``."""
        return self.flags is not None and flag not in self.flags

    def value_of(self, flag: str) -> str | None:
        """The value of ``--flag=VALUE``, such as a log path."""
        prefix = f"{flag}="
        return next((f[len(prefix) :] for f in self.flags or () if f.startswith(prefix)), None)


def version_evidence(build: Build) -> Evidence:
    """The version as evidence; an unknown version is assumed to be current."""
    if build.text == _CURRENT:
        return Evidence(
            fact="nginx.version", value="not known, assumed current", provenance="assumed"
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


MAX_REASON = 160
"""Maximum number of characters of a reason in a comment; a longer reason is cut between words."""
FACTS_COMMAND = "nginx-tune inspect --dataset DIR -f json -o facts.json"
BUILD_COMMAND = "nginx-tune inspect --nginx BIN --dataset DIR -f json -o facts.json"
LEARN_COMMAND = "nginx-tune learn ACCESS_LOG -f json -o workload.json"
VERSION_COMMAND = "nginx-tune recommend --nginx-version VERSION"
PROVES_A_FILE = "nginx-tune validate nginx.conf --against "
OBSERVE_COMMAND = "nginx-tune observe --duration 30s -f json -o observation.json"
"""A command that supplies observed inputs, as the commands above supply other inputs."""


def setting(
    decision: DecisionId,
    context: DirectiveContext,
    directive: str,
    *args: str,
    reason: str,
    block: str = "",
    lines: Sequence[Sequence[str]] = (),
) -> Setting:
    """One directive with the reason for its comment."""
    return Setting(
        context=context,
        directive=directive,
        args=list(args),
        reason=textwrap.shorten(reason, MAX_REASON, placeholder=" …"),
        decision=decision,
        block=block,
        lines=[list(line) for line in lines],
    )


def not_applicable(
    decision: DecisionId, summary: str, *, evidence: Sequence[Evidence] = (), flips: str = ""
) -> Decision:
    """The decision with the verdict "not_applicable"."""
    return Decision(
        id=decision,
        verdict="not_applicable",
        summary=summary,
        evidence=list(evidence),
        confidence="high",
        flips_when=[flips] if flips else [],
    )


def validate_command(facts: Facts) -> str:
    """The command that measures the prediction on this host."""
    running = facts.nginx.running
    now = (running.conf_path if running else None) or facts.nginx.conf_path
    return f"{PROVES_A_FILE}{shlex.quote(now or '/etc/nginx/nginx.conf')}"


MAX_WORKERS = 512


def effective_cpus(facts: Facts) -> Quantity:
    """CPU time that nginx can use, in CPUs."""
    cpu = facts.cpu
    value = cpu.effective or cpu.online
    return Quantity("cpu.effective" if cpu.effective else "cpu.online", value, "CPUs")


def wanted_workers(facts: Facts) -> int:
    """Worker processes to configure: one for each usable CPU."""
    cpus = effective_cpus(facts).value
    return 1 if cpus is None else max(1, min(MAX_WORKERS, math.ceil(cpus)))


def fastest_link(facts: Facts) -> Quantity:
    """Speed of the fastest link, in bytes per second."""
    links = [
        link
        for link in facts.network.links
        if link.speed_bits_per_second and link.kind not in ("loopback", "veth")
    ]
    first = max(links, key=lambda link: link.speed_bits_per_second or 0, default=None)
    value = first.speed_bits_per_second / 8 if first and first.speed_bits_per_second else None
    is_declared = first is not None and first.speed_reason == DECLARED
    source: Provenance = "declared" if is_declared else "measured"
    return Quantity("network.links speed", value, "bytes/s", source)


SENDFILE_OFF = "sendfile is off here"


@dataclass(frozen=True)
class Pinned:
    """Values of a configuration that will not change; the other decisions are made to fit them.

    Some decisions are not applied: they are blocked, have no place, or are excluded (``--except``).
    Decisions that depend on them must then fit the current value, such as one worker instead of 24.
    A value that will change as decided is None, empty or False here.
    """

    workers: int | None = None
    """Worker processes."""
    no_pools: str = ""
    """The line for thread pools that will not be written, with the reason; empty if none."""
    connections: int | None = None
    """``worker_connections``."""
    descriptors: int | None = None
    """Descriptors that a worker may open."""
    open_files: int | None = None
    """Files that the caches of a worker keep open."""
    no_sendfile: str = ""
    """A clause that says why files are, or may be, copied through nginx's memory everywhere."""


ALL_AS_DECIDED = Pinned()
"""Nothing is pinned."""
