"""The page cache that a block starts with, and nginx's own caches."""

import os
from pathlib import Path

import msgspec
import pytest
from needs import lacks
from tiers import dice

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.scenario import Scenario
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.experiment.one_run import (
    make_cold,
    make_full,
    make_warm,
    resident_bytes,
    wait_for_cached,
)
from nginx_tune.experiment.scenario.files import check_scenario, list_scenarios

FILE_BYTES = 64 << 10
FILES = 64


@pytest.fixture
def data(tmp_path: Path) -> str:
    for number in range(FILES):
        (tmp_path / f"f{number}").write_bytes(dice(number).randbytes(FILE_BYTES))
    if make_cold([str(tmp_path)]) != 0:
        lacks("cold-files", "this file system keeps what it is told to drop")
    return str(tmp_path)


def test_warm_is_all_of_the_data(data: str) -> None:
    assert make_warm([data]) == FILES * FILE_BYTES


@pytest.mark.parametrize("share", [0.25, 2.0])
def test_full_is_what_the_limit_holds_and_a_quarter_more(data: str, share: float) -> None:
    """Without a group nothing is pushed out again, so all that was read is there to be counted."""
    limit = int(share * FILES * FILE_BYTES)
    make_full([data], limit_bytes=limit, join_files=[], seed=3)
    resident = {path.name for path in Path(data).iterdir() if resident_of(path) > 0}
    assert len(resident) == min(FILES, round(1.25 * share * FILES))


@pytest.mark.long
def test_full_takes_other_files_with_another_seed(data: str) -> None:
    taken = []
    for seed in (1, 2, 1):
        make_cold([data])
        make_full([data], limit_bytes=FILE_BYTES * FILES // 4, join_files=[], seed=seed)
        taken.append({path.name for path in Path(data).iterdir() if resident_of(path) > 0})
    assert taken[0] != taken[1]
    assert taken[0] == taken[2]


def test_full_enters_the_group_first(data: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    group = tmp_path_factory.mktemp("group") / "cgroup.procs"
    make_full([data], limit_bytes=FILE_BYTES, join_files=[str(group)], seed=1)
    assert group.read_text() == "0"


def test_a_start_that_cannot_be_had_is_refused_before_anything_runs() -> None:
    tables = msgspec.to_builtins(next(s for s in list_scenarios() if s.name == "thread-pools"))
    for starts, changes, field in (
        ("full", {"memory_bytes": None}, "memory_bytes"),
        ("full", {"cold_names": True}, "starts"),
        ("warm", {"cold_names": True}, "starts"),
    ):
        lab = {**tables["lab"], **changes}
        scenario = msgspec.convert({**tables, "starts": starts, "lab": lab}, Scenario)
        assert decode(Scenario, encode(scenario), source="x") == scenario
        with pytest.raises(UsageError, match=field):
            check_scenario(scenario)


def resident_of(path: Path) -> int:
    """Bytes of one file that are in the page cache: of a directory with a link to it alone."""
    apart = path.parent.parent / f"{path.parent.name}-{path.name}"
    apart.mkdir(exist_ok=True)
    link = apart / "f"
    if not link.exists():
        os.link(path, link)
    try:
        return resident_bytes([str(apart)]) or 0
    finally:
        link.unlink()
        apart.rmdir()


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
