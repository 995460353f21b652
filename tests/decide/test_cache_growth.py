"""A cache is weighed at the size that it may have, in every decision."""

from pathlib import Path

import msgspec
from command_line import RunCli
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each_row
from situations import GIBIBYTE, MEBIBYTE, decide_without_break_evens, host, load, nginx, site
from situations import decide_without_break_evens as decide
from tiers import draws

from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.cache_layout import not_known
from nginx_tune.decide.engine import situation_of
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Dataset, Disk, PathStorage, Storage
from nginx_tune.documents.site import CacheBounds, Site
from nginx_tune.documents.workload import ObjectSizes, Workload

UNITS = {"k": 1 << 10, "m": MEBIBYTE, "g": GIBIBYTE}


def written_bytes(decisions: dict[str, Decision]) -> int:
    """All caches' ``max_size`` in the settings."""
    words = [
        arg.removeprefix("max_size=")
        for s in decisions["cache-layout"].settings
        for arg in s.args
        if arg.startswith("max_size=")
    ]
    return sum(int(word[:-1]) * UNITS[word[-1]] for word in words)


def size_of(name: str, args: list[str]) -> int:
    """A size among the words of a cache; 0 for none."""
    words = [arg.removeprefix(f"{name}=") for arg in args if arg.startswith(f"{name}=")]
    return sum(int(word[:-1]) * UNITS[word[-1]] for word in words)


def decided(own: Site, **facts: object) -> dict[str, Decision]:
    found = decide(host(**facts), load("cache", data_bytes=None, cold_peak=200), site=own)  # type: ignore[arg-type]
    return {one.id: one for one in found.decisions}


def test_pools_are_off_for_data_that_the_file_forbids() -> None:
    """What the operator allows the cache fits in memory; a bound of ours says nothing."""
    bounds = {"/cache": CacheBounds(max_bytes=10 * GIBIBYTE)}
    own = site(cache_dirs=["/cache"], cache_bounds=bounds)
    decisions = decided(own, page_cache_bytes=23 * GIBIBYTE)
    assert decisions["thread-pools"].verdict == "disable"
    unknown = decided(site(cache_dirs=["/cache"]), page_cache_bytes=23 * GIBIBYTE)
    assert written_bytes(unknown) == 0
    assert unknown["thread-pools"].verdict == "not_enough_evidence"
    assert "10.0 GiB" in decisions["thread-pools"].summary
    assert decisions["aio-write"].verdict == "not_applicable"


@settings(max_examples=draws(30, 200), deadline=None)
@given(
    declared=st.lists(st.one_of(st.none(), st.integers(1, 1 << 22)), min_size=1, max_size=3),
    recorded=st.booleans(),
    free=st.integers(1, 1 << 12),
)
def test_the_model_weighs_what_the_lines_allow(
    declared: list[int | None], recorded: bool, free: int
) -> None:
    directories = [f"/srv/{n}" if recorded else f"/else/{n}" for n in range(1, len(declared) + 1)]
    bounds = {
        path: CacheBounds(max_bytes=size * MEBIBYTE)
        for path, size in zip(directories, declared, strict=True)
        if size is not None
    }
    facts = host(disks=3)
    paths = [
        PathStorage(
            path=place.path,
            mount_point=place.mount_point,
            filesystem="ext4",
            leaf_disks=place.leaf_disks,
            size_bytes=4 << 40,
            available_bytes=free * GIBIBYTE,
        )
        for place in facts.storage.paths
    ]
    own = site(cache_dirs=directories, cache_bounds=bounds)
    storage = type(facts.storage)(paths=paths, disks=facts.storage.disks)
    workload = load("cache", data_bytes=None)
    facts = host(storage=storage)
    found = decide_without_break_evens(facts, workload, site=own).decisions
    decisions = {d.id: d for d in found}
    weighed = situation_of(facts, workload, site=own).dataset_bytes.value
    if not recorded and None in declared:
        assert weighed is None, "how large the disk is, nobody knows"
        return
    assert weighed is not None
    assert weighed <= written_bytes(decisions)
    if recorded:
        assert weighed <= len(declared) * free * GIBIBYTE
    for line in decisions["cache-layout"].settings:
        if line.directive == "proxy_cache_path":
            max_bytes, min_free_bytes = (
                size_of("max_size", line.args),
                size_of("min_free", line.args),
            )
            # Each of them lies on a disk of its own here, which has so much free.
            assert (
                not recorded or not min_free_bytes or max_bytes + min_free_bytes <= free * GIBIBYTE
            )


