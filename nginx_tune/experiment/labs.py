"""What labs keep and have left on this machine, and its removal."""

from __future__ import annotations

import time
from pathlib import Path

from nginx_tune.documents.labs import KeptImage, LabRun, Labs
from nginx_tune.nginx.lab import images
from nginx_tune.nginx.lab.leftovers import Leftover, clean_dead, find_labs
from nginx_tune.observe.tracefs import sweep_tracing


def list_labs() -> Labs:
    """The labs of this user, running or dead, and the disk images that are kept."""
    return Labs(
        runs=[_run(left) for left in find_labs()],
        images=[_image(cached) for cached in images.list_images()],
        image_bytes_most=images.CACHE_BYTES,
    )


def clean_labs(*, with_images: bool) -> Labs:
    """Remove what dead labs left, and the kept images that nobody uses; what went.

    Only what carries the mark of a command that is no more is touched.
    """
    dead = [left for left in find_labs() if not left.running]
    described = [_run(left) for left in dead]
    gone = {str(directory) for directory in clean_dead(dead)}
    failures = [f"{run.directory}: not removed" for run in described if run.directory not in gone]
    removed: list[KeptImage] = []
    for cached in images.list_images() if with_images else []:
        described_image = _image(cached)
        if images.remove_image(cached.path):
            removed.append(described_image)
    return Labs(
        runs=[run for run in described if run.directory in gone],
        images=removed,
        image_bytes_most=images.CACHE_BYTES,
        tracing=sweep_tracing(),
        failures=failures,
    )


def _run(left: Leftover) -> LabRun:
    return LabRun(
        directory=str(left.directory),
        mark=left.mark,
        pid=left.pid,
        state="running" if left.running else "dead",
        bytes=sum(_bytes(path) for path in left.directory.rglob("*")),
        cgroups=[group for group in left.cgroups if Path(group).is_dir()],
    )


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


def _image(cached: images.Cached) -> KeptImage:
    return KeptImage(
        path=str(cached.path),
        bytes=cached.bytes,
        in_use=cached.in_use,
        unused_seconds=max(0.0, time.time() - cached.used_at),
    )
