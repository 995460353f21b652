"""Partial results of ``learn``: the tally of some logs in a file, and the sum of many of them."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from nginx_tune import __version__
from nginx_tune.documents.base import decode
from nginx_tune.documents.learning import LearnPlan, Partial
from nginx_tune.errors import UsageError
from nginx_tune.observe.access_logs import ZSTD, Learnt, LogFrame, learnt_of, read_frames, zstd
from nginx_tune.observe.object_storage import read_object

_SHORTEST_KEY_BYTES = 16
_KEY, _FINGERPRINT = b"nginx-tune key", b"nginx-tune print"


def read_key(path: str) -> str:
    """The key for hashes, in hexadecimal, derived from the secret in a file.

    Errors: UsageError for a file that cannot be read or is too short to be a secret.
    """
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    if len(secret) < _SHORTEST_KEY_BYTES:
        raise UsageError(
            f"{path}: shorter than {_SHORTEST_KEY_BYTES} bytes, too short for a secret",
            hint=f"openssl rand -hex 32 > {path} makes one",
        )
    return hashlib.blake2b(secret, digest_size=16, person=_KEY).hexdigest()


def partial_of(learnt: Learnt, plan: LearnPlan) -> Partial:
    """The document of what was learnt with a plan; it does not contain the key."""
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
    """The bytes of a partial result's file: JSON, compressed with zstd."""
    packed: bytes = zstd().compress(msgspec.json.encode(partial, order="deterministic"), 1)
    return packed


def is_partial(path: str) -> bool:
    """True if a file begins as a partial result does; False if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(ZSTD)) == ZSTD
    except OSError:
        return False


def unpack_partial(data: bytes, source: str) -> Partial:
    """The document in the bytes of a file.

    Errors: UsageError that names ``source`` if they are not a partial result of this version.
    """
    try:
        raw = zstd().decompress(data)
    except zstd().ZstdError as error:
        raise UsageError(f"{source}: not a whole partial result: {error}") from None
    partial = decode(Partial, raw, source=source)
    if partial.version != __version__:
        raise UsageError(
            f"{source}: written by nginx-tune {partial.version}, this is {__version__}: "
            "they may count differently",
            hint=f"learn the logs again, or merge with nginx-tune {partial.version}",
        )
    return partial


class PartialResult(NamedTuple):
    """A partial result with the names that messages use for it."""

    name: str
    """The name of its file, or of its only log; empty for a sum in memory."""
    partial: Partial
    owners: Mapping[str, str] = MappingProxyType({})
    """Names by the digest of their log; an unlisted log is from ``name``."""
    broken: Sequence[str] = ()
    """The names of the logs counted in ``broken_logs``; if empty, ``name`` stands for them."""


class Merged(NamedTuple):
    """The sum of partial results."""

    learnt: Learnt
    result: PartialResult


def merge_results(results: Iterable[PartialResult]) -> Merged:
    """Add up partial results, of which only one is in memory at a time.

    Errors: UsageError for one that cannot be added: of another plan, key or version, with a log
    that was already counted, or broken.
    """
    remaining = iter(results)
    first = next(remaining)
    plan, fingerprint = first.partial.plan, first.partial.key_fingerprint
    owners: dict[str, str] = {}
    broken: list[str] = []
    broken_logs = 0

    def frames() -> Iterator[LogFrame]:
        nonlocal broken_logs
        for result in chain([first], remaining):
            _check(result, first, owners)
            if result.partial.broken_logs:
                broken.extend(result.broken or [result.name])
                broken_logs += result.partial.broken_logs
            places = msgspec.json.encode(result.partial.places)
            yield LogFrame("T", b'{"tally":%b,"places":%b}' % (bytes(result.partial.tally), places))

    reading = read_frames(frames(), msgspec.structs.replace(plan, key="0" * 32))
    unread = [f"{name}: a log in it could not be read to the end" for name in broken]
    learnt = learnt_of(reading, broken=unread)._replace(logs=sorted(owners))
    partial = Partial(
        version=__version__,
        plan=plan,
        key_fingerprint=fingerprint,
        logs=learnt.logs,
        broken_logs=broken_logs,
        tally=learnt.raw_tally,
        places=learnt.places,
    )
    return Merged(learnt, PartialResult("", partial, owners, broken))


def read_result(file: str) -> PartialResult:
    """The partial result in a file or at a URL.

    Errors: UsageError.
    """
    return PartialResult(file, unpack_partial(read_object(file), file))


def _check(result: PartialResult, first: PartialResult, owners: dict[str, str]) -> None:
    partial, file = result.partial, result.name
    if partial.key_fingerprint != first.partial.key_fingerprint:
        raise UsageError(
            f"{file} and {first.name} have hashes of different keys",
            hint="learn all logs with one --key-file",
        )
    for name in LearnPlan.__struct_fields__:
        if getattr(partial.plan, name) != getattr(first.partial.plan, name):
            raise UsageError(
                f"{file} and {first.name} were learnt with another {name.replace('_', ' ')}",
                hint="learn all logs with the same options and configuration",
            )
    for digest in partial.logs:
        owner = result.owners.get(digest, file)
        if digest in owners:
            raise UsageError(
                f"{owner} and {owners[digest]} have a log in common, and would count it twice",
                hint="leave one of them out",
            )
        owners[digest] = owner
