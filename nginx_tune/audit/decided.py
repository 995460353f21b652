"""What was decided for the same host: no rule advises what the decisions refuse.

A rule sees a configuration and plain facts, a decision weighs them: data several times the page
cache may be read on the loop where the disk answers at once. Where decisions are there, a rule
whose advice one of them refuses is silent, and one that a decision only proposes says so.
"""

from __future__ import annotations

from collections.abc import Callable

from nginx_tune.audit.rule import Hit
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions, Verdict

OFF: frozenset[Verdict] = frozenset({"disable", "not_applicable", "keep"})
"""Verdicts that leave something off, or as nginx has it."""
ON: frozenset[Verdict] = frozenset({"enable", "set"})
REFUSED: dict[str, tuple[DecisionId, frozenset[Verdict]]] = {
    "io-no-pool-cold-dataset": ("thread-pools", OFF),
    "io-pool-cached-dataset": ("thread-pools", ON),
    "io-pool-single-many-disks": ("per-disk-pools", OFF),
    "io-open-blocking": ("open-file-cache", OFF),
    "io-aio-write-missing": ("aio-write", OFF),
    "io-tls-small-output-buffers": ("output-buffers", OFF),
    "io-read-ahead-random": ("read-ahead", OFF),
    "ls-reuseport-blocking": ("reuseport", ON),
    "ls-reuseport-candidate": ("reuseport", OFF),
}
"""By rule: the decision on the same question, and the verdicts with which its advice is refused."""

Decide = Callable[[], Decisions]
"""Made when a rule first asks, since most configurations give no such finding."""


class Decided:
    """The decisions, once somebody asks for them."""

    def __init__(self, decide: Decide | None) -> None:
        self._decide = decide
        self._found: dict[DecisionId, Decision] | None = None

    def on(self, name: DecisionId) -> Decision | None:
        """The decision of that name; None where nothing was decided."""
        if self._decide is None:
            return None
        if self._found is None:
            self._found = {one.id: one for one in self._decide().decisions}
        return self._found.get(name)

    def judged(self, rule: str, hit: Hit) -> Hit | None:
        """The hit as the decisions leave it; None where they refuse its advice."""
        if rule not in REFUSED:
            return hit
        name, against = REFUSED[rule]
        decision = self.on(name)
        if decision is None:
            return hit
        if decision.verdict in against:
            return None
        if decision.verdict == "not_enough_evidence":
            command = decision.next_command or "nginx-tune recommend"
            return hit._replace(
                severity="info", fix=f"{decision.summary} What settles it: {command}"
            )
        return hit
