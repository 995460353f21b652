"""The output of ``learn``, and of ``merge`` for partial results of ``learn``."""

from __future__ import annotations

import gzip
from pathlib import Path

from nginx_tune.decide.workload.learnt import learnt_workload, manifest_of
from nginx_tune.documents.learning import LearnPlan, encode_manifest
from nginx_tune.errors import ExitStatus
from nginx_tune.observe.access_logs import Learnt
from nginx_tune.report.terminal.output import tell_written, write_file
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.terminal.writer import write_screen
from nginx_tune.report.workload import workload_blocks

PRIVATE = 0o600


def write_learnt(
    learnt: Learnt,
    plan: LearnPlan,
    manifest_path: str | None,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitStatus:
    """Write the workload, and the manifest if one is requested; returns the exit status."""
    workload = learnt_workload(
        learnt.tally, learnt.timeline, learnt.popularity, plan, learnt.places
    )
    if manifest_path is not None:
        data = encode_manifest(*manifest_of(learnt.tally, learnt.timeline, plan))
        if manifest_path.endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        write_file(Path(manifest_path), data, mode=PRIVATE)
    write_screen(lambda: workload_blocks(workload), workload, formats, output)
    tell_written("the workload", formats, output)
    for reason in learnt.broken:
        say(f"{reason}: only the part before that was read")
    return ExitStatus.USAGE if learnt.broken else ExitStatus.OK
