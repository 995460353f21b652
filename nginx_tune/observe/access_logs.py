"""Access logs, in whatever they are packed: their format, and the workload learnt from them."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import select
import stat
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, cast

from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.logs import format_of_log, log_formats, only_format
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.workload.log_format import COMBINED, json_format, parse_log_format
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.learning import Escape, LearnPlan, LineFormat, Tally
from nginx_tune.documents.progress import Step
from nginx_tune.documents.workload import LocationShare
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.host.paths import absolute_path
from nginx_tune.host.programs import start_program
from nginx_tune.measure.load.probe import find_probe
from nginx_tune.observe.access_log_repeats import Repeat, refuse_repeats

LONGEST_LINE_BYTES = 1 << 16
"""The most of a line that is read, as the executable has it (``probes/src/learn/mod.rs``)."""
_BLOCK_BYTES = 1 << 20
_GZIP, _ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"
_PEEK_LINES = 200
_COPIES = 4
"""Logs in which what is read now is looked for."""
_TOLD_EVERY_SECONDS = 0.2
_PATIENCE_SECONDS = 0.3
"""The time until a pipe to which nothing was written is told of."""


class LogFiles:
    """Access logs as one stream of bytes, every file ending with a line feed.

    Files are read in the order of their first lines' times, so that a rotated set may be named
    in any order.
    """

    def __init__(
        self, logs: Sequence[str], form: LineFormat, *, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """``tell`` is told of a pipe to which nobody writes yet."""
        self._tell = tell
        for log in logs:
            if log != "-":
                _check_readable(log)
                _check_foreign(log)
            if os.path.isdir(log):  # noqa: PTH112
                raise UsageError(f"{log}: a directory", hint=f"name its files, {log}/*.log*")
        if list(logs).count("-") > 1:
            raise UsageError("standard input can be read once")
        _check_once(logs)
        self.logs = _in_order(logs, form) if len(logs) > 1 and "-" not in logs else list(logs)
        self.broken: list[str] = []
        """Logs that could not be read to their end, and why."""
        plain = [os.stat(log) for log in self.logs if log != "-" and Path(log).is_file()]  # noqa: PTH116
        self.total_bytes = sum(s.st_size for s in plain) if len(plain) == len(self.logs) else None
        """The size of the files as they lie there, packed ones too; None with a pipe among them."""
        self.read_bytes = 0
        """The part of these that was read."""
        self._begun: dict[str, Repeat] = {}

    def blocks(self) -> Iterator[bytes]:
        """The bytes, a block at a time."""
        for index, log in enumerate(self.logs):
            last = b"\n"
            before = self.read_bytes
            repeats = self._repeats(index)
            try:
                with _opened(log, self._tell) as (file, raw):
                    while block := file.read1(_BLOCK_BYTES):  # a packed file may break off
                        last = block[-1:]
                        for one in repeats:
                            one.feed(block)
                        refuse_repeats(repeats, log)
                        if self.total_bytes is not None:
                            self.read_bytes = before + raw.tell()
                        yield block
            except _unpacking_errors() as error:
                reason = error.strerror if isinstance(error, OSError) else None
                self.broken.append(f"{_name(log)}: {reason or error}")
            for one in repeats:
                one.end()
            refuse_repeats(repeats, log)
            if last != b"\n":
                yield b"\n"

    def _repeats(self, index: int) -> list[Repeat]:
        """The next logs: in their order a copy begins soon after what it is a copy of."""
        later = self.logs[index + 1 : index + 1 + _COPIES]
        for log in later:
            if log not in self._begun and log != "-" and Path(log).is_file():
                self._begun[log] = Repeat(log, _opened, _unpacking_errors())
        found = [self._begun[log] for log in later if log in self._begun]
        for one in found:
            one.start()
        return found


def _check_readable(log: str) -> None:
    try:
        os.stat(log)  # noqa: PTH116
    except OSError as error:
        raise UsageError(f"{log}: cannot read: {error.strerror}") from None
    if not os.access(log, os.R_OK, effective_ids=True):
        raise UsageError(f"{log}: cannot read: {os.strerror(errno.EACCES)}")


def _check_foreign(log: str) -> None:
    """No stream that this command itself writes to: nobody else would ever end it.

    Images of nginx have their logs as links to /dev/stdout, which is another for each who opens it.
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
                f"{log}: is the {name} of this command, and no log",
                hint="a container's log: docker logs NAME | nginx-tune learn -",
            )


def _check_once(logs: Sequence[str]) -> None:
    """No file by two names: its requests would count twice, and all rates with them."""
    seen: dict[tuple[int, int], str] = {}
    for log in logs:
        if log == "-" or not Path(log).is_file():
            continue
        one = os.stat(log)  # noqa: PTH116
        first = seen.get((one.st_dev, one.st_ino))
        if first is not None:
            what = "is given twice" if first == log else f"is the file {first} too"
            raise UsageError(f"{log} {what}: its requests count once", hint="name each log once")
        seen[one.st_dev, one.st_ino] = log


def _name(log: str) -> str:
    return "standard input" if log == "-" else log


