"""What a cache of small objects holds: whole blocks of the file system."""

import pytest
from msgspec.structs import replace
from rows import each_row
from situations import MEBIBYTE, host, load, site
from situations import decide_without_break_evens as decide

from nginx_tune.decide.cache_growth import block_bytes, file_bytes
from nginx_tune.decide.engine import situation_of
from nginx_tune.documents.facts import Dataset, PathStorage
from nginx_tune.documents.site import CacheBounds
from nginx_tune.documents.workload import ObjectSizes


def planned(mean_bytes: float, filesystem: str = "ext4", **sizes: int) -> list[str]:
    """The line of a cache of that many free bytes."""
    place = PathStorage(path="/c", filesystem=filesystem, leaf_disks=["vda"], **sizes)
    facts = host(disks=1, storage=replace(host(disks=1).storage, paths=[place]))
    learnt = replace(
        load("cache", data_bytes=None),
        sizes=ObjectSizes(mean_bytes=mean_bytes, provenance="learnt"),
    )
    made = decide(facts, learnt, site=site(cache_dirs=["/c"])).decisions
    [line] = [s for d in made for s in d.settings if s.directive == "proxy_cache_path"]
    return line.args


@each_row(
    ("mean_bytes", "filesystem", "each"),
    [
        (300, "ext4", 4096),
        (3456, "ext4", 4096),
        (3457, "xfs", 8192),
        (300, "zfs", 1024),
        (1 << 20, "ext4", (1 << 20) + 4096),
        (300, "", 4096),
    ],
)
def test_a_file_counts_its_blocks_with_its_head(
    mean_bytes: int, filesystem: str, each: int
) -> None:
    assert file_bytes(mean_bytes, block_bytes(filesystem)) == each


def test_a_cache_of_small_objects_has_keys_for_its_blocks_and_no_more() -> None:
    room = {"size_bytes": 400 * MEBIBYTE, "available_bytes": 400 * MEBIBYTE}
    small = planned(300.0, **room)
    assert "max_size=320m" in small
    assert "keys_zone=cache_1:12m" in small  # 81,920 files of a block; by their bytes 1.1 millions
    large = planned(3.0 * MEBIBYTE, **room)
    assert {"max_size=320m", "keys_zone=cache_1:10m"} <= set(large)


@each_row(("mean_bytes", "share"), [(300.0, 300 / 4096), (409_600.0, 100 / 101)])
def test_the_data_of_a_full_cache_is_its_objects_without_the_rest_of_their_blocks(
    mean_bytes: float, share: float
) -> None:
    workload = replace(
        load("cache", data_bytes=None),
        sizes=ObjectSizes(mean_bytes=mean_bytes, provenance="learnt"),
    )
    own = site(cache_dirs=["/c"], cache_bounds={"/c": CacheBounds(max_bytes=1 << 30)})
    found = situation_of(host(), workload, site=own).dataset_bytes
    assert found.value == pytest.approx(share * (1 << 30))


def test_a_scan_of_the_cache_tells_its_blocks() -> None:
    workload = replace(
        load("cache", data_bytes=None), sizes=ObjectSizes(mean_bytes=900.0, provenance="measured")
    )
    scan = Dataset(path="/c", files=1000, bytes=900_000, allocated_bytes=8_192_000)
    own = site(cache_dirs=["/c"], cache_bounds={"/c": CacheBounds(max_bytes=1 << 30)})
    found = situation_of(host(datasets=[scan]), workload, site=own)
    assert found.cache_size(found.data_paths[0]).file_bytes == 8192