def test_a_small_cache_does_not_decide_for_the_files_served_beside_it() -> None:
    """Videos beside a cache of 1 GiB: counted, declared or learnt for both, or not known at all."""
    bounds = {"/cache": CacheBounds(max_bytes=GIBIBYTE)}
    own = site(cache_dirs=["/cache"], cache_bounds=bounds, roots=["/srv/videos"], serves_files=True)
    scan = Dataset(path="/srv/videos", files=10_000, bytes=2_000 * GIBIBYTE, complete=True)
    memory = 23 * GIBIBYTE

    counted = decided(own, page_cache_bytes=memory, datasets=[scan])["thread-pools"]
    of_both = load("cache", data_bytes=2_000 * GIBIBYTE, cold_peak=200)
    verdicts = set[str]()
    for provenance in ("declared", "learnt"):
        dataset = msgspec.structs.replace(of_both.dataset, provenance=provenance)
        workload = msgspec.structs.replace(of_both, dataset=dataset)
        found = decide(host(page_cache_bytes=memory), workload, site=own).decisions
        verdicts |= {one.verdict for one in found if one.id == "thread-pools"}
    unknown = decided(own, page_cache_bytes=memory)["thread-pools"]

    assert counted.verdict == "enable", counted.summary
    assert verdicts == {"enable"}
    assert unknown.verdict == "not_enough_evidence"


def test_a_small_file_system_is_not_emptied_for_its_min_free() -> None:
    """80 % of 1 GiB is free: nginx would remove all until 1 GiB is."""
    facts = host(disks=1)
    place = facts.storage.paths[0]
    small = msgspec.structs.replace(
        place, filesystem="ext4", size_bytes=GIBIBYTE, available_bytes=800 * MEBIBYTE
    )
    facts = host(storage=msgspec.structs.replace(facts.storage, paths=[small]))
    own = site(cache_dirs=[place.path], cache_bounds={place.path: CacheBounds(max_bytes=1 << 29)})
    found = decide(facts, load("cache", data_bytes=None), site=own).decisions
    [line] = [s for d in found for s in d.settings if s.directive == "proxy_cache_path"]
    assert size_of("min_free", line.args) == 512 // 20 * MEBIBYTE


@each_row("free_mebibytes", [0, 1, 90, 574, 1023, 1500, 30_000])
@each_row("disks", [[], ["vda"]])
@each_row("object_bytes", [2e3, 1e6])
def test_no_cache_is_written_larger_than_what_is_free(
    free_mebibytes: int, disks: list[str], object_bytes: float
) -> None:
    """A file system of 600 MiB, or one that others have filled, has no room for 1 GiB."""
    place = PathStorage(
        path="/small",
        filesystem="ext4",
        leaf_disks=disks,
        size_bytes=40 * GIBIBYTE,
        available_bytes=free_mebibytes * MEBIBYTE,
    )
    storage = msgspec.structs.replace(host(disks=1).storage, paths=[place])
    sizes = ObjectSizes(mean_bytes=object_bytes, provenance="learnt")
    workload = msgspec.structs.replace(load("cache", data_bytes=None), sizes=sizes)
    found = decide_without_break_evens(
        host(storage=storage), workload, site=site(cache_dirs=["/small"])
    ).decisions
    [line] = [s for d in found for s in d.settings if s.directive == "proxy_cache_path"]
    max_bytes, min_free_bytes = size_of("max_size", line.args), size_of("min_free", line.args)
    assert 0 < max_bytes <= max(1, free_mebibytes) * MEBIBYTE
    assert max_bytes + min_free_bytes <= max(1, free_mebibytes) * MEBIBYTE
    # nginx takes max_size=0 as no bound at all.
    assert "max_size=0" not in " ".join(line.args)


