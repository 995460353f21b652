"""The cells and candidates of the regret benchmark, as scenarios that the lab can run.

A cell is a scenario without variants; every candidate becomes a variant of it, so that all of them
run interleaved in the same rounds. Pure: tables in, scenarios out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from nginx_tune.change.generate.writing import merge
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.scenario import ExtraVariant, Scenario, VariantSpec

DRAWN = ("stock", "recommended", "always-on", "threads", "near-chunk", "near-open-files")
"""Candidates of a drawn cell: two neighbours of the recommendation, and no stock again, since
intervals of paired rounds hold the noise."""
EVERYWHERE = ("stock", "recommended", "stock-again", "always-on", "form")
"""Candidates of every cell; a cell adds the single changes that could matter in it."""
CALIBRATION_SEED = 1
"""The lab experiments that the model's constants come from ran with it; the matrix never does."""
FIRST_SEED = 1001
WARMUP_SECONDS = 1.0
START_SECONDS = 1.0
"""About what a block takes beside its load: caches filled, nginx started, the last answers."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration to compare, whatever the cell."""

    name: str
    description: str
    role: str = ""
    """``baseline``: what others are held against; ``candidate``: what is to be judged."""
    decisions: str = "none"
    same_as: str = ""
    changes: str = ""
    """Another candidate, which this one differs from in ``settings`` alone."""
    settings: list[Setting] = []


def read_candidates(tables: Mapping[str, Any]) -> dict[str, Candidate]:
    """The candidates by name, each with all of its settings."""
    given = {one.name: one for one in msgspec.convert(tables["candidates"], type=list[Candidate])}
    return {name: _whole(one, given) for name, one in given.items()}


def _whole(one: Candidate, given: Mapping[str, Candidate]) -> Candidate:
    origin = one.same_as or one.changes
    if not origin:
        return one
    return msgspec.structs.replace(one, settings=merge(given[origin].settings, one.settings))


def scenario_of(
    name: str,
    cell: Mapping[str, Any],
    candidates: Mapping[str, Candidate],
    *,
    rounds: int,
    seconds: float | None = None,
) -> Scenario:
    """A cell as a scenario with a variant for every candidate.

    ``seconds`` replaces the measured time that the cell asks for. Loop turns are not traced: that
    costs CPU in each, and candidates differ in how many they make.
    """
    tables = dict(cell)
    extra: Sequence[str] = tables.pop("variants", [])
    common = msgspec.convert(tables.pop("common", []), type=list[Setting])
    everywhere: Sequence[str] = tables.pop("candidates", EVERYWHERE)
    chosen = [candidates[one] for one in (*everywhere, *extra)]
    baseline = next(one for one in chosen if one.role == "baseline")
    judged = next(one for one in chosen if one.role == "candidate")
    variants = [
        ExtraVariant(name=one.name, decisions=_decisions(one), settings=merge(one.settings, common))
        for one in chosen
        if not one.role
    ]
    lab = tables.pop("lab")
    scenario = msgspec.convert(
        {
            "name": name,
            "pairs": rounds,
            "warmup_seconds": WARMUP_SECONDS,
            "seed": FIRST_SEED + sum(name.encode()),
            "traces": False,
            **tables,
            **({} if seconds is None else {"duration_seconds": seconds}),
            "lab": {**lab, "data": [_data(one) for one in lab["data"]]},
        },
        Scenario,
    )
    return msgspec.structs.replace(
        scenario,
        baseline=_spec(baseline, common),
        candidate=_spec(judged, common),
        variants=variants,
    )


def _data(given: Mapping[str, Any]) -> dict[str, Any]:
    """Files of a cell; with ``own_directories`` each lies in one of its own.

    Then every ``open()`` of a file for the first time reads a block of a directory, however many
    inodes the kernel has read ahead.
    """
    data = dict(given)
    if not data.pop("own_directories", False):
        return data
    size = data.pop("file_bytes")
    sizes = {f"d{number:05d}/f.bin": size for number in range(data["files"])}
    return {**data, "file_bytes": size, "sizes": sizes}


def name_of_variant(variant: str) -> str:
    """The candidate that a variant of a measurement is."""
    return {"baseline": "stock", "candidate": "recommended"}.get(variant, variant)


def minutes(scenarios: Iterable[Scenario]) -> float:
    """About how long the blocks take."""
    return (
        sum(
            s.pairs
            * (2 + len(s.variants))
            * (s.duration_seconds + s.warmup_seconds + START_SECONDS)
            for s in scenarios
        )
        / 60
    )


def _spec(one: Candidate, common: Sequence[Setting]) -> VariantSpec:
    return VariantSpec(decisions=_decisions(one), settings=merge(one.settings, common))


def _decisions(one: Candidate) -> Any:
    return one.decisions
