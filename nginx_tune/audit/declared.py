"""Evidence that stands in the configuration itself."""

from __future__ import annotations

from nginx_tune.audit.rule import Hit
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence

DEFAULT_MARK = " (default)"
"""Ends the value of evidence that holds because no line says otherwise."""


def written(directive: Directive) -> Evidence:
    """A directive as it is written, with its place."""
    return Evidence(
        fact=f"{directive.file}:{directive.line}", value=str(directive), provenance="declared"
    )


def hit_at(directive: Directive, message: str) -> Hit:
    """A fault that the line alone shows."""
    return Hit(directive, message, [written(directive)])


def default(name: str, value: str) -> Evidence:
    """What holds because no line says otherwise."""
    return Evidence(fact=name, value=f"{value}{DEFAULT_MARK}", provenance="declared")


def counted(fact: str, value: float, unit: str = "") -> Evidence:
    """A number that follows from the configuration."""
    return Evidence(fact=fact, value=value, unit=unit, provenance="declared")
