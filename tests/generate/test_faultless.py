"""Decisions that bring what the audit would find fault with are taken out of a plan again."""

from collections.abc import Sequence

from rows import each_row

from nginx_tune.change.generate.changes import Changes, make_faultless
from nginx_tune.documents.decisions import Decision, DecisionId
from nginx_tune.documents.findings import Finding, Severity
from nginx_tune.documents.plan import Hunk, PlannedFile


def decision(name: DecisionId) -> Decision:
    return Decision(id=name, verdict="set", summary=name, confidence="low")


def make(decisions: Sequence[Decision]) -> Changes:
    hunks = [Hunk(line=1, before="", after=f"{d.id} on;", decision=d.id) for d in decisions]
    whole = PlannedFile(path="/n.conf", sha256_before="", sha256_after="", content=b"", hunks=hunks)
    return Changes([whole] if hunks else [], [])


def finding(rule: str, severity: Severity) -> Finding:
    return Finding(
        rule=rule, severity=severity, file="/n.conf", line=1, column=1, message=rule, why="", fix=""
    )


EVERY = [decision("sendfile"), decision("backlog"), decision("http2"), decision("workers")]


@each_row(
    ("severity", "is_taken_out"),
    [("error", True), ("warning", False), ("advice", False), ("info", False)],
)
def test_what_brings_a_fault_is_taken_out_with_the_reason(
    severity: Severity, *, is_taken_out: bool
) -> None:
    def brings(changes: Changes) -> list[Finding]:
        names = {hunk.decision for file in changes.files for hunk in file.hunks}
        return [finding(f"of-{one}", severity) for one in ("backlog", "http2") if one in names]

    changes = make_faultless(EVERY, make, brings)
    left = [hunk.decision for file in changes.files for hunk in file.hunks]
    assert left == (["sendfile", "workers"] if is_taken_out else [one.id for one in EVERY])
    assert [(one.decision, one.setting, one.reason) for one in changes.refusals] == (
        [
            ("backlog", "backlog on;", "it would cause of-backlog in /n.conf: of-backlog"),
            ("http2", "http2 on;", "it would cause of-http2 in /n.conf: of-http2"),
        ]
        if is_taken_out
        else []
    )


def test_a_fault_that_no_decision_alone_brings_stays_for_the_plan_to_say() -> None:
    changes = make_faultless(EVERY, make, lambda _: [finding("of-none", "error")])
    assert len(changes.files[0].hunks) == len(EVERY)
    assert changes.refusals == []
