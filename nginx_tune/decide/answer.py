"""Short ways to write a decision down."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Context, Decision, DecisionId, Evidence, Setting

MAX_REASON = 160
FACTS_COMMAND = "nginx-tune inspect --dataset DIR -f json -o facts.json"
LEARN_COMMAND = "nginx-tune learn ACCESS_LOG -f json -o workload.json"
DISKS_COMMAND = "nginx-tune inspect --dataset DIR --disks -f json -o facts.json"
OBSERVE_COMMAND = "nginx-tune observe --duration 30s -f json -o observation.json"
"""The commands that bring what a decision lacks."""


def setting(
    decision: DecisionId,
    context: Context,
    directive: str,
    *args: str,
    reason: str,
    block: str = "",
    lines: Sequence[Sequence[str]] = (),
) -> Setting:
    """One directive with the reason that is printed beside it."""
    return Setting(
        context=context,
        directive=directive,
        args=list(args),
        reason=reason[:MAX_REASON],
        decision=decision,
        block=block,
        lines=[list(line) for line in lines],
    )


def not_applicable(
    decision: DecisionId, summary: str, *, evidence: Sequence[Evidence] = (), flips: str = ""
) -> Decision:
    """The answer where the question does not arise."""
    return Decision(
        id=decision,
        verdict="not_applicable",
        summary=summary,
        evidence=list(evidence),
        confidence="high",
        flips_when=[flips] if flips else [],
    )


def validate_command(s: Situation) -> str:
    """The command that measures what was predicted, on this host."""
    running = s.facts.nginx.running
    now = (running.conf_path if running else None) or s.facts.nginx.conf_path
    return f"nginx-tune validate nginx.conf --against {shlex.quote(now or '/etc/nginx/nginx.conf')}"
