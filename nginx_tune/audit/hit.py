"""The answers of a check: a fault at a line with its evidence, or the facts that are missing."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.findings import Severity

WHOLE_TREE = "the whole configuration"
"""Missing where a file could not be parsed and a rule stands on the absence of something."""

DEFAULT_MARK = " (default)"
"""Ends the value of evidence that holds because no line says otherwise."""


class Hit(NamedTuple):
    """A fault at a line."""

    place: Directive
    message: str
    evidence: list[Evidence]
    fix: str = ""
    """A fix for this case, where the rule's own is too general."""
    severity: Severity | None = None
    """The severity of this case, where it is milder than the rule."""


class MissingFacts(NamedTuple):
    """Facts without which the rule cannot say anything about some place."""

    facts: tuple[str, ...]
    """As paths into the facts document, such as ``memory.page_cache_limit_bytes``."""


def written(directive: Directive) -> Evidence:
    """A directive as it is written, with its place."""
    return Evidence(
        fact=f"{directive.file}:{directive.line}", value=str(directive), provenance="declared"
    )


def hit_at(directive: Directive, message: str) -> Hit:
    """A fault that the line alone shows."""
    return Hit(directive, message, [written(directive)])


def default(name: str, value: str) -> Evidence:
    """A default, which holds because no line says otherwise."""
    return Evidence(fact=name, value=f"{value}{DEFAULT_MARK}", provenance="declared")


def counted(fact: str, value: float, unit: str = "") -> Evidence:
    """A number that follows from the configuration."""
    return Evidence(fact=fact, value=value, unit=unit, provenance="declared")
