"""``experiment`` as one page of TOML, which ``scenario run`` takes."""

from __future__ import annotations

from typing import Any

import msgspec
import tomli_w

from nginx_tune.documents.base import schema_of
from nginx_tune.documents.experiment import ExperimentSpec
from nginx_tune.errors import UsageError
from nginx_tune.report.text import plain

_HEAD = """\
# Two configurations under the same load, settled before it runs. As it stands, or changed:
#     nginx-tune scenario run FILE
# {pairs} pairs of blocks of {block} each: about {total}{more}. What has its default is left out.

"""


def render_experiment(spec: ExperimentSpec) -> str:
    """The page. Errors: UsageError for a name that is no text, which TOML cannot hold."""
    block = (spec.warmup_seconds or 0.0) + spec.duration_seconds
    more = [
        *(["the warm-up is found first"] if spec.warmup_seconds is None else []),
        *(["as many again for the self-check"] if spec.self_check else []),
        *(["then the search for the capacity"] if spec.objectives else []),
        *(
            [f"more, until it is settled or {_seconds(spec.max_seconds)} are over"]
            if spec.max_seconds is not None
            else []
        ),
    ]
    head = _HEAD.format(
        pairs=spec.pairs,
        block=_seconds(block),
        total=_seconds(2 * spec.pairs * block),
        more="".join(f"; {one}" for one in more),
    )
    tables = {"schema": schema_of(ExperimentSpec), **_told(spec)}
    text = head + tomli_w.dumps(tables)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{plain(spec.plan or spec.candidate)}: a path is no UTF-8, which TOML cannot hold",
            hint="use -f json",
        ) from None
    return text


def _seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:g} s"


def _told(part: msgspec.Struct) -> dict[str, Any]:
    """The fields that are not at their defaults; TOML has no null."""
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
        return [_plain_value(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain_value(one) for key, one in value.items()}
    return value
