"""The measurement of a host's disks: the choice of files, the probe, the curve.

The files are a sample in which each byte of a tree is equally likely.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from nginx_tune.documents.facts import Facts
from nginx_tune.documents.facts_storage import DiskProbe
from nginx_tune.documents.inspection import DiskPlan, DiskRun
from nginx_tune.documents.progress import Step
from nginx_tune.documents.units import bytes_text, number_text, plural
from nginx_tune.errors import MissingToolError, UndecidedError
from nginx_tune.measure.load.probe import ProbeProgress, RunInterrupted, run_plan
from nginx_tune.observe.inspect.disk_plan import (
    DiskTarget,
    ReadSize,
    curve_of,
    disk_targets,
    plan_disk,
    refusals,
)

DISK_SECONDS = 10.0
_FINDING_SECONDS = 2.0
"""Time to find files."""
_LEAST_BYTES = 64 << 20
"""Minimum size of all files, in bytes. Less data would fit into the disk's own cache, so the device
is read instead."""


class ProbedDisks(NamedTuple):
    """The probed disks of a host."""

    probes: list[DiskProbe]
    interrupted: bool = False
    """True after Ctrl-C, with the results so far in ``probes``."""

    @property
    def reasons_for_none(self) -> list[str]:
        """The reasons why there is no curve; empty when there is one."""
        if any(probe.curve is not None for probe in self.probes):
            return []
        return [probe.reason for probe in self.probes] or ["no path has a known disk"]


def run_disk_probe(plan: DiskPlan, *, on_progress: ProbeProgress | None = None) -> DiskRun:
    """Run a disk plan once.

    Errors: UsageError when the probe refuses the plan, UndecidedError when no file can be read
            past the page cache, MissingToolError without a probe, RunInterrupted on Ctrl-C.
    """
    return run_plan(
        plan,
        DiskRun,
        name="disk probe",
        seconds=plan.caps.seconds + plan.open_seconds,
        arguments=["disk"],
        on_progress=on_progress,
    )


def measure_disks(
    facts: Facts,
    asked: Sequence[str] = (),
    *,
    seconds: float = DISK_SECONDS,
    read_size: ReadSize | int = "readahead",
    force: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ProbedDisks:
    """The curves of the leaf disks under ``asked``, or under all recorded paths.

    ``facts`` must have the disks' utilisation. Each target takes about ``seconds``.
    Errors: UndecidedError for disks that must not be loaded now, without ``force``;
            MissingToolError without a probe.
    """
    targets, probes = disk_targets(facts, asked, read_size=read_size)
    reasons = refusals(targets, facts.storage)
    if reasons and not force:
        raise UndecidedError(
            f"disks are not measured: {'; '.join(reasons)}", hint="--force measures anyway"
        )
    for target in targets:
        source = _source(target)
        try:
            run = _run(target, source, seconds, on_progress)
        except RunInterrupted as interrupted:
            if isinstance(interrupted.result, DiskRun):
                probes.append(_probe_of(interrupted.result, target, source.text))
            return ProbedDisks(probes, interrupted=True)
        except MissingToolError:
            raise
        except UndecidedError as error:
            probes.append(DiskProbe(disks=list(target.disks), reason=error.message))
        else:
            probes.append(_probe_of(run, target, source.text))
    return ProbedDisks(probes)


def _run(
    target: DiskTarget, source: _Source, seconds: float, on_progress: Callable[[str], None]
) -> DiskRun:
    name = "+".join(target.disks)
    if not source.paths:
        raise UndecidedError(f"{name}: {source.text}")
    plan = plan_disk(
        source.paths, read_bytes=target.read_bytes, depth=target.depth, seconds=seconds
    )
    return run_disk_probe(plan, on_progress=lambda line: on_progress(_progress(name, line)))


class _Source(NamedTuple):
    """The files or the device that are read for a target."""

    paths: list[str]
    text: str
    """A description of the source, or the reason why there is none."""


def _source(target: DiskTarget) -> _Source:
    """The target's files, or the whole device if they are too few and the device may be read."""
    through = f", through {target.through}" if target.through else ""
    where = " and ".join(target.directories)
    # Names of directories are bytes; those that are not UTF-8 are escaped.
    where = where.encode(errors="surrogateescape").decode(errors="backslashreplace")
    sample = choose_files(target.directories, budget_seconds=_FINDING_SECONDS)
    device = target.device
    refusal = "" if device is None else _why_closed(device)
    if sample.bytes < _LEAST_BYTES and device is not None and not refusal:
        return _Source([os.path.realpath(device)], f"the whole device {device}")
    if sample.paths:
        size = f"{plural(len(sample.paths), 'file')} of {bytes_text(sample.bytes)}"
        return _Source(sample.paths, f"{size} under {where}{through}")
    none = f"no files of {LEAST_FILE_BYTES} bytes or more"
    none = f"{none} under {where}" if where else "no files were given"
    return _Source([], f"{none}, and {refusal}" if refusal else none)


