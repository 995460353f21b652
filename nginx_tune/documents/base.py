"""The base of all documents: frozen structs, tagged with their schema, as JSON.

A document is a msgspec struct with the tag ``nginx-tune/<name>/<version>`` in the field ``schema``,
so a file of another kind or version is never mistaken for it.

Numbers that people write have bounds in their types: a value out of bounds is refused with the name
of its field, and the JSON Schema has the same bounds. ``decide/defaults.py`` applies them to
documents that were not read from a file.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from nginx_tune.errors import UsageError, name_meant

Provenance = Literal["measured", "learnt", "declared", "assumed"]


VOLATILE = Meta(extra_json_schema={"x-volatile": True})
"""The mark of a field that varies on an unchanged host, such as a counter, a process id or free
space. The schema has it as ``x-volatile``, so that comparisons of hosts or days can omit it."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a document."""


class Document(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema"):
    """A document; subclasses have a ``tag``."""


class Unknown(Part, frozen=True, kw_only=True):
    """A value that could not be read."""

    path: str
    """JSON pointer of the null in this document."""
    reason: Annotated[str, VOLATILE]


class MissingInclude(Part, frozen=True, kw_only=True):
    """An include that matches no file, in a configuration tree copied from its host."""

    file: str
    line: int
    reason: str
    path: str = ""
    """The path that nginx would open: the include's own, or the target of a link."""
    accepted: str = ""
    """The reason why the file may be missing: a pattern of ``--accept-missing``, or that it comes
    with nginx. Empty if it may not be missing."""


WITH_NGINX = "it comes with nginx"
"""The reason why a missing file with only types and parameters is accepted."""


D = TypeVar("D", bound=Document)


def schema_of(kind: type[Document]) -> str:
    """The schema id of a document type, such as ``nginx-tune/facts/1``."""
    return str(kind.__struct_config__.tag)


def encode(document: Document) -> bytes:
    """The document as JSON: two-space indent, mapping keys sorted, one final newline.

    The same document gives the same bytes anywhere.
    Errors: UsageError for a name (mostly of a file) that is not UTF-8, which JSON cannot hold.
    """
    try:
        raw = msgspec.json.encode(document, order="deterministic")
    except UnicodeEncodeError as error:
        name = error.object.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise UsageError(
            f"{name}: not UTF-8, so JSON cannot contain it",
            hint="rename it, or choose another format",
        ) from None
    return msgspec.json.format(raw, indent=2) + b"\n"


def decode(kind: type[D], data: bytes, *, source: str = "", takes_newer: bool = False) -> D:
    """The document in ``data``; ``takes_newer`` ignores unknown fields of a later schema.

    Errors: UsageError that names ``source`` for bytes that are not JSON, or have another schema or
            the wrong shape.
    """
    place = f"{source}: " if source else ""
    expected = schema_of(kind)
    try:
        found = msgspec.json.decode(data, type=_Header).schema
        if takes_newer and is_newer(expected, found):
            tables = {**msgspec.json.decode(data), kind.__struct_config__.tag_field: expected}
            return msgspec.convert(tables, kind)
        if found != expected:
            raise UsageError(
                f"{place}expected a document of schema {expected}, found {found[:80]}",
                hint=_other_schema_hint(expected, found),
            )
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}not a valid {expected} document: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{place}not JSON: {error}") from None


class _Header(msgspec.Struct):
    schema: str = "none"


def _other_schema_hint(expected: str, found: str) -> str:
    name = PurePath(expected).parent
    if found.startswith(f"{name}/"):
        if is_newer(expected, found):
            return "it was made by a newer nginx-tune: read it with that version"
        return "write it again with this version of nginx-tune"
    if (name.name, PurePath(found).parent.name) == ("facts", "capture"):
        return "nginx-tune inspect --host CAPTURE -f json -o facts.json makes facts of it"
    return f"give a file that holds nginx-tune's {name.name} document"


_NUMBER = re.compile(r"[0-9]{1,9}")


def is_newer(expected: str, found: str) -> bool:
    """True if a schema id is a later version of the expected one, such as ``…/2`` or ``…/1.3``."""
    own, other = PurePath(expected), PurePath(found)
    numbers = other.name.split(".")
    if other.parent != own.parent or not all(_NUMBER.fullmatch(number) for number in numbers):
        return False
    return [int(number) for number in numbers] > [int(own.name)]


