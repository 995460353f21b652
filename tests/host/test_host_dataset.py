"""Scanning real trees: counts, sizes, residency, and how honest it is about them."""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace
from needs import lacks
from rows import each_row
from tiers import dice

from nginx_tune.documents.facts import Facts
from nginx_tune.host.dataset import scan_dataset
from nginx_tune.host.parse_storage import ByteSample, SizeCounter
from nginx_tune.host.residency import PAGE_BYTES, cachestat_pages, mincore_pages, read_residency
from nginx_tune.report.facts import facts_blocks
from nginx_tune.report.screen import plain_text

MIB = 1 << 20
DICE = dice("files of a dataset")


def evict(path: Path) -> None:
    """Our own file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def test_files_are_counted_once_and_links_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/one").write_bytes(b"x" * 1000)
    (tmp_path / "a/hard").hardlink_to(tmp_path / "a/b/one")
    (tmp_path / "a/soft").symlink_to("b/one")
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    dataset = scan_dataset(str(tmp_path), budget_seconds=10)
    assert (dataset.files, dataset.bytes) == (2, 1000)
    assert dataset.complete
    assert dataset.sizes is not None
    assert [(b.le_bytes, b.files) for b in dataset.sizes.buckets] == [(0, 1), (1024, 1)]


@pytest.mark.needs("disk")
def test_a_sparse_file_says_both_its_sizes() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        with (Path(place) / "sparse").open("wb") as file:
            file.write(b"x" * MIB)
            file.truncate(64 * MIB)
            os.fsync(file.fileno())
        (Path(place) / "full").write_bytes(b"x" * MIB)
        os.sync()
        dataset = scan_dataset(place, budget_seconds=10)
    assert dataset.bytes == 65 * MIB
    assert dataset.allocated_bytes is not None
    assert 2 * MIB <= dataset.allocated_bytes < 4 * MIB
    screen = plain_text(facts_blocks(Facts(datasets=[dataset])))
    assert "65.0 MiB, 2." in screen
    full = replace(dataset, allocated_bytes=65 * MIB)
    assert "on the disk" not in plain_text(facts_blocks(Facts(datasets=[full])))


def test_a_linked_root_is_followed(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("tree")
    assert scan_dataset(f"{tmp_path}/link", budget_seconds=10).files == 1


def test_an_empty_tree(tmp_path: Path) -> None:
    dataset = scan_dataset(str(tmp_path), budget_seconds=10)
    assert (dataset.files, dataset.bytes, dataset.sizes) == (0, 0, None)
    assert dataset.residency.method == "none"
    assert dataset.residency.reason


def test_a_tree_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        scan_dataset(f"{tmp_path}/missing", budget_seconds=10)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        scan_dataset(f"{tmp_path}/file", budget_seconds=10)


def test_a_budget_that_runs_out_gives_lower_bounds(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).write_bytes(b"x")
    dataset = scan_dataset(str(tmp_path), budget_seconds=0)
    assert not dataset.complete
    assert dataset.files is not None
    assert dataset.files < 50
    assert "budget" in dataset.reason


@pytest.mark.needs("disk")
def test_residency_follows_the_page_cache(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}" for number in range(8)]
    for file in files:
        file.write_bytes(DICE.randbytes(MIB))
    for file in files[:6]:
        evict(file)
    residency = scan_dataset(str(tmp_path), budget_seconds=10).residency
    assert residency.ratio == pytest.approx(0.25, abs=0.01)
    assert residency.trusted
    assert residency.coverage_ratio == 1.0


@pytest.mark.needs("disk")
def test_asking_pollutes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "cold"
    file.write_bytes(DICE.randbytes(4 * MIB))
    evict(file)
    before = file.stat().st_atime_ns
    for _ in range(3):
        assert scan_dataset(str(tmp_path), budget_seconds=10).residency.ratio == 0
    assert file.stat().st_atime_ns == before


def test_both_methods_agree(tmp_path: Path) -> None:
    file = tmp_path / "half"
    file.write_bytes(DICE.randbytes(2 * MIB + 77))
    evict(file)
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(descriptor, PAGE_BYTES * 16, 0)
    try:
        counted = cachestat_pages(descriptor)
    except OSError:
        lacks("cachestat", "this kernel has none")
    mapped = mincore_pages(descriptor, file.stat().st_size)
    os.close(descriptor)
    assert mapped == counted > 0


def test_a_ratio_from_too_few_files_is_not_trusted(tmp_path: Path) -> None:
    sample = ByteSample(100)
    for number in range(50):
        (tmp_path / str(number)).write_bytes(b"x" * PAGE_BYTES)
        sample.add("", str(number), PAGE_BYTES)
    residency = read_residency(str(tmp_path), sample, 50 * PAGE_BYTES, deadline=0)
    assert residency.ratio is not None
    assert not residency.trusted
    assert "1 of 50" in residency.reason


@pytest.mark.needs("root", "disk")
def test_files_of_others_are_not_trusted() -> None:
    """As nobody, mincore calls a cold file resident: the answer says that it cannot be trusted."""
    code = (
        "import os, sys; from nginx_tune.host.dataset import scan_dataset as scan; "
        # Once as root: nobody may not read the modules that are loaded late.
        "scan(sys.argv[1], budget_seconds=10); os.setuid(65534); "
        "r = scan(sys.argv[1], budget_seconds=10).residency; "
        "print(r.method, r.ratio, r.trusted, bool(r.reason))"
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        file = directory / "cold"
        file.write_bytes(DICE.randbytes(MIB))
        file.chmod(0o644)
        evict(file)
        said = subprocess.run(
            [sys.executable, "-c", code, name], capture_output=True, text=True, check=True
        )
    assert said.stdout.split() == ["mincore", "1.0", "False", "True"]


def test_idle_priority_is_given_back(tmp_path: Path) -> None:
    import psutil  # noqa: PLC0415  # only here

    before = psutil.Process().ionice()
    scan_dataset(str(tmp_path), budget_seconds=1)
    assert psutil.Process().ionice() == before


def test_quantiles_of_sizes() -> None:
    counter = SizeCounter()
    for size in [0, 1, 2, 3, 4, 5, 1000, 1024, 1025, 5000]:
        counter.add(size)
    sizes = counter.sizes()
    assert sizes is not None
    assert [(b.le_bytes, b.files) for b in sizes.buckets] == [
        (0, 1), (1, 1), (2, 1), (4, 2), (8, 1), (1024, 2), (2048, 1), (8192, 1),
    ]  # fmt: skip
    assert (sizes.p50_bytes, sizes.p90_bytes, sizes.p99_bytes) == (4, 1025, 5000)
    assert sum(b.bytes for b in sizes.buckets) == counter.bytes
    assert SizeCounter().sizes() is None


@pytest.mark.long
@each_row(("files", "step", "error"), [(50_000, 1, 0.0), (300_000, 7, 0.002), (70_000, 64, 0.002)])
def test_quantiles_are_exact_or_nearly_so_of_very_many_sizes(
    files: int, step: int, error: float
) -> None:
    """A power of two is up to twice what it stands for."""
    rng = random.Random(files)
    sizes = [rng.randrange(1, files) * step + rng.randrange(step) for _ in range(files)]
    counter = SizeCounter()
    for size in sizes:
        counter.add(size)
    found = counter.sizes()
    assert found is not None
    for told, share in [(found.p50_bytes, 50), (found.p90_bytes, 90), (found.p99_bytes, 99)]:
        true = sorted(sizes)[-(-files * share // 100) - 1]
        assert abs(told - true) <= error * true
    assert found.p99_bytes <= found.max_bytes == max(sizes)


@each_row("seed", range(5))
def test_a_sample_stands_for_the_whole_tree(seed: int) -> None:
    """Large hot files among many small cold ones: the share of hot bytes is met within 5 %."""
    rng = random.Random(seed)
    files = [
        (f"{n}", int(rng.paretovariate(1.1) * 4096), rng.random() < 0.3) for n in range(50_000)
    ]
    sample = ByteSample(2000)
    for name, size, _ in files:
        sample.add("", name, size)
    hot = {name for name, _, is_hot in files if is_hot}
    weights = {file.path: sample.weight_bytes(file) for file in sample.files}
    estimate = sum(w for name, w in weights.items() if name in hot) / sum(weights.values())
    truth = sum(size for _, size, is_hot in files if is_hot) / sum(size for _, size, _ in files)
    assert 500 < len(sample.files) <= 2000
    assert estimate == pytest.approx(truth, abs=0.05)


def test_a_small_tree_is_asked_in_full() -> None:
    sample = ByteSample(10)
    for number in range(10):
        sample.add("", str(number), number)
    assert [file.path for file in sample.files] == list("123456789")
    assert sample.stride_bytes == 0
