"""An experiment as a page of TOML, which ``scenario run`` takes, and what it is too short for."""

import math
from typing import Any

import msgspec

from nginx_tune.documents.base import schema_of
from nginx_tune.documents.scenario import ExperimentSpec
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.statistics import fewest_pairs
from nginx_tune.measure.proof.verdict import expected_seconds, next_look
from nginx_tune.report.text import plain

_MINUTE = 60.0
_SURE_RATIO = 0.8
"""The share of the expected time below which an experiment is said to be too short."""
_TOML_HEAD = """\
# Two configurations under the same load, settled before it runs. As it stands, or changed:
#     nginx-tune scenario run FILE
# {pairs} pairs of runs of {run} each, with set-up about {total}{more}.
# Fields with their default are left out.

"""


def pairs_planned(spec: ExperimentSpec) -> int:
    """The pairs of an experiment; with a time limit, those of the first look."""
    if spec.max_seconds is None:
        return spec.pairs
    return next_look(None, first_pairs=spec.pairs).pairs


def short_of_outcome(spec: ExperimentSpec) -> str:
    """The reason why an experiment is too short for any outcome; empty if it is not."""
    pairs = pairs_planned(spec)
    if spec.max_seconds is None:
        return "" if pairs >= fewest_pairs() else f"{pairs} of {fewest_pairs()} pairs are run"
    needed = expected_seconds(pairs, (spec.warmup_seconds or 0.0) + spec.duration_seconds)
    if spec.max_seconds >= _SURE_RATIO * needed:
        return ""
    return (
        f"{pairs} pairs take about {_seconds(needed)}, more than the {_seconds(spec.max_seconds)} "
        f"of --max-time: give --max-time {math.ceil(needed / _MINUTE)}min, or a shorter --duration"
    )


def render_experiment(spec: ExperimentSpec) -> str:
    """The experiment as TOML. Errors: UsageError for a file name that is not UTF-8."""
    run = (spec.warmup_seconds or 0.0) + spec.duration_seconds
    more = [
        *(["the length of the warm-up is measured first"] if spec.warmup_seconds is None else []),
        *(["the same number again for the self-check"] if spec.self_check else []),
        *(["then the search for the capacity"] if spec.objectives else []),
        *(
            [f"more, until the result is settled or {_seconds(spec.max_seconds)} are over"]
            if spec.max_seconds is not None
            else []
        ),
        *([f"no outcome: {short}"] if (short := short_of_outcome(spec)) else []),
    ]
    pairs = pairs_planned(spec)
    head = _TOML_HEAD.format(
        pairs=pairs,
        run=_seconds(run),
        total=_seconds(expected_seconds(pairs, run)),
        more="".join(f"; {text}" for text in more),
    )
    import tomli_w  # noqa: PLC0415  # only for such a page

    tables = {"schema": schema_of(ExperimentSpec), **_told(spec)}
    text = head + tomli_w.dumps(tables)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{plain(spec.plan or spec.candidate)}: a path is not UTF-8, which TOML cannot contain",
            hint="use -f json",
        ) from None
    return text


def _seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:g} s"


def _told(part: msgspec.Struct) -> dict[str, Any]:
    """The fields whose values are not their defaults; None is left out, as TOML has no null."""
    told: dict[str, Any] = {}
    for field in msgspec.structs.fields(part):
        value = getattr(part, field.name)
        if value is None or value == _default(field):
            continue
        told[field.encode_name] = _plain_value(value)
    return told


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _plain_value(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        return _told(value)
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain_value(item) for key, item in value.items()}
    return value
