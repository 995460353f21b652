"""What a rule is.

A rule is one small file under ``rules/`` with a ``RULE``: what it is called, why it matters,
what to do, where the claim comes from, an example that fires and one that is silent, and a
check. A check is pure. It yields a Hit for each fault and a MissingFacts for what it would need to
know: it never guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import Edit
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Severity

if TYPE_CHECKING:
    from nginx_tune.audit.context import Context


class Hit(NamedTuple):
    """A fault at a line."""

    place: Directive
    message: str
    evidence: list[Evidence]
    fix: str = ""
    """When the rule's own fix has to be put more closely."""
    severity: Severity | None = None
    """When the case at hand is milder than the rule."""


class MissingFacts(NamedTuple):
    """Facts without which the rule cannot say anything about some place."""

    facts: tuple[str, ...]
    """As paths into the facts document, such as ``memory.page_cache_limit_bytes``."""


class Example(NamedTuple):
    """A configuration, and the host it runs on where that matters."""

    conf: str
    facts: Facts | None = None


Check = Callable[["Context"], Iterator[Hit | MissingFacts]]
Fixes = Callable[["Context", Hit], Iterable[Edit]]
Profile = Literal["default", "strict", "cis"]
EVERY_PROFILE: frozenset[Profile] = frozenset({"default", "strict", "cis"})


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
    check: Check
    since: str = ""
    """First nginx version it holds for."""
    until: str = ""
    """First nginx version it no longer holds for."""
    whole_tree: bool = False
    """Whether it stands on something being absent, so that every file must have been parsed."""
    by_absence: bool = False
    """Whether it stands on something being absent around the finding's place, where its evidence
    does not show that by a default."""
    within: frozenset[str] = frozenset()
    """The blocks outside of which no line changes the finding: where one of them stands around the
    place, or is it, its includers need not be known. Empty where any outer line may."""
    fixes: Fixes | None = None
    """Edits that cure a hit and can do no harm; none where the right value is a matter of
    judgement. Built with the functions of ``conf.edits``."""
    about: str = ""
    """For the page: more than ``why`` has room for; an empty line between paragraphs."""
    seen: str = ""
    """For the page: what a real nginx did, above all where it differs from what is said."""
    proven_on: tuple[str, ...] = ()
    """The nginx versions on which the proof was seen, oldest first."""
    profiles: frozenset[Profile] = EVERY_PROFILE
    """Where it is asked for without being named; a check finds the profile in its context."""
    conflict: str = ""
    """Where security guides ask for the opposite: who, for what and why, for profile ``cis``."""
