"""Numbers that no site has are refused where a document is read, each field by its name."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from rows import each_row

from nginx_tune.documents.base import Part, decode, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.facts_storage import Dataset
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Workload
from nginx_tune.errors import UsageError

REFUSED = ["-1", "-1e-9", "1e308", "1e999", "9" * 30, "9" * 400, "true", "NaN", "-Infinity", '"3"']


def number_fields(kind: type[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths to all numbers of a document; ``*`` stands in a list, ``KEY`` in a table."""
    for field in msgspec.structs.fields(kind):
        for one in leaves(msgspec.inspect.type_info(field.type)):
            where = (*path, field.encode_name, *one[:-1])
            if isinstance(one[-1], msgspec.inspect.StructType):
                yield from number_fields(one[-1].cls, where)
            elif isinstance(one[-1], msgspec.inspect.IntType | msgspec.inspect.FloatType):
                yield where


def leaves(info: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(info, msgspec.inspect.Metadata):
        yield from leaves(info.type)
    elif isinstance(info, msgspec.inspect.UnionType):
        for one in info.types:
            yield from leaves(one)
    elif isinstance(info, msgspec.inspect.ListType):
        yield from (("*", *one) for one in leaves(info.item_type))
    elif isinstance(info, msgspec.inspect.DictType):
        yield from (("KEY", *one) for one in leaves(info.value_type))
    else:
        yield (info,)


def document(kind: type[Any], path: tuple[str, ...], value: str) -> bytes:
    """A document with nothing but that number, and what else its parts must have."""
    text = "@"
    for step in reversed(path):
        text = f"[{text}]" if step == "*" else f'{{"{step}": {text}}}'
    found = json.loads(text.replace("@", '"@"'))
    schema = getattr(kind.__struct_config__, "tag", None)
    completed = complete(kind, {"schema": schema, **found} if schema else found)
    return json.dumps(completed).replace('"@"', value).encode()


def complete(kind: type[Any], given: Any) -> Any:
    for field in msgspec.structs.fields(kind):
        if field.required and field.encode_name not in given:
            given[field.encode_name] = simplest(msgspec.inspect.type_info(field.type))
        if given.get(field.encode_name):
            for one in leaves(msgspec.inspect.type_info(field.type)):
                if not isinstance(one[-1], msgspec.inspect.StructType):
                    continue
                part = given[field.encode_name]
                for step in one[:-1]:
                    part = part[0] if step == "*" else part["KEY"]
                complete(one[-1].cls, part)
    return given


def simplest(info: Any) -> Any:
    match info:
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.LiteralType():
            return info.values[0]
        case msgspec.inspect.ListType():
            return []
    return 1


def every(kind: type[Any]) -> list[Any]:
    return [pytest.param(kind, path, id=".".join(path)) for path in number_fields(kind)]


@pytest.mark.long
@each_row(("kind", "path"), [*every(Workload), *every(Site), *every(Dataset)])
def test_every_number_has_bounds(kind: type[Any], path: tuple[str, ...]) -> None:
    def read(value: str) -> Any:
        data = document(kind, path, value)
        if issubclass(kind, Part):
            return msgspec.json.decode(data, type=kind)
        return decode(kind, data, source="w.json")

    fine = next((one for one in ("1", "0.5") if _is_read(read, one)), None)
    assert fine, "the document itself is right"
    for value in REFUSED:
        with pytest.raises((UsageError, msgspec.DecodeError)) as error:
            read(value)
        said = str(error.value)
        assert "\n" not in said
        assert path[-1].replace("KEY", "").replace("*", "") in said or "JSON" in said


@each_row(("kind", "path"), every(Facts))
def test_no_count_of_facts_is_negative(kind: type[Any], path: tuple[str, ...]) -> None:
    if path[-1].endswith(("_seconds", "_ratio", "_per_second", "deviation_ratio", "numa_node")):
        return
    assert _is_read(lambda value: decode(kind, document(kind, path, value)), "1")
    with pytest.raises(UsageError, match=r"f\.json: not a valid .*: Expected `(int|float)` >= 0"):
        decode(kind, document(kind, path, "-1"), source="f.json")


def _is_read(read: Any, value: str) -> bool:
    try:
        read(value)
    except (UsageError, msgspec.ValidationError):
        return False
    return True


@each_row(
    "text",
    [
        '"connection_reuse": {"requests_per_connection": 0}',
        '"connection_reuse": {"p50_requests": 0}',
        '"popularity": {"exponent": 5.1}',
        '"popularity": {"curve": [{"requests_ratio": 1.01, "bytes": 1}]}',
        '"tls": {"requests_ratio": 2}',
    ],
)
def test_what_no_log_can_show_is_refused(text: str) -> None:
    data = f'{{"schema": "nginx-tune/workload/1", {text}}}'.encode()
    with pytest.raises(UsageError, match=r"w\.json: not a valid .*: Expected `"):
        decode(Workload, data, source="w.json")


def test_what_a_log_shows_is_read() -> None:
    data = (
        b'{"schema": "nginx-tune/workload/1", "rate": {"mean_per_second": 0},'
        b'"connection_reuse": {"requests_per_connection": 1}, "popularity": {"exponent": 0},'
        b'"dataset": {"bytes": 1152921504606846976, "files": 0}, "sizes": {"mean_bytes": 0}}'
    )
    found = decode(Workload, data)
    assert decode(Workload, encode(found)) == found