@each_row(
    ("words", "expected"),
    [("max_size=1g", 1 * GIBIBYTE), ("max_size=40g min_free=10g", 23 * GIBIBYTE)],
)
def test_a_declared_bound_counts_with_what_is_free(words: str, expected: int) -> None:
    conf = f"http {{ proxy_cache_path /srv/1/c keys_zone=z:10m {words}; }}"
    own = site_in(parse_text(conf, file="/n.conf"), Site())
    facts = host(datasets=[Dataset(path="/srv/1/c", bytes=3 * GIBIBYTE, files=3000)])
    (place,) = facts.storage.paths
    place = PathStorage(
        path=place.path,
        filesystem="ext4",
        leaf_disks=place.leaf_disks,
        size_bytes=1 << 40,
        available_bytes=30 * GIBIBYTE,
    )
    facts = host(
        storage=type(facts.storage)(paths=[place], disks=facts.storage.disks),
        datasets=facts.datasets,
    )
    workload = load("cache", data_bytes=100 * GIBIBYTE)
    data = situation_of(facts, workload, site=own).dataset_bytes
    assert (data.value, data.provenance) == (expected, "declared")


@each_row("files", [0, 7])
def test_files_in_a_directory_that_nobody_named_a_cache_are_told(files: int) -> None:
    facts = host(datasets=[Dataset(path="/data", files=files, bytes=files)])
    found = decide(facts, load("cache", data_bytes=None), site=site(cache_dirs=["/data"]))
    (one,) = [d for d in found.decisions if d.id == "cache-layout"]
    (line,) = [s for s in one.settings if s.directive == "proxy_cache_path"]
    told = "/data already holds 7 files: nginx deletes all"
    assert (told in line.reason) == bool(files)
    assert any(told in risk for risk in one.risks) == bool(files)
    own = site(cache_dirs=["/data"], cache_bounds={"/data": CacheBounds()})
    stands = decide(facts, load("cache", data_bytes=None), site=own).decisions
    assert not any(told in risk for d in stands for risk in d.risks), "a cache that stands"


@each_row("files", [0, 3])
def test_generate_tells_of_files_in_a_new_caches_directory(
    run_cli: RunCli, tmp_path: Path, files: int
) -> None:
    for number in range(files):
        (tmp_path / f"{number}.jpg").write_bytes(b"x")
    run = run_cli("generate", "--kind", "cache", "--cache-dir", tmp_path)
    assert run.returncode == 0, run.stderr
    told = f"{tmp_path} already holds 3 files: nginx deletes all but cache entries"
    assert (told in run.stderr) == bool(files)


def test_small_objects_may_use_most_of_the_disks() -> None:
    """Two hundred million of 16 KB: with a twentieth of memory for keys 8 % of each disk."""
    room = [
        PathStorage(
            path=f"/cache/{n}", filesystem="xfs", leaf_disks=[f"sd{n}"],
            size_bytes=3_840 * 10**9, available_bytes=3_700 * 10**9,
        )
        for n in "bcd"
    ]  # fmt: skip
    facts = host(memory_bytes=128 * GIBIBYTE, page_cache_bytes=115 * GIBIBYTE)
    disks = [Disk(name=f"sd{n}", class_="ssd", size_bytes=3_840 * 10**9) for n in "bcd"]
    facts = msgspec.structs.replace(facts, storage=Storage(paths=room, disks=disks))
    workload = load("cache", data_bytes=3_200 * 10**9, file_bytes=16 << 10, exponent=0.75)
    sizes = ObjectSizes(mean_bytes=float(16 << 10), provenance="learnt")
    workload = msgspec.structs.replace(workload, sizes=sizes)
    own = site(cache_dirs=[place.path for place in room])
    found = {one.id: one for one in decide(facts, workload, site=own).decisions}
    assert written_bytes(found) > 0.7 * 3 * 3_840 * 10**9
    keys = next(e for e in found["cache-layout"].evidence if "memory of all keys" in e.fact)
    assert isinstance(keys.value, float)
    assert keys.value <= 0.5 * 115 * GIBIBYTE, "the rest stays page cache"
    weighed = situation_of(facts, workload, site=own).blocking_inputs
    assert weighed is not None
    assert weighed.page_cache_bytes < 115 * GIBIBYTE, "keys and files share the memory"


