"""Rules: their parts, selection by name and profile, and example hosts.

A rule is one small file under ``rules/`` with a ``RULE``: its name, why it matters, the fix, its
sources, an example with a finding and one without, and a check. A check does no I/O. It yields a
Hit for each fault and a MissingFacts for the facts that it lacks: it never guesses.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from nginx_tune.audit.context import AuditProfile, Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.conf.edits import Edit
from nginx_tune.documents.facts import (
    Cpu,
    Dataset,
    Disk,
    DiskClass,
    Facts,
    Kernel,
    Limits,
    Memory,
    Nginx,
    PathStorage,
    Residency,
    Sizes,
    Storage,
)
from nginx_tune.documents.findings import Severity
from nginx_tune.errors import UsageError, name_meant


class Example(NamedTuple):
    """A configuration and, where it matters, its host."""

    conf: str
    facts: Facts | None = None


RuleCheck = Callable[[Context], Iterator[Hit | MissingFacts]]
Fixes = Callable[[Context, Hit], Iterable[Edit]]
EVERY_PROFILE: frozenset[AuditProfile] = frozenset({"default", "strict", "cis"})


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule of the audit."""

    id: str
    severity: Severity
    title: str
    why: str
    fix: str
    sources: tuple[str, ...]
    proof: Literal["proven", "source-only"]
    """``proven``: a test shows the claimed effect on a real nginx."""
    bad: Example
    good: Example
    check: RuleCheck
    since: str = ""
    """The first nginx version that the rule applies to."""
    until: str = ""
    """The first nginx version that the rule no longer applies to."""
    whole_tree: bool = False
    """True if the rule relies on a line that is in no file, so that every file must have been
    parsed."""
    by_absence: bool = False
    """True if the rule relies on a line that is absent around the finding's place. Evidence of a
    default implies this already."""
    within: frozenset[str] = frozenset()
    """Blocks that confine the finding: no line outside of them can change it, so the files that
    include the blocks need not be known. Empty if any outer line can change it."""
    fixes: Fixes | None = None
    """Safe edits that fix a hit, built with ``conf.edits``; None if the value needs judgement."""
    about: str = ""
    """Details beyond ``why``, for the rule's page; an empty line between paragraphs."""
    seen: str = ""
    """The behaviour of a real nginx, for the rule's page, above all where it differs from the
    documentation."""
    proven_on: tuple[str, ...] = ()
    """The nginx versions that the proof ran on, oldest first."""
    profiles: frozenset[AuditProfile] = EVERY_PROFILE
    """The profiles that include the rule; a check finds the current profile in its context."""
    conflict: str = ""
    """Security guides that recommend the opposite, and why, for profile ``cis``."""


def select_rules(
    rules: Sequence[Rule],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    profile: AuditProfile = "default",
) -> list[Rule]:
    """The rules of a profile, or those selected by name, without the ignored ones.

    Names are ids, groups (``io``) and patterns (``*-seen``), also several joined by commas. Errors:
    UsageError for a name that matches no rule.
    """
    selected = _matching(rules, select, "--select")
    if selected is None:
        selected = [rule for rule in rules if profile in rule.profiles]
    ignored = _matching(rules, ignore, "--ignore") or []
    return [rule for rule in selected if rule not in ignored]


def severity_in(profile: AuditProfile, severity: Severity) -> Severity:
    """A rule's severity in a profile: ``strict`` reports advice as warnings."""
    return "warning" if profile == "strict" and severity == "advice" else severity


def _matching(rules: Sequence[Rule], names: Iterable[str], option: str) -> list[Rule] | None:
    words = [word.strip() for name in names for word in name.split(",") if word.strip()]
    if not words:
        return None
    for word in words:
        if not any(_is_named(rule, word) for rule in rules):
            near = name_meant(word, [rule.id for rule in rules])
            raise UsageError(
                f"{option}: no rule or group is named '{word}'",
                hint=near or "nginx-tune explain --list",
            )
    return [rule for rule in rules if any(_is_named(rule, word) for word in words)]


def _is_named(rule: Rule, word: str) -> bool:
    return rule.id == word or rule.id.partition("-")[0] == word or fnmatchcase(rule.id, word)


GIB = 1 << 30


def linux(
    *,
    cache_gib: int = 40,
    cpus: int = 8,
    version: str = "1.22.1",
    flags: tuple[str, ...] = ("--with-threads",),
    datasets: dict[str, tuple[int, float]] | None = None,
    disks: dict[str, tuple[str, DiskClass]] | None = None,
    effective_cpus: float | None = None,
    memory_limit_mib: int | None = None,
    nofile: tuple[int, int] = (1024, 524_288),
    can_raise: bool = True,
    sysctls: dict[str, str] | None = None,
    features: dict[str, bool | None] | None = None,
    mean_file_bytes: int = 1 << 20,
) -> Facts:
    """Facts of a Linux host, for examples.

    ``datasets`` maps a path to GiB and resident share, ``disks`` a path to the name and class of
    its disk. ``effective_cpus`` is the number of CPUs under a quota, ``nofile`` the soft and the
    hard limit.
    """
    return Facts(
        kernel=Kernel(
            system="Linux",
            release="6.1.0",
            features={"epollexclusive": True, "tls": False, **(features or {})},
            sysctls={
                "net.core.somaxconn": "4096",
                "net.ipv4.tcp_migrate_req": "1",
                **(sysctls or {}),
            },
        ),
        cpu=Cpu(
            online=cpus,
            cpuset=cpus,
            effective=float(cpus) if effective_cpus is None else effective_cpus,
        ),
        memory=Memory(
            total_bytes=(cache_gib + 8) * GIB,
            cgroup_limit_bytes=None if memory_limit_mib is None else memory_limit_mib << 20,
            page_cache_limit_bytes=cache_gib * GIB,
        ),
        limits=Limits(
            nofile_soft=nofile[0], nofile_hard=nofile[1], nr_open=1 << 20, can_raise=can_raise
        ),
        nginx=Nginx(product="nginx", version=version, nginx_version=version, flags=list(flags)),
        storage=Storage(
            paths=[
                PathStorage(path=path, filesystem="ext4", leaf_disks=[name])
                for path, (name, _) in (disks or {}).items()
            ],
            disks=[Disk(name=name, class_=kind) for name, kind in (disks or {}).values()],
        ),
        datasets=[
            Dataset(
                path=path,
                files=max(1, size * GIB // mean_file_bytes),
                bytes=size * GIB,
                sizes=Sizes(
                    mean_bytes=mean_file_bytes,
                    p50_bytes=mean_file_bytes,
                    p90_bytes=mean_file_bytes,
                    p99_bytes=mean_file_bytes,
                    max_bytes=mean_file_bytes,
                ),
                residency=Residency(ratio=ratio, method="cachestat", trusted=True),
            )
            for path, (size, ratio) in (datasets or {}).items()
        ],
    )
