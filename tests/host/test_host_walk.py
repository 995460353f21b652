"""Walking real trees: bounded memory, sampling, hard links, mounts, what is not a file."""

import os
import random
import socket
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from rows import each_row

from nginx_tune.host import dataset as walks
from nginx_tune.host.dataset import scan_dataset
from nginx_tune.host.residency import weighted_share


def fill(directory: Path, count: int, *, seed: int = 1) -> int:
    """Small files of many sizes; their bytes."""
    rng = random.Random(seed)
    total = 0
    for number in range(count):
        place = directory / str(number % 16)
        place.mkdir(exist_ok=True)
        size = int(rng.paretovariate(1.5) * 100) % 20_000
        with (place / str(number)).open("wb") as file:
            file.truncate(size)
        total += size
    return total


def test_what_is_no_file_is_counted_by_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "hard").hardlink_to(tmp_path / "file")
    (tmp_path / "soft").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "below").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        listener.bind("socket")
    dataset = scan_dataset(str(tmp_path), budget_seconds=10)
    assert (dataset.files, dataset.hard_links, dataset.directories) == (1, 1, 2)
    assert (dataset.symlinks, dataset.special_files, dataset.other_filesystems) == (2, 2, 0)
    assert dataset.sample_ratio == 1
    assert dataset.bytes_error_ratio == 0
    assert dataset.residency.error_ratio == 0


def test_memory_does_not_grow_with_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the files past the size of the sample, next to no memory more."""
    monkeypatch.setattr(walks, "SAMPLE_FILES", 400)
    peaks = []
    for count in (1_000, 4_000):
        tree = tmp_path / str(count)
        tree.mkdir()
        fill(tree, count)
        walk = walks.Walk(str(tree), deadline=float("inf"))
        tracemalloc.start()
        walk.run()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert walk.estimate().files == count
    assert peaks[1] < 1.3 * peaks[0]


def test_linked_files_are_forgotten_once_all_their_names_were_met(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}").write_bytes(b"xy")
        (tmp_path / f"{number}.again").hardlink_to(tmp_path / f"{number}")
    walk = walks.Walk(str(tmp_path), deadline=float("inf"))
    walk.run()
    assert walk.estimate().files == 200
    assert walk.estimate().bytes == 400
    assert not walk._linked


def test_more_linked_files_than_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "MOST_LINKED", 3)
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    for number in range(10):
        (outside / str(number)).write_bytes(b"x")
        (inside / str(number)).hardlink_to(outside / str(number))
    dataset = scan_dataset(str(inside), budget_seconds=10)
    assert dataset.files == 10
    assert "may be counted twice" in dataset.reason


@pytest.mark.long
@each_row("ratio", [0.05, 0.3])
def test_a_sample_counts_all_and_asks_some(tmp_path: Path, ratio: float) -> None:
    total = fill(tmp_path, 8_000)
    dataset = scan_dataset(str(tmp_path), budget_seconds=30, sample_ratio=ratio)
    assert dataset.files == 8_000
    assert dataset.sample_ratio == ratio
    assert dataset.bytes is not None
    assert dataset.bytes_error_ratio is not None
    assert 0 < dataset.bytes_error_ratio < 0.5
    # Three times the half width of the 95 % interval: once in many thousand runs by chance.
    assert abs(dataset.bytes / total - 1) < 3 * dataset.bytes_error_ratio
    assert dataset.sizes is not None
    assert abs(sum(bucket.files for bucket in dataset.sizes.buckets) - 8_000) < 40
    assert dataset.residency.error_ratio != 0


def test_a_sample_of_linked_files(tmp_path: Path) -> None:
    """All names of a file are in the sample or none is."""
    for number in range(2_000):
        (tmp_path / f"{number}").write_bytes(b"x" * 100)
        (tmp_path / f"{number}.again").hardlink_to(tmp_path / f"{number}")
    dataset = scan_dataset(str(tmp_path), budget_seconds=30, sample_ratio=0.25)
    assert dataset.files == 2_000
    assert dataset.hard_links == 2_000
    assert dataset.bytes == 200_000
    assert dataset.bytes_error_ratio == 0


def test_how_far_a_scan_has_come_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "_REPORTED_EVERY", 128)
    monkeypatch.setattr(walks, "_CHECKED_EVERY", 64)
    fill(tmp_path, 600)
    told: list[str] = []
    scan_dataset(str(tmp_path), budget_seconds=10, progress=told.append)
    assert len(told) > 2
    assert all(str(tmp_path) in text for text in told)


def test_a_tree_deeper_than_descriptors_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "DEEPEST", 3)
    deep = tmp_path / "a/b/c/d"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    (tmp_path / "a/file").touch()
    dataset = scan_dataset(str(tmp_path), budget_seconds=10)
    assert dataset.files == 1
    assert not dataset.complete
    assert "deeper than 3 levels" in dataset.reason


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    before = len(list(Path("/proc/self/fd").iterdir()))
    scan_dataset(str(tmp_path), budget_seconds=0)
    scan_dataset(str(tmp_path), budget_seconds=10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.needs("root")
def test_bind_mounts_count_once(tmp_path: Path) -> None:
    """A part of the tree a second time is left out; another directory of the disk is not."""
    script = (
        f"set -e; cd {tmp_path}; mkdir -p tree/a tree/again tree/more tree/twice other; "
        "echo x > tree/a/f; echo y > other/g; mount --bind tree/a tree/again; "
        "mount --bind other tree/more; mount --bind other tree/twice; "
        'exec "$@"'
    )
    code = (
        "import sys; from nginx_tune.host.dataset import scan_dataset; "
        "print(scan_dataset(sys.argv[1], budget_seconds=10).files)"
    )
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh",
         sys.executable, "-c", code, f"{tmp_path}/tree"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == "2"


@each_row("share", [0.02, 0.3, 0.9])
def test_error_bounds_hold_19_times_in_20(share: float) -> None:
    """Samples of a population whose share is known; weights as of files of very different size."""
    rng = random.Random(7)
    held = 0
    rounds = 400
    for _ in range(rounds):
        pairs = [(float(rng.random() < share), rng.choice((1.0, 1.0, 4.0))) for _ in range(300)]
        mean, error = weighted_share(pairs)
        held += abs(mean - share) <= error
    assert held / rounds > 0.92
