"""Files that an arm sees with bytes of its own; runs inside the walls.

Arms may share paths: a configuration beside itself with a change planned. Every such file is laid
over once, by a copy whose bytes are those of the arm whose turn it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nginx_tune.experiment.trial import show_files
from nginx_tune.nginx.lab.enclosure import Enclosure


class ShownFiles:
    """What is laid over, and what each arm sees there."""

    def __init__(self) -> None:
        self._plain: dict[str, bytes] = {}
        self._of_arm: Mapping[str, Mapping[str, bytes]] = {}
        self._copies: dict[str, Path] = {}
        self._seen: dict[str, bytes] = {}

    def lay(
        self,
        of_arm: Mapping[str, Mapping[str, bytes]],
        directory: Path,
        enclosure: Enclosure,
    ) -> None:
        """Lay the files of all arms over; one that is not there is empty where no arm says more.

        ``of_arm``: by the arm's name the bytes of each file, by its path. The copies are kept in
        the directory.
        """
        paths = sorted({path for files in of_arm.values() for path in files})
        self._plain = {path: _bytes_of(Path(path)) for path in paths}
        self._of_arm, self._seen = of_arm, dict(self._plain)
        self._copies = show_files(self._plain, directory, enclosure)

    def turn_to(self, arm: str) -> None:
        """Show what this arm sees."""
        own = self._of_arm.get(arm, {})
        for path, copy in self._copies.items():
            data = own.get(path, self._plain[path])
            if self._seen[path] != data:
                copy.write_bytes(data)
                self._seen[path] = data


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
