"""Other series of nginx that ``tools/nginx-matrix`` has unpacked on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def find_series(series: str) -> Path | None:
    """The program of a series such as ``1.18``; None when it has not been unpacked."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    program = Path(base) / "nginx-tune" / "matrix" / series / "nginx"
    return program if os.access(program, os.X_OK) else None
