"""Access logs, compressed or plain, and the results of reading them."""

import contextlib
import errno
import gzip
import os
import re
import select
import stat
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.learning import (
    LearnPlan,
    LogCounts,
    LogReading,
    ObjectPopularity,
    RequestSample,
    Tally,
    Timeline,
)
from nginx_tune.documents.progress import Step
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.host.programs import start_program
from nginx_tune.measure.load.probe import find_probe
from nginx_tune.observe.object_storage import StoredLog, is_url, open_object

LONGEST_LINE_BYTES = 1 << 16
"""Maximum number of bytes of a line to read, as in the executable (``probes/src/learn/mod.rs``)."""
_BLOCK_BYTES = 1 << 20
_GZIP, ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"
_OF_KERNEL = ("/proc/", "/sys/")
"""Directories of files that the kernel makes. Reading such a file may wait, and reading /proc/kmsg
removes what was read."""
_TOLD_EVERY_SECONDS = 0.2
_PATIENCE_SECONDS = 0.3
"""The time after which a pipe without a writer is reported."""


class LogFrame(NamedTuple):
    """A part of the reader's input (``probes/src/learn/mod.rs``)."""

    kind: Literal["L", "B", "T"]
    """``L``: a log begins; ``B``: bytes of the log; ``T``: the tally in a file."""
    data: bytes


_ROTATED = re.compile(
    r"(\.(gz|zst|bz2|xz))?$|([-_.]\d{4}-?\d\d-?\d\d([-_.T]?\d{2,10})?|\.\d{1,4})(?=(\.log)?$)"
)


def host_of(log: str) -> str:
    """A name for the host that wrote a log: the log's name without the suffixes of rotation.

    Connection numbers are unique only within a host, so this name distinguishes them.
    """
    name = "" if log == "-" else log
    while (shorter := _ROTATED.sub("", name)) != name:
        name = shorter
    return name


