"""Stored runs: one file each in the user's state directory, bounded, written whole or not at all.

A file is gzip with two JSON lines: the summary, so that a list reads the first block of each file
alone, and the result. Its name is the digest of the result, so a run keeps its name wherever it is
copied, and a file that was changed is found out. What cannot be read is skipped and said.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from nginx_tune import __version__
from nginx_tune.documents.base import decode
from nginx_tune.documents.rehearsal import Rehearsal
from nginx_tune.documents.run import KeptRun, KeptRuns, RunKind, RunSummary, SkippedFile, Validation
from nginx_tune.documents.scenario import ScenarioRun
from nginx_tune.documents.verdict import Verdict
from nginx_tune.errors import UndecidedError, UsageError, name_meant
from nginx_tune.host.paths import why_not_own
from nginx_tune.measure.proof.rehearsal import worst_outcome

MOST_BYTES = 512 << 20
"""All runs together; the oldest go first."""
MOST_RUNS = 500
KeptResult = Validation | ScenarioRun | Rehearsal
LAST = "last"
"""The newest run's name on the command line."""

_SUFFIX = ".run.gz"
_ID_DIGITS = 10
_FEWEST_DIGITS = 4
_MOST_TEXT = 1 << 30
"""The longest text of one run, unpacked."""
_MOST_SUMMARY = 1 << 16
_STALE_SECONDS = 3600.0
"""A file that is still being written after this was left by a process that is no more."""

_BROKEN = (OSError, EOFError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError)


def runs_directory() -> Path:
    """The directory of kept runs: ``nginx-tune/runs`` in the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    # The specification has relative paths ignored.
    place = Path(base) if base.startswith("/") else _home() / ".local" / "state"
    return place / "nginx-tune" / "runs"


def _home() -> Path:
    return Path(os.path.expanduser("~"))  # noqa: PTH111  # a home that is not known stays "~"


class Clock:
    """The begin of a run, and the time that it has taken."""

    def __init__(self) -> None:
        self.started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Until now."""
        return time.monotonic() - self._start


def store_run(
    result: KeptResult,
    *,
    kind: RunKind,
    name: str,
    clock: Clock,
    directory: Path | None = None,
) -> RunSummary:
    """Keep a run; what a list says of it.

    Errors: UndecidedError when it cannot be written; nothing is left then.
    Side effects: may remove the oldest runs.
    """
    place = directory or runs_directory()
    body = msgspec.json.encode(result, order="deterministic")
    summary = _summary(
        result,
        run_id=_digest(body),
        kind=kind,
        name=name,
        clock=clock,
    )
    data = gzip.compress(msgspec.json.encode(summary) + b"\n" + body + b"\n", 6, mtime=0)
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if why := why_not_own(place):
            raise UndecidedError(
                f"the run is not stored: {why}", hint="set XDG_STATE_HOME, or run with --no-store"
            )
        _write_whole(place / f"{summary.id}{_SUFFIX}", data)
    except OSError as error:
        raise UndecidedError(
            f"the run is not stored: {error.filename or place}: {error.strerror}",
            hint="make room there, set XDG_STATE_HOME, or run with --no-store",
        ) from None
    _make_room(place, keep=summary.id)
    return summary


def list_runs(directory: Path | None = None) -> KeptRuns:
    """The stored runs, the newest first, and the files there that are none."""
    place = directory or runs_directory()
    found: list[RunSummary] = []
    skipped: list[SkippedFile] = []
    total = 0
    for path in _files(place):
        try:
            total += path.stat().st_size
            found.append(_summary_in(path))
        except (*_BROKEN, UsageError) as error:
            skipped.append(SkippedFile(file=_shown(path), reason=_why(error)))
    found.sort(key=lambda run: (run.started_at, run.id), reverse=True)
    return KeptRuns(
        directory=_shown(place), runs=found, bytes=total, bytes_most=MOST_BYTES, skipped=skipped
    )


def _summary_in(path: Path) -> RunSummary:
    if not path.is_file():  # opening a pipe would wait for its writer
        raise UsageError("no file")
    with gzip.open(path) as file:
        return _read_summary(file.readline(_MOST_SUMMARY), path)


def is_run_name(name: str) -> bool:
    """True for a stored run: its packed file, or a bare word that is no file here."""
    if name.endswith(_SUFFIX):
        return True
    return "/" not in name and "." not in name and name != "-" and not Path(name).exists()