def _why_closed(device: str) -> str:
    """The reason why a device cannot be opened, otherwise empty.

    A container may forbid what its mode permits.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        is_other_user = isinstance(error, PermissionError) and os.geteuid() != 0
        step = ": run it as root" if is_other_user else ""
        return f"{device} cannot be opened: {error.strerror}{step}"
    return ""


def _probe_of(run: DiskRun, target: DiskTarget, text: str) -> DiskProbe:
    curve = curve_of(run, read_bytes=target.read_bytes, filesystem=target.filesystem, target=text)
    if isinstance(curve, str):
        return DiskProbe(disks=list(target.disks), reason=f"{text}: {curve}")
    return DiskProbe(disks=list(target.disks), curve=curve)


def _progress(name: str, line: dict[str, Any]) -> Step:
    text = (
        f"{name}: {line['step']}/{line['steps']} {line['kind']} reads of "
        f"{line['read_bytes'] >> 10} KiB at depth {line['depth']}: "
        f"{number_text(line['reads_per_second'])}/s"
    )
    return Step(text, done=line["step"], total=line["steps"], unit="depth")


LEAST_FILE_BYTES = 4096
"""Minimum size of a file, in bytes: direct reads need whole blocks."""
MOST_FILES = 512
_MOST_SEEN = 200_000


class FileSample(NamedTuple):
    """Files to read."""

    paths: list[str]
    bytes: int
    """Total size."""


def choose_files(directories: Sequence[str], *, budget_seconds: float) -> FileSample:
    """Up to 512 regular files below some directories, or these files themselves.

    Symbolic links and other file systems are skipped. When the time is up the sample is from the
    files found so far.
    """
    deadline = time.monotonic() + budget_seconds
    seen: list[tuple[int, str]] = []
    for directory in directories:
        for found in _walk(os.path.realpath(directory), deadline):
            seen.append(found)
            if len(seen) >= _MOST_SEEN:
                break
    chosen = _spread(seen) if len(seen) > MOST_FILES else seen
    return FileSample([path for _, path in chosen], sum(size for size, _ in chosen))


def _spread(files: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The files at evenly spaced bytes, with all files laid end to end."""
    stride = sum(size for size, _ in files) / MOST_FILES
    chosen = []
    end = 0
    mark = stride / 2
    for size, path in files:
        end += size
        if end > mark:
            chosen.append((size, path))
            mark += stride * ((end - mark) // stride + 1)
    return chosen


def _walk(root: str, deadline: float) -> Iterator[tuple[int, str]]:
    try:
        status = os.lstat(root)
    except OSError:
        return
    if os.path.isfile(root):  # noqa: PTH113
        yield status.st_size, root
        return
    waiting = [root]
    while waiting and time.monotonic() < deadline:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.stat(follow_symlinks=False).st_dev == status.st_dev:
                            waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False) and _is_text(entry.path):
                        size = entry.stat(follow_symlinks=False).st_size
                        if size >= LEAST_FILE_BYTES:
                            yield size, entry.path
        except OSError:
            continue


def _is_text(path: str) -> bool:
    """True if a name is valid text, so that a JSON plan can contain it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
