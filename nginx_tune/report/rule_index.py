"""The rules by id, for reports that show what a rule is."""

from __future__ import annotations

from functools import lru_cache

from nginx_tune.audit.notices import NOTICES
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule
from nginx_tune.audit.upgrade import CHANGED

EVERY: tuple[Rule, ...] = (*ALL, *NOTICES, CHANGED)
"""The rules of the catalogue, those about suppression comments, and the one about upgrades."""


@lru_cache(maxsize=1)
def rules_by_id() -> dict[str, Rule]:
    """Every rule under its id."""
    return {rule.id: rule for rule in EVERY}
