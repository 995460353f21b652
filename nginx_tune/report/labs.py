"""Labs on this machine, for people."""

from __future__ import annotations

from nginx_tune.documents.labs import KeptImage, LabRun, Labs
from nginx_tune.documents.units import bytes_text, plural
from nginx_tune.report.text import plain

_HOUR_SECONDS = 3600


def render_list(labs: Labs) -> str:
    """Each lab and each kept image on a line of its own."""
    lines = [_run_line(run) for run in labs.runs] or ["no lab runs and none is left"]
    lines += [_image_line(image) for image in labs.images]
    total = sum(image.bytes for image in labs.images)
    lines.append(
        f"{plural(len(labs.images), 'image')} kept, {bytes_text(total)} of at most "
        f"{bytes_text(labs.image_bytes_most)}"
    )
    if any(run.state == "dead" for run in labs.runs):
        lines.append("'nginx-tune lab clean' removes what dead labs left")
    return "\n".join(lines) + "\n"


def render_cleaned(labs: Labs) -> str:
    """What was removed, and what would not go."""
    lines = [f"removed {_run_line(run)}" for run in labs.runs]
    lines += [f"removed {_image_line(image)}" for image in labs.images]
    lines += [f"removed tracing instance {plain(name)}" for name in labs.tracing]
    lines += [f"kept {plain(failure)}" for failure in labs.failures]
    return "\n".join(lines or ["nothing to clean"]) + "\n"


def _run_line(run: LabRun) -> str:
    groups = f", {len(run.cgroups)} cgroups" if run.cgroups else ""
    size = bytes_text(run.bytes)
    return f"lab {plain(run.directory)}: {run.state}, pid {run.pid}, {size}{groups}"


def _image_line(image: KeptImage) -> str:
    hours = image.unused_seconds / _HOUR_SECONDS
    since = "in use" if image.in_use else f"unused for {hours:.1f} h"
    return f"image {plain(image.path)}: {bytes_text(image.bytes)}, {since}"
