"""A plan of which the audit finds no fault that it has brought itself.

Whatever a decision knows of a configuration, the rules of the audit know more. One whose lines
they would call an error is taken back with their word for it; what they warn of stands in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nginx_tune.change.generate.changes import Changes
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.findings import Finding
from nginx_tune.documents.plan import Refusal

Make = Callable[[Sequence[Decision]], Changes]
"""The changes of some decisions."""
Brings = Callable[[Changes], Sequence[Finding]]
"""What the audit finds of changes that it did not find before."""


def make_faultless(decisions: Sequence[Decision], make: Make, brings: Brings) -> Changes:
    """The changes of those decisions that bring no fault; the others are refused.

    A fault that no single decision brings stays, for the plan to say.
    """
    left = list(decisions)
    changes, refused = make(left), list[Refusal]()
    while found := _faults(brings, changes):
        for one in [d for d in left if d.id in _written(changes)]:
            others = [d for d in left if d.id != one.id]
            without = make(others)
            still = _faults(brings, without)
            if len(still) < len(found):
                cured = next(fault for fault in found if fault not in still)
                refused.append(_refusal(one, changes, cured))
                left, changes = others, without
                break
        else:
            break
    return changes._replace(refusals=[*changes.refusals, *refused])


def _written(changes: Changes) -> set[str]:
    return {hunk.decision for file in changes.files for hunk in file.hunks}


def _faults(brings: Brings, changes: Changes) -> list[tuple[str, str, str]]:
    """Rule, place and message; lines move as decisions are taken out, so that no line is named."""
    found = brings(changes) if changes.files else []
    return [(one.rule, one.file, one.message) for one in found if one.severity == "error"]


def _refusal(decision: Decision, changes: Changes, fault: tuple[str, str, str]) -> Refusal:
    rule, file, message = fault
    hunks = (hunk for one in changes.files for hunk in one.hunks if hunk.decision == decision.id)
    return Refusal(
        decision=decision.id,
        setting=" ".join(dict.fromkeys(" ".join(hunk.after.split()) for hunk in hunks)),
        reason=f"the audit would find {rule} in {file}: {message}",
    )
