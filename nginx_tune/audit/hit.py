"""Results of a check: a fault at a line with its evidence, or the facts that are missing."""

from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.findings import Severity

WHOLE_TREE = "the whole configuration"
"""The missing fact if a rule relies on an absent line and a file could not be parsed."""

DEFAULT_MARK = " (default)"
"""Suffix in evidence of a default that no line sets."""


class Hit(NamedTuple):
    """A fault at a line."""

    place: Directive
    message: str
    evidence: list[Evidence]
    fix: str = ""
    """A fix for this case, if the rule's own is too general."""
    severity: Severity | None = None
    """The severity of this case, if it is milder than the rule's."""
    why: str = ""
    """The reason in this case, if the rule's own does not hold."""


class MissingFacts(NamedTuple):
    """Facts that a rule needs for a result and does not have."""

    facts: tuple[str, ...]
    """Paths in the facts document, such as ``memory.page_cache_limit_bytes``."""


def written(directive: Directive) -> Evidence:
    """Evidence of a directive as written, with its place."""
    return Evidence(
        fact=f"{directive.file}:{directive.line}", value=str(directive), provenance="declared"
    )


def hit_at(directive: Directive, message: str) -> Hit:
    """A fault whose only evidence is the line itself."""
    return Hit(directive, message, [written(directive)])


def default(name: str, value: str) -> Evidence:
    """Evidence of a default, in effect because no line sets the directive."""
    return Evidence(fact=name, value=f"{value}{DEFAULT_MARK}", provenance="declared")


def counted(fact: str, value: float, unit: str = "") -> Evidence:
    """Evidence of a number derived from the configuration."""
    return Evidence(fact=fact, value=value, unit=unit, provenance="declared")
