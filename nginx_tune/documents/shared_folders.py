"""File systems of virtual machines whose host changes files under the guest's page cache."""

from __future__ import annotations

from typing import Final

SHARED_FOLDERS: Final = frozenset(
    {
        "vboxsf", "vmhgfs", "hgfs", "vmhgfs-fuse", "prl_fs", "9p", "virtiofs", "osxfs", "grpcfuse",
    }
)  # fmt: skip
"""There sendfile serves stale or short files."""


def is_shared_folder(filesystem: str | None) -> bool:
    """Whether a file system is one of them, by its own name or as one of FUSE."""
    return filesystem is not None and filesystem.removeprefix("fuse.") in SHARED_FOLDERS
