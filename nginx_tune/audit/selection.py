"""Which rules are asked, by name and profile; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from nginx_tune.audit.rule import Profile, Rule
from nginx_tune.documents.findings import Severity
from nginx_tune.errors import UsageError, name_meant


def select_rules(
    rules: Sequence[Rule],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    profile: Profile = "default",
) -> list[Rule]:
    """The rules of a profile, or those selected by name, without the ignored ones.

    Names are ids, groups (``io``) and patterns (``*-seen``); several may be joined by commas.
    Errors: UsageError for a name that no rule has.
    """
    chosen = _matching(rules, select, "--select")
    if chosen is None:
        chosen = [rule for rule in rules if profile in rule.profiles]
    unwanted = _matching(rules, ignore, "--ignore") or []
    return [rule for rule in chosen if rule not in unwanted]


def severity_in(profile: Profile, severity: Severity) -> Severity:
    """A rule's severity in a profile: ``strict`` takes advice for a warning."""
    return "warning" if profile == "strict" and severity == "advice" else severity


def _matching(rules: Sequence[Rule], names: Iterable[str], option: str) -> list[Rule] | None:
    words = [word.strip() for name in names for word in name.split(",") if word.strip()]
    if not words:
        return None
    for word in words:
        if not any(_is_named(rule, word) for rule in rules):
            near = name_meant(word, [rule.id for rule in rules])
            raise UsageError(
                f"{option}: no rule or group is called '{word}'",
                hint=near or "nginx-tune explain --list",
            )
    return [rule for rule in rules if any(_is_named(rule, word) for word in words)]


def _is_named(rule: Rule, word: str) -> bool:
    return rule.id == word or rule.id.partition("-")[0] == word or fnmatchcase(rule.id, word)
