"""Requests that fail in whole arms: more with the candidate, or most of them with both; pure."""

from __future__ import annotations

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import percent_text
from nginx_tune.prove.blocks import Blocks

_MORE_FAILURES = 0.001
"""Failed requests in a thousand that the candidate may have more than the baseline."""
_MOST = 0.5
"""Of the requests: where more than that fail in both arms, what is left tells nothing."""


def failing_class(blocks: Blocks) -> str:
    """What fails more often with the candidate in every pair; empty for nothing."""
    for name in blocks.classes:
        shares = [
            (_failed(pair.baseline, name), _failed(pair.candidate, name)) for pair in blocks.pairs
        ]
        if all(candidate > baseline + _MORE_FAILURES for baseline, candidate in shares):
            low = percent_text(min(candidate for _, candidate in shares))
            return f"{name}: at least {low} of the candidate's requests failed in every block"
    return ""


def failing_both(blocks: Blocks, metric: str) -> str:
    """Why nothing can be said of what a metric is of, where most of it failed in either arm."""
    own = metric.partition(".")[0]
    names = [own] if own in blocks.classes else list(blocks.classes)
    said = []
    for name in names:
        least = [
            min((_failed(block, name) for block in arm), default=0.0)
            for arm in (
                [pair.baseline for pair in blocks.pairs],
                [pair.candidate for pair in blocks.pairs],
            )
        ]
        if min(least) <= _MOST:
            return ""
        shares = [percent_text(share) for share in least]
        said.append(
            f"{name}: requests failed in both arms ({shares[0]} with the baseline and {shares[1]} "
            "with the candidate, or more, in every block), so nothing can be said of it"
        )
    return "; ".join(said)


def _failed(block: Measurement, name: str) -> float:
    part = block.classes.get(name)
    if part is None:
        return 0.0
    failed = sum(part.errors.values())
    return failed / max(part.requests + failed, 1)
