"""Measures the disks of a host: the right files of each, the probe, and its curve."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nginx_tune.documents.curve import DiskProbe
from nginx_tune.documents.diskplan import DiskPlan, DiskRun
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.progress import Step
from nginx_tune.documents.units import bytes_text, number_text, plural
from nginx_tune.errors import MissingToolError, UndecidedError
from nginx_tune.measure.load.process import Progress, RunInterrupted, run_plan
from nginx_tune.observe.inspect.disk_curve import curve_of
from nginx_tune.observe.inspect.disk_files import LEAST_FILE_BYTES, choose_files
from nginx_tune.observe.inspect.disk_run import ReadSize, plan_disk
from nginx_tune.observe.inspect.disk_targets import DiskTarget, disk_targets, refusals

DISK_SECONDS = 10.0
_FINDING_SECONDS = 2.0
"""Time for finding files."""
_LEAST_BYTES = 64 << 20
"""Of fewer bytes the disk's own cache would answer: the whole device is read instead."""


class ProbedDisks(NamedTuple):
    """What probing the disks of a host gave."""

    probes: list[DiskProbe]
    interrupted: bool = False
    """Ctrl-C ended it; ``probes`` is what was measured by then."""

    @property
    def reasons_for_none(self) -> list[str]:
        """Why there is no curve at all; empty when there is one."""
        if any(probe.curve is not None for probe in self.probes):
            return []
        return [probe.reason for probe in self.probes] or ["no path has a disk that is known"]


def run_disk_probe(plan: DiskPlan, *, on_progress: Progress | None = None) -> DiskRun:
    """What one run of a disk plan saw.

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
    """The curves of the leaf disks under the paths asked for (all recorded ones for none).

    ``facts`` must say how busy the disks are. Each target takes about so many seconds.
    Errors: UndecidedError for disks that should not be loaded now, unless forced;
            MissingToolError without a probe.
    """
    targets, probes = disk_targets(facts, asked, read_size=read_size)
    reasons = refusals(targets, facts.storage)
    if reasons and not force:
        raise UndecidedError(
            f"disks are not measured: {'; '.join(reasons)}", hint="--force measures all the same"
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
    """What is read for a target."""

    paths: list[str]
    text: str
    """What it is, or why there is nothing."""


def _source(target: DiskTarget) -> _Source:
    """The target's files; the whole device when there are too few, and may be read."""
    through = f", through {target.through}" if target.through else ""
    sample = choose_files(target.directories, budget_seconds=_FINDING_SECONDS)
    device = target.device
    if sample.bytes < _LEAST_BYTES and device is not None and _may_read(device):
        return _Source([os.path.realpath(device)], f"the whole device {device}")
    if sample.paths:
        size = f"{plural(len(sample.paths), 'file')} of {bytes_text(sample.bytes)}"
        where = " and ".join(target.directories)
        # Names of directories are bytes; what is no UTF-8 in them is shown escaped.
        where = where.encode(errors="surrogateescape").decode(errors="backslashreplace")
        return _Source(sample.paths, f"{size} under {where}{through}")
    if device is not None:
        return _Source([], f"no files were given and {device} may not be read: run it as root")
    return _Source([], f"no files of {LEAST_FILE_BYTES} bytes or more")


def _may_read(device: str) -> bool:
    """Whether a device opens; its mode does not tell (a container's rules, say)."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


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