def read_run(name: str, directory: Path | None = None) -> KeptRun:
    """A stored run by its id, the first digits of that or ``last``; or one in a file.

    Errors: UsageError when there is none, or more than one, or it is broken.
    """
    if "/" in name or name.endswith((".json", _SUFFIX)):
        return _read_file(Path(name))
    place = directory or runs_directory()
    if name == LAST:
        runs = list_runs(place).runs
        if not runs:
            # Who measured behind sudo finds nothing here: sudo has root keep what it measures.
            hint = (
                "validate, rehearse and scenario run store theirs"
                if os.geteuid() == 0
                else "runs that were made with sudo are root's: ask for them with sudo too"
            )
            raise UsageError("no runs are stored", hint=hint)
        name = runs[0].id
    if len(name) < _FEWEST_DIGITS or set(name) - set("0123456789abcdef"):
        raise UsageError(
            f"'{name[:60]}' is no run",
            hint=name_meant(name, ["last"])
            or "an id from 'nginx-tune runs list', 'last' or a file",
        )
    matches = [path for path in _files(place) if path.name.startswith(name) and path.is_file()]
    if len(matches) != 1:
        how_many = "more than one run begins" if matches else "no stored run begins"
        raise UsageError(f"{how_many} with {name}", hint="see 'nginx-tune runs list'")
    return _read_file(matches[0])


def _read_file(path: Path) -> KeptRun:
    shown = _shown(path)
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_packed else path.open("rb") as file:
            data = file.read(_MOST_TEXT + 1)
    except _BROKEN as error:
        raise UsageError(f"{shown}: {_why(error)}") from None
    if len(data) > _MOST_TEXT:
        raise UsageError(f"{shown}: larger than any run")
    if not is_packed:
        return decode(KeptRun, data, source=shown)
    try:
        return _unpack(data, path)
    except (UsageError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown}: {_why(error)}") from None


def _unpack(data: bytes, path: Path) -> KeptRun:
    head, _, body = data.partition(b"\n")
    summary = _read_summary(head, path)
    if _digest(body.rstrip(b"\n")) != summary.id:
        raise UsageError("changed since it was stored")
    result = msgspec.json.decode(body, type=KeptResult)
    return KeptRun(summary=summary, result=result)


def _read_summary(line: bytes, path: Path) -> RunSummary:
    summary = decode(RunSummary, line)
    if path.name.endswith(_SUFFIX) and path.name != f"{summary.id}{_SUFFIX}":
        raise UsageError(f"holds the run {summary.id[:_ID_DIGITS]}")
    return summary


def _summary(
    result: KeptResult,
    *,
    run_id: str,
    kind: RunKind,
    name: str,
    clock: Clock,
) -> RunSummary:
    started = RunSummary(
        id=run_id,
        kind=kind,
        name=name,
        started_at=clock.started_at,
        seconds=clock.seconds,
        version=__version__,
        outcome="inconclusive",
    )
    if isinstance(result, Rehearsal):
        return msgspec.structs.replace(
            started,
            nginx_version=result.nginx_version or None,
            lab=result.lab,
            outcome=worst_outcome(result),
            gates=len(result.gates),
            gates_passed=sum(gate.passed for gate in result.gates),
            interrupted=result.interrupted,
        )
    verdict: Verdict = result.verdict
    primary = next((m for m in verdict.metrics if m.name == verdict.primary_metric), None)
    claims = result.claims if isinstance(result, ScenarioRun) else []
    shown = [claim for claim in claims if not claim.left_out]
    return msgspec.structs.replace(
        started,
        nginx_version=verdict.environment.nginx_version,
        lab=verdict.environment.lab,
        seed=verdict.environment.seed,
        outcome=verdict.outcome,
        primary_metric=verdict.primary_metric,
        ratio=primary.ratio if primary else None,
        low=primary.low if primary else None,
        high=primary.high if primary else None,
        pairs=verdict.environment.pairs,
        gates=len(verdict.gates),
        gates_passed=sum(gate.passed for gate in verdict.gates),
        claims=len(shown),
        claims_held=sum(claim.held for claim in shown),
        interrupted=verdict.stopped == "interrupted",
    )


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:_ID_DIGITS]


def _write_whole(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    # Configurations and URLs stand in it: for nobody else.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _make_room(place: Path, *, keep: str) -> None:
    """Remove the oldest runs past the bounds, and what dead processes left half-written."""
    with contextlib.suppress(OSError):
        for half in place.glob(f".*{_SUFFIX}.*.new"):
            if time.time() - half.stat().st_mtime > _STALE_SECONDS:
                half.unlink(missing_ok=True)
    left_bytes, left_runs = MOST_BYTES, MOST_RUNS
    for _, size, path in sorted(_sizes(place), reverse=True):
        left_bytes, left_runs = left_bytes - size, left_runs - 1
        if (left_bytes < 0 or left_runs < 0) and path.name != f"{keep}{_SUFFIX}":
            with contextlib.suppress(OSError):
                path.unlink()


def _sizes(place: Path) -> Iterator[tuple[float, int, Path]]:
    for path in _files(place):
        with contextlib.suppress(OSError):
            status = path.stat()
            yield status.st_mtime, status.st_size, path


def _files(place: Path) -> list[Path]:
    return sorted(p for p in place.glob(f"*{_SUFFIX}") if not p.name.startswith("."))


def _shown(path: Path) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def _why(error: BaseException) -> str:
    if isinstance(error, UsageError):
        return error.message
    if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
        return "cut short or no gzip"
    if isinstance(error, OSError):
        return f"cannot read: {error.strerror}"
    return "no stored run"
