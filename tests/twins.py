"""A configuration against itself: what is compared must be two files."""

import shutil
from pathlib import Path


def twin(conf: Path | str) -> Path:
    """A copy beside it, so that it includes the same files."""
    path = Path(conf)
    return Path(shutil.copyfile(path, path.with_name(f"twin-of-{path.name}")))
