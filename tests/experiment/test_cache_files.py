"""Waiting for what nginx takes into its caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.one_run import wait_for_cached


def test_only_whole_responses_count(tmp_path: Path) -> None:
    for number, name in enumerate(("0" * 31 + "a", "0" * 31 + "b")):
        directory = tmp_path / f"c{number}" / "a"
        directory.mkdir(parents=True)
        (directory / name).touch()
        (directory / f"{name}.0000000001").touch()  # still being written
    places = [str(tmp_path / "c0"), str(tmp_path / "c1")]
    wait_for_cached(places, 2, patience_seconds=0)
    with pytest.raises(UndecidedError, match="the caches hold 2 of the 3 responses"):
        wait_for_cached(places, 3, patience_seconds=0)
