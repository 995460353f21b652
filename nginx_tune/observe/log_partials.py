"""Partial results of ``learn``: the tally of some logs in a file, and the sum of many of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from nginx_tune import __version__
from nginx_tune.documents.base import decode
from nginx_tune.documents.learning import LearnPlan, Partial
from nginx_tune.documents.units import plural
from nginx_tune.errors import UsageError
from nginx_tune.observe.access_logs import ZSTD, Learnt, LogFrame, learnt_of, read_frames, zstd

_SHORTEST_KEY_BYTES = 16
_KEY, _FINGERPRINT = b"nginx-tune key", b"nginx-tune print"


def read_key(path: str) -> str:
    """The key of hashes that a file with a secret stands for, in hexadecimal.

    Errors: UsageError for a file that cannot be read or is too short to be a secret.
    """
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    if len(secret) < _SHORTEST_KEY_BYTES:
        raise UsageError(
            f"{path}: shorter than {_SHORTEST_KEY_BYTES} bytes, and no secret",
            hint=f"openssl rand -hex 32 > {path} makes one",
        )
    return hashlib.blake2b(secret, digest_size=16, person=_KEY).hexdigest()


def partial_of(learnt: Learnt, plan: LearnPlan) -> Partial:
    """The document of what was learnt with a plan, without the key."""
    key = bytes.fromhex(plan.key)
    return Partial(
        version=__version__,
        plan=msgspec.structs.replace(plan, key=""),
        key_fingerprint=hashlib.blake2b(key, digest_size=8, person=_FINGERPRINT).hexdigest(),
        logs=sorted(learnt.logs),
        broken_logs=len(learnt.broken),
        tally=learnt.raw_tally,
        places=learnt.places,
    )


def pack_partial(partial: Partial) -> bytes:
    """The bytes of its file: JSON, packed by zstd."""
    packed: bytes = zstd().compress(msgspec.json.encode(partial, order="deterministic"))
    return packed


def is_partial(path: str) -> bool:
    """Tell whether a file begins as a packed one does; what cannot be read does not."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(ZSTD)) == ZSTD
    except OSError:
        return False


def unpack_partial(data: bytes, source: str) -> Partial:
    """The document in the bytes of a file.

    Errors: UsageError that names ``source`` for anything else, and for one of another version.
    """
    try:
        raw = zstd().decompress(data)
    except zstd().ZstdError as error:
        raise UsageError(f"{source}: not a whole partial result: {error}") from None
    partial = decode(Partial, raw, source=source)
    if partial.version != __version__:
        raise UsageError(
            f"{source}: written by nginx-tune {partial.version}, this is {__version__}: "
            "they may count otherwise",
            hint=f"learn the logs again, or merge with nginx-tune {partial.version}",
        )
    return partial


def merge_partials(files: Sequence[str]) -> tuple[Learnt, Partial]:
    """The sum of partial results, as what was learnt and as another partial result.

    Errors: UsageError for files that do not add: of another plan, key or version, with a log that
    was counted already, or broken.
    """
    first = unpack_partial(_read(files[0]), files[0])
    owners: dict[str, str] = {}
    broken = 0

    def frames() -> Iterator[LogFrame]:
        nonlocal broken
        for file in files:
            partial = unpack_partial(_read(file), file)
            _check(partial, file, first, files[0], owners)
            broken += partial.broken_logs
            places = msgspec.json.encode(partial.places)
            whole = b'{"tally":%b,"places":%b}' % (bytes(partial.tally), places)
            yield LogFrame("T", whole)

    plan = first.plan
    reading = read_frames(frames(), msgspec.structs.replace(plan, key="0" * 32))
    unread = [f"{plural(broken, 'log')} could not be read to the end"] if broken else []
    learnt = learnt_of(reading, broken=unread)._replace(logs=sorted(owners))
    return learnt, Partial(
        version=__version__,
        plan=plan,
        key_fingerprint=first.key_fingerprint,
        logs=learnt.logs,
        broken_logs=broken,
        tally=learnt.raw_tally,
        places=learnt.places,
    )


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot read: {error.strerror}") from None


def _check(
    partial: Partial, file: str, first: Partial, first_file: str, owners: dict[str, str]
) -> None:
    if partial.key_fingerprint != first.key_fingerprint:
        raise UsageError(
            f"{file} and {first_file} have hashes of different keys",
            hint="learn all logs with one --key-file",
        )
    for name in LearnPlan.__struct_fields__:
        if getattr(partial.plan, name) != getattr(first.plan, name):
            raise UsageError(
                f"{file} and {first_file} were learnt with another {name.replace('_', ' ')}",
                hint="learn all logs with the same options and configuration",
            )
    for digest in partial.logs:
        if digest in owners:
            raise UsageError(
                f"{file} and {owners[digest]} have a log in common: its requests count once",
                hint="leave one of them out",
            )
    owners.update(dict.fromkeys(partial.logs, file))