def _in_order(logs: Sequence[str], form: LineFormat) -> list[str]:
    return sorted(logs, key=lambda log: _first_moment(log, form))


def _first_moment(log: str, form: LineFormat) -> int:
    """The first second that a log tells of; 0 when none of its first lines does."""
    if not Path(log).is_file():  # reading a pipe would take from it
        return 0
    lines: list[bytes] = []
    with (
        contextlib.suppress(*_unpacking_errors()),
        _opened(log) as (file, _),
    ):
        lines = file.read1(_BLOCK_BYTES // 4).split(b"\n")[:_PEEK_LINES]
    blocks = (line + b"\n" for line in lines)
    stretches = tally_by(find_probe(), blocks, LearnPlan(format=form)).timeline.stretches
    return stretches[0][0] if stretches else 0


@contextlib.contextmanager
def _opened(
    log: str, tell: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[BufferedIOBase, BufferedReader]]:
    """A log's plain bytes, whatever packs them (told by its first bytes, not by its name).

    And the file that they come from, whose place tells how much of it was read.
    """
    if log == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed")
        given = cast("BufferedReader", sys.stdin.buffer)
        yield _unpacked(given), given
        return
    with open(log, "rb", opener=partial(_opener, tell=tell)) as file:
        yield _unpacked(file), file


def _opener(log: str, flags: int, *, tell: Callable[[str], None]) -> int:
    """A descriptor of a log; of a named pipe once somebody has written to it, or has gone."""
    if not Path(log).is_fifo():
        return os.open(log, flags)
    descriptor = os.open(log, flags | os.O_NONBLOCK)  # open() would wait without a word
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    try:
        if not waiting.poll(_PATIENCE_SECONDS * 1000):
            tell(f"{log} is a pipe: waiting for a writer")
            waiting.poll()
    except BaseException:  # Ctrl-C too
        os.close(descriptor)
        raise
    os.set_blocking(descriptor, True)  # named so by the system
    return descriptor


def _unpacked(file: BufferedReader) -> BufferedIOBase:
    start = file.peek(len(_XZ))[: len(_XZ)]
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(_ZSTD):
        return cast("BufferedIOBase", _zstd().ZstdFile(file))
    if start.startswith(_BZIP2):
        import bz2  # noqa: PLC0415  # most logs are not packed by it, and some Pythons lack it

        return bz2.BZ2File(file)
    if start.startswith(_XZ):
        import lzma  # noqa: PLC0415

        return lzma.LZMAFile(file)
    return file


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415  # most logs are not packed by it
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd


def _unpacking_errors() -> tuple[type[Exception], ...]:
    """The errors that reading packed bytes may end in, of the modules that were needed."""
    kinds = [("backports.zstd", "ZstdError"), ("compression.zstd", "ZstdError")]
    kinds.append(("lzma", "LZMAError"))
    loaded = (getattr(sys.modules[name], kind) for name, kind in kinds if name in sys.modules)
    return (OSError, EOFError, zlib.error, *loaded)


class Learnt(NamedTuple):
    """The tally of a reader, and what it could not read."""

    tally: Tally
    broken: list[str]


def read_logs(
    files: LogFiles,
    plan: LearnPlan,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Learnt:
    """The tally of the logs.

    Errors: UsageError when no line is in the format: then it is another format, or no log;
    MissingToolError when the executable is not built.
    """
    tally = tally_by(find_probe(), _watched(files, on_progress), plan)
    if not tally.requests:
        _refuse(files, plan, tally)
    return Learnt(tally, files.broken)


def _refuse(files: LogFiles, plan: LearnPlan, tally: Tally) -> None:
    names = ", ".join(map(_name, files.logs))
    if files.broken and not tally.lines:
        raise UsageError(files.broken[0])
    if not tally.lines:
        raise UsageError(f"{names}: empty")
    if tally.lines <= len(files.broken):  # the beginning of a line each
        raise UsageError(f"{'; '.join(files.broken)}, before the end of its first line")
    if set(tally.refused) == {"own"}:
        raise UsageError(f"{names}: all {tally.lines:,} requests are nginx-tune's own")
    reason, refusal = max(tally.refused.items(), key=lambda item: item[1].lines)
    raise UsageError(
        f"{names}: none of {tally.lines:,} lines is in the log format '{plan.format.name}' "
        f"(line {refusal.first_lines[0]}: {REASONS.get(reason, reason)})",
        hint="name the format: --log-format NAME with -c CONF, its string, or json",
    )


REASONS = {
    "empty": "nothing in it",
    "too_long": f"longer than {LONGEST_LINE_BYTES // 1024} KiB",
    "format": "not in the format",
    "time": "its time is none",
    "status": "its status is no number of three digits",
    "bytes": "its size is no number",
    "own": "nginx-tune's own request",
}


def _watched(files: LogFiles, on_progress: Callable[[str], None]) -> Iterator[bytes]:
    done, told = 0, 0.0
    for block in files.blocks():
        yield block
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


def tally_by(probe: Path, blocks: Iterator[bytes], plan: LearnPlan) -> Tally:
    """The executable's tally: it reads a plan from a file and lines from a pipe."""
    with tempfile.NamedTemporaryFile() as plan_file, tempfile.TemporaryFile() as errors:
        plan_file.write(encode(plan))
        plan_file.flush()
        with tempfile.TemporaryFile() as output:
            process = start_program(
                [probe, "learn", plan_file.name],
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
                    for block in blocks:
                        pipe.write(block)
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
            return decode(Tally, output.read(), source="log reader")


def locations_of(tally: Tally, tree: ConfTree) -> tuple[list[LocationShare], list[str]]:
    """The share of each location that answered any of the kept requests; what could not be told."""
    matcher = LocationMatcher(tree)
    requests = tally.places.requests
    if not requests or not matcher.server_count:
        return [], ["no location can be told: the configuration has no server"]
    named = any(request.server for request in requests)
    if not named and matcher.server_count > 1:
        count = matcher.server_count
        return [], [f"locations are not told: log $server_name, for there are {count} servers"]
    counts: dict[Any, int] = defaultdict(int)
    sizes: dict[Any, int] = defaultdict(int)
    for request in requests:
        server = matcher.server_of(request.server)
        assert server is not None  # noqa: S101  # there is one
        key = (server, matcher.location_of(server, request.path))
        counts[key] += 1
        sizes[key] += request.sent_bytes
    total_bytes = sum(sizes.values()) or 1
    shares = []
    for key, count in counts.items():
        server, location = key
        names = server.block.first("server_name")
        place = location or server
        shares.append(
            LocationShare(
                server=names.value if names is not None else "",
                location=" ".join(location.args) if location is not None else "",
                file=place.file,
                line=place.line,
                requests_ratio=float(f"{count / len(requests):.6g}"),
                bytes_ratio=float(f"{sizes[key] / total_bytes:.6g}"),
            )
        )
    notes = [
        f"{place.file}:{place.line}: only nginx can read this location's pattern; "
        "it is taken not to match"
        for place in matcher.unreadable
    ]
    return sorted(shares, key=lambda s: (-s.requests_ratio, s.file, s.line)), notes


_ESCAPES = ("default", "json", "none")


def choose_format(wanted: str | None, tree: ConfTree | None, logs: Sequence[str]) -> LineFormat:
    """The format of the logs: as wanted (a name, a string), else as the configuration says.

    Errors: UsageError for a name that neither nginx nor the configuration knows, and for logs that
    the configuration has in several formats: what is read as another would count as broken lines.
    """
    defined = {} if tree is None else log_formats(tree)
    name = wanted
    if name is None and tree is not None:
        name = _told_format(tree, logs) or only_format(tree)
    if name is None:
        name = "combined"
    if name in defined:
        form = defined[name]
        if form.escape not in _ESCAPES:
            raise UsageError(f"log format '{name}': escape={form.escape} is unknown")
        return parse_log_format(form.text, name=name, escape=cast("Escape", form.escape))
    if name == "combined":
        return parse_log_format(COMBINED, name="combined")
    if name == "json":
        return json_format()
    if "$" in name:
        return _given_format(name)
    known = ", ".join(sorted({*defined, "combined", "json"}))
    raise UsageError(
        f"no log format '{name}'" + ("" if tree is not None else " without a configuration"),
        hint=f"known are {known}; -c CONF reads those of a configuration",
    )


def _told_format(tree: ConfTree, logs: Sequence[str]) -> str | None:
    """The one format that the configuration has the logs in; null where it names none of them."""
    told = {format_of_log(tree, absolute_path(log)): log for log in logs if log != "-"}
    told.pop(None, None)
    if len(told) > 1:
        (one, log), (other, another) = list(told.items())[:2]
        raise UsageError(
            f"{log} is written in the format '{one}', {another} in '{other}'",
            hint="learn from the logs of one format at a time, or name one with --log-format",
        )
    return next(iter(told), None)


def _given_format(text: str) -> LineFormat:
    first, _, rest = text.partition(" ")
    if first.startswith("escape=") and first[7:] in _ESCAPES:
        return parse_log_format(rest.strip(), escape=cast("Escape", first[7:]))
    form = parse_log_format(text)
    if text.lstrip().startswith("{"):
        return parse_log_format(text, escape="json")
    return form


def requests_by_root(tree: ConfTree, shares: Sequence[LocationShare]) -> dict[str, float]:
    """Share of the requests by root or alias; empty where fewer than two can be told apart.

    A location whose root depends on the request, or is a cache's directory, belongs to none.
    """
    roots: dict[tuple[str, int], set[str]] = defaultdict(set)
    for served in served_paths(tree):
        if served.via != "cache":
            roots[served.scope.own.file, served.scope.own.line].add(served.root)
    found: dict[str, float] = defaultdict(float)
    for share in shares:
        own = roots.get((share.file, share.line), set())
        if len(own) == 1:
            found[next(iter(own))] += share.requests_ratio
    if len(found) < 2:  # noqa: PLR2004  # one against another
        return {}
    return {root: float(f"{ratio:.6g}") for root, ratio in sorted(found.items())}