def decode_tables(kind: type[D], tables: Any, source: str) -> D:
    """The document from tables that people write; unknown keys are refused.

    Errors: UsageError that names ``source`` and the key, with the nearest known one.
    """
    for key in unknown_keys(kind, tables):
        raise key.error(source, kind)
    try:
        return msgspec.convert(tables, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: not {noun_of(kind)}: {error}") from None


def noun_of(kind: type[Document]) -> str:
    """A document's name with its article: ``a site``, ``an experiment``."""
    name = PurePath(schema_of(kind)).parent.name
    return f"an {name}" if name[0] in "aeiou" else name if name == "facts" else f"a {name}"


class UnknownKey(NamedTuple):
    """A key of a document that its type does not have."""

    path: str
    """The object with the key, such as ``storage.disks[0]``; empty for the document."""
    key: str
    known: list[str]
    is_added: bool
    """True if a later version may have added the key, because no known key is missing."""

    def error(self, source: str, kind: type[Document]) -> UsageError:
        """The error for the key, with the nearest known key."""
        verb = "have" if noun_of(kind) == "facts" and not self.path else "has"
        return UsageError(
            f"{source}: {self.path or noun_of(kind)} {verb} no '{self.key}'",
            hint=name_meant(self.key, self.known) or f"one of {', '.join(self.known)}",
        )


def unknown_keys(kind: type[Document], tables: Any) -> Iterator[UnknownKey]:
    """The keys of tables that a document's type lacks, in order."""
    yield from _unknown_in(_type_info(kind), tables, "")


@lru_cache(maxsize=16)
def _type_info(kind: type[Document]) -> Any:
    import msgspec.inspect  # noqa: PLC0415  # only for what people write

    return msgspec.inspect.type_info(kind)


def _unknown_in(kind: Any, value: Any, path: str) -> Iterator[UnknownKey]:
    from msgspec import inspect  # noqa: PLC0415

    kind = kind.type if isinstance(kind, inspect.Metadata) else kind
    if isinstance(kind, inspect.UnionType):
        for member in kind.types:
            yield from _unknown_in(member, value, path)
    elif isinstance(kind, inspect.ListType) and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown_in(kind.item_type, item, f"{path}[{number}]")
    elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
        for key, item in value.items():
            yield from _unknown_in(kind.value_type, item, f"{path}.{key}".lstrip("."))
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        yield from _unknown_of_struct(kind, value, path)


def _has_default(field: Any) -> bool:
    """False for a field that is left out of a document while it is unset."""
    return any(
        default is not msgspec.NODEFAULT for default in (field.default, field.default_factory)
    )


def _unknown_of_struct(kind: Any, value: dict[str, Any], path: str) -> Iterator[UnknownKey]:
    fields = {field.encode_name: field for field in kind.fields}
    always = {name for name, field in fields.items() if field.required or _has_default(field)}
    for key, item in value.items():
        if key in fields:
            yield from _unknown_in(fields[key].type, item, f"{path}.{key}".lstrip("."))
        elif path or key != kind.tag_field:
            yield UnknownKey(path, str(key), list(fields), always <= value.keys())


_SCHEMA_NAMES = {b"TlsUse": b"Tls"}
"""Names of parts in schemas that differ from their types' names."""


def json_schema(kind: type[Document]) -> bytes:
    """The JSON Schema of a document type."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_of(kind),
        **msgspec.json.schema(kind),
    }
    raw = msgspec.json.encode(schema)
    for name, kept in _SCHEMA_NAMES.items():
        raw = raw.replace(b'"%b"' % name, b'"%b"' % kept)
        raw = raw.replace(b'"#/$defs/%b"' % name, b'"#/$defs/%b"' % kept)
    return msgspec.json.format(raw, indent=2) + b"\n"


MOST_BYTES = 1 << 60
MOST_COUNT = 1 << 50
MOST_SECONDS = 1 << 32
"""The longest time in a document, 136 years."""
STEEPEST = 5.0
"""The largest Zipf exponent; beyond it nearly all requests are for one object."""

Bytes = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
MeanBytes = Annotated[float, Meta(ge=0, le=MOST_BYTES)]
Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
Natural = Annotated[int, Meta(ge=0)]
"""A count of the kernel or nginx; limits may be near 2⁶³."""
OneOrMore = Annotated[int, Meta(ge=1, le=MOST_COUNT)]
Number = Annotated[float, Meta(ge=0, le=MOST_COUNT)]
"""A rate, a mean of counts, or a share in proportion."""
MeanOfOneOrMore = Annotated[float, Meta(ge=1, le=MOST_COUNT)]
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
WholeSeconds = Annotated[int, Meta(ge=0, le=MOST_SECONDS)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
"""A share of a whole."""
Exponent = Annotated[float, Meta(ge=0, le=STEEPEST)]

AtMostBytes = Annotated[int, Meta(le=MOST_BYTES)]
AtMostCount = Annotated[int, Meta(le=MOST_COUNT)]
AtMostNumber = Annotated[float, Meta(le=MOST_BYTES)]
AtMostSeconds = Annotated[float, Meta(le=MOST_SECONDS)]
"""Seconds in labs and scenarios, whose own checks reject values that are too small."""
