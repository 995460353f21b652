"""Requests that fail in whole arms: more with the candidate, or most of them with both; pure.

A limit of the configuration that refuses a request does what it is there for. Such refusals are
counted apart: a faster server meets a fixed limit more often, and is not worse for that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import percent_text
from nginx_tune.measure.proof.blocks import Blocks

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


_WRONG_CONTENT = {
    "length": "had another length than the file",
    "range": "were another part than the one asked for",
    "hash": "differ from the file",
}
"""Failures of complete answers that are something else than what is there."""


def unjudged_classes(block: Measurement) -> dict[str, str]:
    """The classes of which a block tells nothing: what came is not what was asked for.

    Of the candidate failed requests are a result; of the baseline most of them are none.
    """
    found = {}
    for name, part in block.classes.items():
        said = [f"{part.errors[kind]:,} responses {what}"
                for kind, what in _WRONG_CONTENT.items() if part.errors.get(kind)]  # fmt: skip
        if not said and block.arm == "baseline" and _failed(block, name) > _MOST:
            failed = sum(part.errors.values())
            said = [f"{failed:,} of {failed + part.requests:,} requests failed"]
        if said:
            found[name] = ", ".join(said)
    return found


def count_refusals(part: ClassMeasurement, statuses: Collection[int]) -> int:
    """The answers by which a limit may have refused; ``statuses`` are what it answers."""
    return sum(part.statuses.get(str(status), 0) for status in set(statuses))


def with_limits(measurement: Measurement, limited: Mapping[str, Collection[int]]) -> Measurement:
    """The measurement with refusals by limits apart from failures.

    ``limited`` are by class what its limits answer, which the class does not expect.
    """
    classes = dict(measurement.classes)
    for name, statuses in limited.items():
        part = classes.get(name)
        count = count_refusals(part, statuses) if part is not None else 0
        if part is None or not count:
            continue
        left = part.errors.get("status", 0) - count
        errors = {kind: number for kind, number in part.errors.items() if kind != "status"}
        if left > 0:
            errors["status"] = left
        classes[name] = msgspec.structs.replace(part, errors=errors, limited=count)
    return msgspec.structs.replace(measurement, classes=classes)


def limit_warnings(blocks: Blocks) -> list[str]:
    """What limits of the configuration refused, of either arm: one line for each class."""
    found = []
    for name in blocks.classes:
        said = []
        for arm, halves in (("baseline", blocks.baseline), ("candidate", blocks.candidate)):
            parts = [half.classes[name] for half in halves if name in half.classes]
            refused = sum(part.limited for part in parts)
            asked = refused + sum(p.requests + sum(p.errors.values()) for p in parts)
            said.append((refused, f"{refused:,} of {asked:,} ({arm})"))
        if any(refused for refused, _ in said):
            found.append(
                f"{name}: {' and '.join(text for _, text in said)} requests were refused by a "
                f"limit of the configuration: no failures, judged where a gate names {name}.limited"
            )
    return found


def _failed(block: Measurement, name: str) -> float:
    part = block.classes.get(name)
    if part is None:
        return 0.0
    failed = sum(part.errors.values())
    return failed / max(part.requests + failed, 1)
