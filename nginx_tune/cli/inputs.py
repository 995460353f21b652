"""Readers for the files that a command line names; every fault is a usage error of one line."""

from __future__ import annotations

import codecs
import math
import os
import re
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from nginx_tune.documents.base import Document, decode, schema_of, unknown_keys
from nginx_tune.documents.workload import Workload
from nginx_tune.errors import UsageError, name_meant
from nginx_tune.report.terminal.saying import say

if TYPE_CHECKING:
    from nginx_tune.nginx.lab.spec import LabPlan

D = TypeVar("D", bound=Document)

WRITER_SECONDS = 10.0
"""Time to wait until some process opens a pipe for writing."""
MOST_PIPED_BYTES = 256 << 20
_HEAD_BYTES = 256
_below: dict[str, tuple[str, str]] = {}
_OWN_SCHEMA = re.compile(rb'\s*\{\s*"schema":\s*"nginx-tune/([a-z_]+)/')


def keep_below(path: str, directory: str, name: str) -> None:
    """Make later reads of ``path`` open ``name`` below a directory, without following links."""
    _below[path] = (directory, name)


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``."""
    if path == "-" and sys.stdin is None:
        raise UsageError("standard input is closed", hint="name a file instead of -")
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        if path in _below:
            return _read_below(path)
        if _is_named_pipe(path):
            return read_pipe(path)
        with Path(path).open("rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read()
            data = file.read(MOST_PIPED_BYTES + 1)  # a device may never end
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path!r}: not the name of a file") from None
    return _bounded(data, path)


def _read_below(path: str) -> bytes:
    from nginx_tune.host.paths import open_below  # noqa: PLC0415  # only for a found settings file

    with os.fdopen(open_below(*_below[path]), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{path}: is not a file")
        return file.read()


def _is_named_pipe(path: str) -> bool:
    """True for a named pipe, which may never be written to; false for ``<(command)`` of a shell."""
    status = Path(path).stat()
    return stat.S_ISFIFO(status.st_mode) and not os.path.realpath(path).startswith("/proc/")


def _bounded(data: bytes, path: str) -> bytes:
    if len(data) > MOST_PIPED_BYTES:
        raise UsageError(f"{path}: more than {MOST_PIPED_BYTES >> 20} MiB")
    return data


def read_pipe(path: str) -> bytes:
    """All that is written to a named pipe or a process substitution (``<(command)``).

    Errors: UsageError if nothing is written, or more than a configuration can have.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as pipe:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        if not waiting.poll(WRITER_SECONDS * 1000):
            raise UsageError(
                f"{path}: a pipe to which nothing was written in {WRITER_SECONDS:g} s",
                hint="name a file, or write to the pipe in time",
            )
        os.set_blocking(descriptor, True)  # it was opened without blocking
        data = pipe.read(MOST_PIPED_BYTES + 1)
    return _bounded(data, path)


def read_overlays(overlays: tuple[str, ...]) -> dict[str, bytes]:
    """The new bytes of each file named by ``PATH=NEW``."""
    files: dict[str, bytes] = {}
    for overlay in overlays:
        path, equals, new = overlay.partition("=")
        if not equals or not path or not new:
            raise click.UsageError(f"--overlay {overlay}: give PATH=NEW")
        if path in files:
            raise click.UsageError(f"--overlay {path}=…: given twice")
        if os.path.isfile(new) and os.path.getsize(new) > MOST_PIPED_BYTES:  # noqa: PTH113, PTH202
            raise click.UsageError(f"{new}: more than {MOST_PIPED_BYTES >> 20} MiB")
        files[path] = read_bytes(new)
    return files


def read_document(kind: type[D], path: str) -> D:
    """The document in a JSON file (``-``: standard input).

    Unknown keys of a later version of nginx-tune are ignored with one line on standard error,
    except in a plan, since it will be applied. Any other unknown key is refused.
    """
    source = "standard input" if path == "-" else path
    data = read_bytes(path).removeprefix(codecs.BOM_UTF8)  # RFC 8259 8.1: it may be ignored
    found = decode(kind, data, source=source, takes_newer=kind.__name__ != "Plan")
    if later := _of_later_version(kind, data, source):
        _say_once(f"{source}: {later}; unknown keys are ignored")
    return found


_HAND_WRITTEN = frozenset({"facts", "workload", "site"})
_said: set[str] = set()


def _of_later_version(kind: type[Document], data: bytes, source: str) -> str:
    """A note on a document's keys that only a later nginx-tune knows; empty if it has none.

    Errors: UsageError for a misspelt key.
    """
    expected = schema_of(kind)
    tables = msgspec.json.decode(data)
    if (schema := tables.get("schema", "")) != expected:
        return f"from a newer nginx-tune ({schema})"
    if expected.split("/")[1] not in _HAND_WRITTEN:
        return ""
    added = []
    for key in unknown_keys(kind, tables):
        if not key.is_added:
            raise key.error(source, kind)
        added.append(f"{key.path}.{key.key}".lstrip("."))
    return f"from a newer nginx-tune ({', '.join(added[:3])})" if added else ""


