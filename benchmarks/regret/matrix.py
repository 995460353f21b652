"""The cells and candidates of the regret benchmark, as scenarios that the lab can run.

A cell is a scenario without variants. Every candidate becomes one of its variants, so all of them
run interleaved in the same rounds. Pure: tables in, scenarios out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from nginx_tune.change.generate.writing import merge
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.scenario import ExtraVariant, Scenario, VariantSpec

DRAWN = ("stock", "recommended", "always-on", "threads", "near-chunk", "near-open-files")
"""Candidates of a drawn cell: two neighbours of the recommendation, but no second stock, since
intervals of paired rounds include the noise."""
EVERYWHERE = ("stock", "recommended", "stock-again", "always-on", "form")
"""Candidates of every cell; a cell adds the single changes that could matter in it."""
CALIBRATION_SEED = 1
"""The seed of the lab experiments that gave the model's constants; the matrix never uses it."""
FIRST_SEED = 1001
WARMUP_SECONDS = 1.0
START_SECONDS = 1.0
"""The approximate time of a run beside its load: filling caches, starting nginx, the last answers.
"""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration to compare in every cell."""

    name: str
    description: str
    role: str = ""
    """``baseline``: the reference of others; ``candidate``: the one to judge."""
    decisions: str = "none"
    same_as: str = ""
    changes: str = ""
    """Another candidate, from which this one differs only in ``settings``."""
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

    ``seconds`` replaces the cell's measured time. Loop turns are not traced: that costs CPU time in
    each turn, and candidates differ in their number of turns.
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
    """The files of a cell; with ``own_directories`` each has a separate directory.

    Then the first ``open()`` of every file reads a block of a directory, however many inodes the
    kernel has read ahead.
    """
    data = dict(given)
    if not data.pop("own_directories", False):
        return data
    size = data.pop("file_bytes")
    sizes = {f"d{number:05d}/f.bin": size for number in range(data["files"])}
    return {**data, "file_bytes": size, "sizes": sizes}


def name_of_variant(variant: str) -> str:
    """The candidate of a measurement's variant."""
    return {"baseline": "stock", "candidate": "recommended"}.get(variant, variant)


def minutes(scenarios: Iterable[Scenario]) -> float:
    """The approximate duration of the runs."""
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
