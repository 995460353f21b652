"""Which pools are asked for once decisions are written, and those that nothing would ask for.

Each worker starts the threads of every ``thread_pool`` that is declared, whether or not a file is
ever read by them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from nginx_tune.change.plan.standing import Standing, asks_threads
from nginx_tune.conf.body_filters import body_filter
from nginx_tune.conf.thread_pools import DEFAULT, asked_pool
from nginx_tune.documents.decisions import Decision

_NO_PLACE = "the configuration has no location that it is for"
_VARIABLE = re.compile(r"\\\$(?:\w+|\\\{\w+\\\})")
"""Of a name with what is special in a pattern escaped."""


def asks_pools(decision: Decision) -> bool:
    """Whether a decision has files read by threads."""
    return any(map(asks_threads, decision.settings))


def asked_pools(standing: Standing, decisions: Iterable[Decision]) -> set[str]:
    """The names that are asked for where files are sent, as it stands and by what is written."""
    found = {asked_pool(scope.effective("aio")) for scope in standing.answering}
    found |= {
        one.args[0].partition("=")[2] or DEFAULT
        for decision in decisions
        for one in decision.settings
        if asks_threads(one)
    }
    return {name for name in found if name is not None}


def without_idle_pools(decision: Decision, asked: Collection[str]) -> Decision:
    """The decision without pools that nothing asks for."""
    idle = [
        one
        for one in decision.settings
        if one.directive == "thread_pool" and not _is_asked(one.args[0], asked)
    ]
    if not idle:
        return decision
    names = ", ".join(f"thread_pool {one.args[0]}" for one in idle)
    left = [one for one in decision.settings if one not in idle]
    why = f"{names}: nothing would ask for it"
    return replace(
        decision,
        settings=left,
        verdict=decision.verdict if left else "keep",
        summary=decision.summary if left else f"Not written: {why}. {decision.summary}",
        risks=decision.risks if left else [],
        withheld=decision.withheld or why,
    )


def told_why_unread(decision: Decision, wanted: Decision, standing: Standing) -> Decision:
    """The decision; where no file would come to be read by threads as it wanted, it says why."""
    if decision.withheld or asks_pools(decision) or not asks_pools(wanted):
        return decision
    if any(asked_pool(scope.effective("aio")) is not None for scope in standing.answering):
        return decision
    named = [one.block for one in wanted.settings if asks_threads(one)]
    lines = (
        line
        for scope in standing.answering
        if "" in named or {*named} & {*scope.own.args}
        if (line := body_filter(scope)) is not None
    )
    line = next(lines, None)
    why = f"{line.file}:{line.line} {line} cuts every body into pieces" if line else _NO_PLACE
    said = f"Not written: {why}. {wanted.summary}"
    return replace(decision, verdict="keep", settings=[], risks=[], summary=said, withheld=why)


def _is_asked(name: str, asked: Collection[str]) -> bool:
    patterns = (_VARIABLE.sub(".*", re.escape(one)) for one in asked)
    return any(re.fullmatch(one, name) for one in patterns)