@each_row("memory_gib", [16, 64, 256])
def test_more_memory_never_leaves_more_to_the_origin(memory_gib: int) -> None:
    def bytes_with(gib: int) -> int:
        sizes = ObjectSizes(mean_bytes=4096.0, provenance="learnt")
        workload = msgspec.structs.replace(load("cache", data_bytes=None), sizes=sizes)
        facts = host(memory_bytes=gib * GIBIBYTE, page_cache_bytes=gib * GIBIBYTE * 9 // 10)
        own = site(cache_dirs=["/srv/1"])
        found = decide_without_break_evens(facts, workload, site=own).decisions
        return written_bytes({one.id: one for one in found})

    assert bytes_with(memory_gib) <= bytes_with(2 * memory_gib)


def test_an_assumed_size_of_objects_makes_no_bound_and_is_said(
    run_cli: RunCli, tmp_path: Path
) -> None:
    """64 KiB were assumed in silence: 371 GB of each disk of 8 TB."""
    facts = host(disks=4, memory_bytes=32 * GIBIBYTE)
    own = site(cache_dirs=[f"/srv/{n}" for n in range(1, 5)])
    found = {one.id: one for one in decide(facts, Workload(kind="cache"), site=own).decisions}
    assert written_bytes(found) >= 4 * 2_900 * GIBIBYTE
    assert any(
        e.fact == "workload.sizes.mean_bytes" and e.provenance == "assumed"
        for e in found["cache-layout"].evidence
    )
    file = tmp_path / "facts.json"
    file.write_bytes(encode(facts))
    said = run_cli("generate", "--facts", file, "--kind", "cache", "--cache-dir", "/srv/1").stderr
    assert "64.0 KiB is assumed" in said
    assert "nginx-tune learn" in said


@each_row(("version", "words"), [("1.26.3", {"min_free"}), ("1.18.0", set())])
def test_a_disk_that_nobody_looked_at_gets_no_bound_of_ours(version: str, words: set[str]) -> None:
    """``max_size=10g`` made the data fit in memory; only what stays free is a bound anywhere."""
    facts = host(nginx=nginx(version))
    workload = load("cache", data_bytes=5000 * GIBIBYTE)
    found = {
        one.id: one for one in decide(facts, workload, site=site(cache_dirs=["/else/c"])).decisions
    }
    (line,) = [s for s in found["cache-layout"].settings if s.directive == "proxy_cache_path"]
    named = {arg.partition("=")[0] for arg in line.args}
    assert named & {"max_size", "min_free"} == words
    assert ("ignore[ca-no-max-size]" in line.reason) == (not words)
    assert "fits in the page cache" not in found["thread-pools"].summary
    (told,) = [
        text
        for text, _ in not_known(situation_of(facts, workload, site=site(cache_dirs=["/else/c"])))
    ]
    assert "/else/c: no max_size" in told


def test_a_bound_of_the_site_keeps_answers_written_in_place() -> None:
    bounds = {"/else/c": CacheBounds(max_bytes=100 * GIBIBYTE)}
    own = site(cache_dirs=["/else/c"], cache_bounds=bounds)
    found = decide(host(), load("cache", data_bytes=None), site=own).decisions
    (line,) = [s for d in found for s in d.settings if s.directive == "proxy_cache_path"]
    assert {"max_size=100g", "use_temp_path=off"} <= {*line.args}
