"""Kept runs: one file each in the user's state directory, bounded, and written atomically.

A file is gzip with two JSON lines: the summary, which is all that a list reads, and the result. Its
name is the digest of the result, so a copy keeps its name and a changed file is detected.
"""

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
"""Bound on all kept runs; the oldest are removed first."""
MOST_RUNS = 500
KeptResult = Validation | ScenarioRun | Rehearsal
LAST = "last"
"""The word for the newest kept run on the command line."""

_SUFFIX = ".run.gz"
_ID_DIGITS = 10
_FEWEST_DIGITS = 4
_MOST_TEXT = 1 << 30
"""Bound on the decompressed bytes of a kept run."""
_MOST_SUMMARY = 1 << 16
_STALE_SECONDS = 3600.0
"""The age at which an unfinished file counts as left by a dead process."""

_BROKEN = (OSError, EOFError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError)


def runs_directory() -> Path:
    """The directory of kept runs: ``nginx-tune/runs`` in the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    # The XDG specification ignores relative paths.
    place = Path(base) if base.startswith("/") else _home() / ".local" / "state"
    return place / "nginx-tune" / "runs"


def _home() -> Path:
    return Path(os.path.expanduser("~"))  # noqa: PTH111  # an unknown home stays "~"


class Clock:
    """The start of an experiment and the time since."""

    def __init__(self) -> None:
        self.started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._start


def store_run(
    result: KeptResult, *, kind: RunKind, name: str, clock: Clock, directory: Path | None = None
) -> RunSummary:
    """Keep a result; returns its summary.

    Errors: UndecidedError if it cannot be written; nothing is left behind.
    Side effects: may remove the oldest kept runs.
    """
    place = directory or runs_directory()
    body = msgspec.json.encode(result, order="deterministic")
    summary = _summary(result, run_id=_digest(body), kind=kind, name=name, clock=clock)
    data = gzip.compress(msgspec.json.encode(summary) + b"\n" + body + b"\n", 6, mtime=0)
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if why := why_not_own(place):
            raise UndecidedError(
                f"the result is not kept: {why}", hint="set XDG_STATE_HOME, or use --no-store"
            )
        _write_whole(place / f"{summary.id}{_SUFFIX}", data)
    except OSError as error:
        raise UndecidedError(
            f"the result is not kept: {error.filename or place}: {error.strerror}",
            hint="make room there, set XDG_STATE_HOME, or use --no-store",
        ) from None
    _make_room(place, keep=summary.id)
    return summary


def list_runs(directory: Path | None = None) -> KeptRuns:
    """The kept runs, the newest first, with the files that are skipped."""
    place = directory or runs_directory()
    summaries: list[RunSummary] = []
    skipped: list[SkippedFile] = []
    total = 0
    for path in _files(place):
        try:
            total += path.stat().st_size
            summaries.append(_summary_in(path))
        except (*_BROKEN, UsageError) as error:
            skipped.append(SkippedFile(file=_shown(path), reason=_why(error)))
    summaries.sort(key=lambda run: (run.started_at, run.id), reverse=True)
    return KeptRuns(
        directory=_shown(place), runs=summaries, bytes=total, bytes_most=MOST_BYTES, skipped=skipped
    )


def _summary_in(path: Path) -> RunSummary:
    if not path.is_file():  # opening a pipe would wait for its writer
        raise UsageError("not a regular file")
    with gzip.open(path) as file:
        return _read_summary(file.readline(_MOST_SUMMARY), path)


def is_run_name(name: str) -> bool:
    """True for the name of a kept run: a ``.run.gz`` file, or a bare word that is not a file."""
    if name.endswith(_SUFFIX):
        return True
    return "/" not in name and "." not in name and name != "-" and not Path(name).exists()


def read_run(name: str, directory: Path | None = None) -> KeptRun:
    """A kept run by its id, the first digits of it, ``last``, or a file.

    Errors: UsageError if no run or several runs match, or if the run is broken.
    """
    if "/" in name or name.endswith((".json", _SUFFIX)):
        return _read_file(Path(name))
    place = directory or runs_directory()
    if name == LAST:
        runs = list_runs(place).runs
        if not runs:
            hint = (
                "validate, rehearse and scenario run keep theirs"
                if os.geteuid() == 0
                else "runs made with sudo are kept for root: use sudo here too"
            )
            raise UsageError("no runs are kept", hint=hint)
        name = runs[0].id
    if len(name) < _FEWEST_DIGITS or set(name) - set("0123456789abcdef"):
        raise UsageError(
            f"'{name[:60]}' is not a kept run",
            hint=name_meant(name, ["last"])
            or "give an id from 'nginx-tune runs list', 'last' or a file",
        )
    matches = [path for path in _files(place) if path.name.startswith(name) and path.is_file()]
    if len(matches) != 1:
        how_many = "more than one kept run begins" if matches else "no kept run begins"
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
        raise UsageError(f"{shown}: larger than any kept run")
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
        raise UsageError("changed since it was kept")
    result = msgspec.json.decode(body, type=KeptResult)
    return KeptRun(summary=summary, result=result)


def _read_summary(line: bytes, path: Path) -> RunSummary:
    summary = decode(RunSummary, line)
    if path.name.endswith(_SUFFIX) and path.name != f"{summary.id}{_SUFFIX}":
        raise UsageError(f"holds the run {summary.id[:_ID_DIGITS]}")
    return summary


def _summary(
    result: KeptResult, *, run_id: str, kind: RunKind, name: str, clock: Clock
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
    # A result has configurations and URLs, which are private.
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
    """Remove the oldest runs beyond the bounds, and unfinished files of dead processes."""
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
        return "truncated, or not gzip"
    if isinstance(error, OSError):
        return f"cannot read: {error.strerror}"
    return "not a kept run"
