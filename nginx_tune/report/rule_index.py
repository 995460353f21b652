"""The rules by id, for reports that show what a rule is."""

from __future__ import annotations

from functools import lru_cache

from nginx_tune.audit.notices import NOTICES
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule

EVERY: tuple[Rule, ...] = (*ALL, *NOTICES)
"""The rules of the catalogue, then those about suppression comments."""


@lru_cache(maxsize=1)
def rules_by_id() -> dict[str, Rule]:
    """Every rule under its id."""
    return {rule.id: rule for rule in EVERY}