class LogFiles:
    """Access logs, which can be read once."""

    def __init__(
        self,
        found: Sequence[StoredLog],
        *,
        host: str | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``host`` wrote the logs (None: by name); ``tell`` reports a pipe without a writer."""
        self._host = host
        self._tell = tell
        logs = [log.name for log in found]
        for log in logs:
            if log != "-" and not is_url(log):
                check_readable(log)
                _check_foreign(log)
            if os.path.isdir(log):  # noqa: PTH112
                raise UsageError(f"{log}: a directory", hint=f"name its files, {log}/*.log*")
        if logs.count("-") > 1:
            raise UsageError("standard input can be read once")
        _check_once(logs)
        self.logs = logs
        self.broken: list[str] = []
        """Logs that could not be read to their end, with the reasons."""
        self.has_failed = False
        """True if reading a log failed in the system, so that the log itself may be whole."""
        sizes = [log.size for log in found if log.size is not None]
        self.total_bytes = sum(sizes) if len(sizes) == len(found) else None
        """The size of the files as stored, before decompression; None if one is a pipe."""
        self.read_bytes = 0
        """The number of these bytes that were read."""

    def frames(self) -> Iterator[LogFrame]:
        """For each log, a frame with the name of its host, then its bytes block by block."""
        for log in self.logs:
            yield LogFrame("L", (host_of(log) if self._host is None else self._host).encode())
            before = self.read_bytes
            try:
                with _opened(log, self._tell) as (file, raw):
                    while block := file.read1(_BLOCK_BYTES):  # a packed file may break off
                        if self.total_bytes is not None:
                            self.read_bytes = before + raw.tell()
                        yield LogFrame("B", block)
            except _unpacking_errors() as error:
                reason = error.strerror if isinstance(error, OSError) else None
                self.has_failed |= reason is not None
                self.broken.append(f"{_name(log)}: {reason or error}")


def check_readable(log: str) -> None:
    """Check that this user can read a path. Errors: UsageError."""
    try:
        os.stat(log)  # noqa: PTH116
    except OSError as error:
        raise UsageError(f"{log}: cannot read: {error.strerror}") from None
    if not os.access(log, os.R_OK, effective_ids=True):
        raise UsageError(f"{log}: cannot read: {os.strerror(errno.EACCES)}")


def _check_foreign(log: str) -> None:
    """Refuse a stream that this command itself writes to, since it would never end.

    In images of nginx, logs are links to /dev/stdout, a different stream for each process.
    """
    given = os.stat(log)  # noqa: PTH116
    for number, name in ((1, "standard output"), (2, "standard error")):
        try:
            own = os.fstat(number)
        except OSError:
            continue
        is_stream = stat.S_ISFIFO(own.st_mode) or stat.S_ISCHR(own.st_mode)
        if is_stream and (own.st_dev, own.st_ino) == (given.st_dev, given.st_ino):
            raise UsageError(
                f"{log}: is the {name} of this command, not a log",
                hint="a container's log: docker logs NAME | nginx-tune learn -",
            )


def _check_once(logs: Sequence[str]) -> None:
    """Refuse a file given under two names: its requests would count twice."""
    seen: dict[str | tuple[int, int], str] = {}
    for log in logs:
        if log == "-" or not (is_url(log) or Path(log).is_file()):
            continue
        one = None if is_url(log) else os.stat(log)  # noqa: PTH116
        identity = log if one is None else (one.st_dev, one.st_ino)
        first = seen.get(identity)
        if first is not None:
            what = "is given twice" if first == log else f"is the file {first} too"
            raise UsageError(
                f"{log} {what}, which would count its requests twice", hint="name each log once"
            )
        seen[identity] = log


def _name(log: str) -> str:
    return "standard input" if log == "-" else log


@contextlib.contextmanager
def _opened(
    log: str, tell: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[BufferedIOBase, BufferedReader]]:
    """Open a log: its decompressed bytes, and the file that they come from.

    The first bytes show the compression, not the name. The position in the file shows how much of
    it was read.
    """
    if log == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed")
        given = cast("BufferedReader", sys.stdin.buffer)
        yield _unpacked(given), given
        return
    if is_url(log):
        with open_object(log) as given:
            yield _unpacked(given), given
        return
    with open(log, "rb", opener=partial(_opener, tell=tell)) as file:
        yield _unpacked(file), file


def _opener(log: str, flags: int, *, tell: Callable[[str], None]) -> int:
    """Open a log; for a named pipe, wait until a writer has written to the pipe or closed it."""
    if not Path(log).is_fifo():
        descriptor = os.open(log, flags)
        mode = os.fstat(descriptor).st_mode
        if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not os.isatty(descriptor):
            os.close(descriptor)
            raise UsageError(f"{log}: a device, not a log")
        if os.path.realpath(log).startswith(_OF_KERNEL):
            os.close(descriptor)
            raise UsageError(f"{log}: a file of the kernel, not a log")
        return descriptor
    descriptor = os.open(log, flags | os.O_NONBLOCK)  # open() would wait silently
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    try:
        if not waiting.poll(_PATIENCE_SECONDS * 1000):
            tell(f"{log} is a pipe: waiting for a writer")
            waiting.poll()
    except BaseException:  # Ctrl-C too
        os.close(descriptor)
        raise
    os.set_blocking(descriptor, True)  # reads wait from here on
    return descriptor


def _unpacked(file: BufferedReader) -> BufferedIOBase:
    start = file.peek(len(_XZ))[: len(_XZ)]
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(ZSTD):
        return cast("BufferedIOBase", zstd().ZstdFile(file))
    if start.startswith(_BZIP2):
        import bz2  # noqa: PLC0415  # most logs are not packed by it, and some Pythons lack it

        return bz2.BZ2File(file)
    if start.startswith(_XZ):
        import lzma  # noqa: PLC0415

        return lzma.LZMAFile(file)
    return file


def zstd() -> Any:
    """The zstd module, which is imported only for compressed files."""
    if sys.version_info >= (3, 14):
        from compression import zstd as module  # noqa: PLC0415
    else:
        from backports import zstd as module  # noqa: PLC0415
    return module


def _unpacking_errors() -> tuple[type[Exception], ...]:
    """The errors that reading compressed bytes may raise, from the modules loaded so far."""
    kinds = [("backports.zstd", "ZstdError"), ("compression.zstd", "ZstdError")]
    kinds.append(("lzma", "LZMAError"))
    loaded = (getattr(sys.modules[name], kind) for name, kind in kinds if name in sys.modules)
    return (OSError, EOFError, zlib.error, *loaded)


class Learnt(NamedTuple):
    """The results of all logs, and the parts that could not be read."""

    logs: list[str]
    """Digests of the logs."""
    tally: Tally
    raw_tally: msgspec.Raw
    timeline: Timeline
    popularity: ObjectPopularity
    places: RequestSample
    broken: list[str]
    """Logs that could not be read to their end, with the reasons."""
    refused: list[str]
    """The places of the first lines that were left out."""


def read_logs(
    files: LogFiles, plan: LearnPlan, *, on_progress: Callable[[str], None] = lambda _: None
) -> Learnt:
    """Read the logs and add up their requests.

    Errors: UsageError if no line is in the format (it is another format, or no log);
    MissingToolError if the executable is not built.
    """
    reading = read_frames(watched_frames(files, on_progress), plan)
    _refuse_twice(reading.logs, files.logs)
    learnt = learnt_of(reading, broken=files.broken, logs=files.logs)
    if not learnt.tally.counts.requests:
        _refuse(files, plan, learnt.tally.counts, reading)
    return learnt


def learnt_of(reading: LogReading, *, broken: list[str], logs: Sequence[str] = ()) -> Learnt:
    """Decode the parts of a reading."""
    tally = msgspec.json.decode(reading.tally, type=Tally)
    refused = []
    for reason, places in reading.first_lines.items():
        if reason not in {"own", "empty"}:
            shown = ", ".join(f"{_name(logs[log])}:{line}" for log, line in places)
            refused.append(f"{shown}: {REASONS.get(reason, reason)}")
    return Learnt(
        [digest for digest in reading.logs if digest],
        tally,
        reading.tally,
        reading.timeline,
        reading.popularity,
        reading.places,
        broken,
        refused,
    )


def _refuse_twice(digests: Sequence[str], logs: Sequence[str]) -> None:
    owners: dict[str, str] = {}
    for digest, log in zip(digests, logs, strict=True):
        if digest in owners:
            raise UsageError(
                f"{_name(log)}: its lines are in {_name(owners[digest])} too, "
                "and would count twice",
                hint="name each log once",
            )
        if digest:
            owners[digest] = log


def _refuse(files: LogFiles, plan: LearnPlan, counts: LogCounts, reading: LogReading) -> None:
    names = ", ".join(map(_name, files.logs))
    if files.broken and not counts.lines:
        raise UsageError(files.broken[0])
    if not counts.lines:
        raise UsageError(f"{names}: empty")
    if counts.lines <= len(files.broken):  # only the beginning of a line each
        raise UsageError(f"{'; '.join(files.broken)}, before the end of its first line")
    if set(counts.refused) == {"own"}:
        raise UsageError(f"{names}: all {counts.lines:,} requests are nginx-tune's own")
    reason = max(counts.refused, key=counts.refused.__getitem__)
    log, line = reading.first_lines[reason][0]
    place = f"line {line}" if len(files.logs) == 1 else f"{_name(files.logs[log])}:{line}"
    raise UsageError(
        f"{names}: none of {counts.lines:,} lines is in the log format '{plan.format.name}' "
        f"({place}: {REASONS.get(reason, reason)})",
        hint="give --log-format: a NAME (with -c CONF), the format string itself, or json",
    )


REASONS = {
    "empty": "nothing in it",
    "too_long": f"longer than {LONGEST_LINE_BYTES // 1024} KiB",
    "format": "not in the format",
    "time": "its time is none",
    "status": "its status is not a number of three digits",
    "bytes": "its size is not a number",
    "own": "nginx-tune's own request",
}


def watched_frames(files: LogFiles, on_progress: Callable[[str], None]) -> Iterator[LogFrame]:
    """The frames of logs; reports progress several times a second."""
    done, told = 0, 0.0
    for frame in files.frames():
        yield frame
        block = frame.data
        is_line = done >> 26 != (done + len(block)) >> 26  # every 64 MiB
        now = time.monotonic()
        if is_line or now - told >= _TOLD_EVERY_SECONDS:
            told = now
            on_progress(
                Step(
                    f"{(done + len(block)) >> 20:,} MiB read",
                    done=files.read_bytes,
                    total=files.total_bytes,
                    unit="byte",
                    live=not is_line,
                )
            )
        done += len(block)


def read_frames(frames: Iterable[LogFrame], plan: LearnPlan) -> LogReading:
    """Run the executable, which reads a plan from a file and frames from a pipe.

    Errors: UndecidedError, also for an invalid tally.
    """
    with tempfile.NamedTemporaryFile() as plan_file, tempfile.TemporaryFile() as errors:
        plan_file.write(encode(plan))
        plan_file.flush()
        with tempfile.TemporaryFile() as output:
            process = start_program(
                [find_probe(), "learn", plan_file.name],
                is_checked=True,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            pipe = process.stdin
            assert pipe is not None  # noqa: S101  # it is a pipe
            try:
                with contextlib.suppress(BrokenPipeError):
                    for frame in frames:
                        pipe.write(frame.kind.encode() + len(frame.data).to_bytes(4, "little"))
                        pipe.write(frame.data)
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
                status = process.wait()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            output.seek(0)
            errors.seek(0)
            if status:
                said = errors.read().decode(errors="replace").strip().splitlines()
                raise UndecidedError(f"log reader: {said[-1] if said else f'status {status}'}")
            return decode(LogReading, output.read(), source="log reader")