def _say_once(text: str) -> None:
    context = click.get_current_context(silent=True)
    if text not in _said and not (context and (context.obj or {}).get("quiet")):
        _said.add(text)
        say(text)


def decode_one_of(
    kinds: Sequence[type[D]], data: bytes, *, source: str, refusal: str, hint: str
) -> D:
    """Decode the document in ``data``, which is of one of several kinds, by its schema.

    Errors: UsageError that names ``source``; for another known kind, the message is the name of
            that kind followed by ``refusal``.
    """
    try:
        found = msgspec.json.decode(data, type=_Header).schema
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: not a document of nginx-tune: {error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{source}: not JSON: {error}") from None
    family = found.rpartition("/")[0]
    for kind in kinds:
        if schema_of(kind).rpartition("/")[0] == family:
            return decode(kind, data, source=source)  # reports another version
    from nginx_tune.documents.registry import DOCUMENTS  # noqa: PLC0415  # only on the way out

    name = next((n for n, known in DOCUMENTS.items() if schema_of(known) == found), None)
    said = f"nginx-tune's {name} document" if name else f"a document of schema '{found[:80]}'"
    raise UsageError(f"{source}: {said}, {refusal}", hint=hint)


class _Header(msgspec.Struct):
    schema: str = ""


def read_workload(path: str) -> Workload:
    """A workload with objectives that a measurement can be compared with.

    Errors: UsageError, also for an objective with a time that has no unit.
    """
    from nginx_tune.measure.proof.objective import check_objectives  # noqa: PLC0415  # only with objectives

    workload = read_document(Workload, path)
    try:
        check_objectives(objective.expression for objective in workload.objectives)
    except UsageError as error:
        raise UsageError(f"{path}: objectives: {error.message}", hint=error.hint) from None
    return workload


def refuse_document(name: str) -> None:
    """Refuse a document of nginx-tune that is given as a configuration.

    Errors: UsageError with the option for that document.
    """
    path = Path(name)
    if not name or not path.is_file():
        return
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return  # its reader reports it
    found = _OWN_SCHEMA.match(head)
    if found is None:
        return
    kind = found[1].decode()
    hint = f"name a plan with --plan {name}" if kind == "plan" else "name a configuration"
    raise UsageError(f"{name}: a {kind} document of nginx-tune, not a configuration", hint=hint)


class _NotFiniteError(Exception):
    """An infinite number or NaN, which TOML allows and no setting does."""


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotFiniteError(text)
    return number


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415  # most calls read no TOML
    else:
        import tomli as tomllib  # noqa: PLC0415
    try:
        return tomllib.loads(read_bytes(str(path)).decode(), parse_float=_finite)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except _NotFiniteError as error:
        raise UsageError(f"{path}: {error}: not a finite number") from None
    except ValueError:  # of int(): more than 4,300 digits
        raise UsageError(f"{path}: not TOML: a number has too many digits") from None
    except RecursionError:
        raise UsageError(f"{path}: not TOML: nested too deeply") from None


def read_lab_plan(
    spec: str | None, scale: float | None, *, replays: bool = False
) -> LabPlan | None:
    """The lab that ``--lab`` names by a class, a TOML file or a facts file; None for no lab.

    ``replays``: the lab's files are those of a manifest, and any lab may have only some of them.
    Errors: UsageError for any other file, and for a scale of 0.
    """
    from nginx_tune.documents.facts import Facts  # noqa: PLC0415  # only for a lab
    from nginx_tune.nginx.lab.spec import (  # noqa: PLC0415
        CLASSES,
        plan_of_class,
        plan_of_facts,
        plan_of_tables,
    )

    is_file = spec is not None and spec not in CLASSES
    is_facts = is_file and not str(spec).endswith(".toml")
    if scale is not None and not is_facts and not (replays and spec is not None):
        raise UsageError(
            "--scale needs --lab FACTS, or --manifest and any lab",
            hint="name a facts file with --lab",
        )
    if spec is None:
        return None
    if not is_file:
        return plan_of_class(spec)
    if spec.endswith(".toml"):
        return plan_of_tables(read_toml(Path(spec)), spec)
    if not (spec.endswith(".json") or "/" in spec or Path(spec).exists()):
        raise UsageError(
            f"no lab '{spec}'",
            hint=name_meant(spec, CLASSES)
            or f"one of {', '.join(CLASSES)}, a TOML file or a facts file",
        )
    return plan_of_facts(read_document(Facts, spec), scale)
