"""Requests that fail in both arms, and what is said of a candidate whose requests fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from rows import each_row

from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import ExitStatus
from nginx_tune.prove.verdict import judge, verdict_status
from nginx_tune.report.verdict import verdict_sentence

RATE = "hot.requests_per_second"
FAILS = "hot: at least 98 % of the candidate's requests failed in every block"
MakeBlocks = Callable[..., list[Measurement]]


def failing(blocks: list[Measurement], *failed: int) -> list[Measurement]:
    """The blocks with so many of a hundred requests failed, by turns of baseline and candidate."""

    def changed(block: Measurement, count: int) -> Measurement:
        part: Any = msgspec.structs.replace(
            block.classes["hot"], requests=100 - count, errors={"status": count} if count else {}
        )
        return msgspec.structs.replace(block, classes={"hot": part})

    return [changed(block, failed[index % len(failed)]) for index, block in enumerate(blocks)]


@each_row("primary", [RATE, "server.cpu_seconds_per_request"])
def test_nothing_is_said_of_what_failed_in_both(make_blocks: MakeBlocks, primary: str) -> None:
    blocks = make_blocks([(100.0, 200.0)] * 6)
    verdict = judge(failing(blocks, 98, 97), primary_metric=primary)
    assert verdict.outcome == "invalid"
    assert verdict_status(verdict) is ExitStatus.UNDECIDED
    sentence = verdict_sentence(verdict)
    assert "requests failed in both arms" in sentence
    assert "98" in sentence
    assert "97" in sentence
    assert "nothing can be said" in sentence


@each_row("failed", [(0, 0), (98, 0), (0, 98), (20, 20), (98, 98, 98, 30), (49, 98, 98, 98)])
def test_what_one_block_answered_is_judged(
    make_blocks: MakeBlocks, failed: tuple[int, ...]
) -> None:
    blocks = make_blocks([(100.0, 200.0)] * 6)
    verdict = judge(failing(blocks, *failed), primary_metric=RATE)
    assert "in both" not in verdict.reason
    assert verdict.outcome != "invalid"


def test_what_is_lost_stays_worse(make_blocks: MakeBlocks) -> None:
    blocks = failing(make_blocks([(100.0, 200.0)] * 6), 98, 97)
    assert judge(blocks, primary_metric=RATE, lost=["a"]).outcome == "worse"


@each_row(
    ("pairs", "candidate", "said"),
    [
        (1, 1.0, f"The candidate is worse: {FAILS}; hot requests/s is 0.01× the baseline's"),
        (6, 200.0, "With the candidate, hot requests/s is 2.00×"),
    ],
)  # fmt: skip
def test_a_candidate_that_fails_is_called_so(
    make_blocks: MakeBlocks, pairs: int, candidate: float, said: str
) -> None:
    """``but`` stands only where what decides is no worse."""
    blocks = failing(make_blocks([(100.0, candidate)] * pairs), 0, 98)
    sentence = verdict_sentence(judge(blocks, primary_metric=RATE))
    assert sentence.startswith(said)
    assert (", but it is worse: hot: at least 98 %" in sentence) is (pairs == 6)
