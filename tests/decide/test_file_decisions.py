"""How files are opened, sent and cached, for hosts and workloads of the sources."""

import msgspec
from rows import each_row
from situations import GIBIBYTE, MEBIBYTE, host, lab_host, lab_load, lines, load, nginx, one, site
from situations import decide_without_break_evens as decide

from nginx_tune.documents.facts import Dataset, PathStorage, Storage
from nginx_tune.documents.workload import ObjectSizes, TlsUse, Workload


@each_row(
    ("size_gib", "free_gib", "held_gib", "max_size"),
    [
        (None, None, 0, "2980g"),
        (100, 100, 0, "80g"),
        (100, 10, 0, "9g"),
        (100, 10, 60, "69g"),
        (100, None, 0, "80g"),
        (100_000, 100_000, 0, "2980g"),
    ],
)
def test_a_cache_fits_its_file_system(
    size_gib: int | None, free_gib: int | None, held_gib: int, max_size: str
) -> None:
    """A partition is smaller than its disk, and not all of it is free."""
    facts = host(mount="/data", memory_bytes=4096 * GIBIBYTE)
    paths = [
        msgspec.structs.replace(
            p,
            size_bytes=None if size_gib is None else size_gib * GIBIBYTE,
            available_bytes=None if free_gib is None else free_gib * GIBIBYTE,
        )
        for p in facts.storage.paths
    ]
    held = [Dataset(path="/data/1", files=9, bytes=held_gib * GIBIBYTE)] if held_gib else []
    facts = msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, paths=paths), datasets=held
    )
    sizes = ObjectSizes(mean_bytes=10e6, provenance="learnt")
    workload = msgspec.structs.replace(Workload(kind="cache"), sizes=sizes)
    decisions = decide(facts, workload, site=site(cache_dirs=["/data/1"]))
    (args,) = [
        s.args for d in decisions.decisions for s in d.settings if s.directive == "proxy_cache_path"
    ]
    assert f"max_size={max_size}" in args


@each_row("object_bytes", [512, 64 << 10, 4 << 20])
@each_row("disks", [1, 3, 12])
@each_row("memory_gib", [1, 16, 256])
def test_a_cache_is_no_larger_than_its_keys(object_bytes: int, disks: int, memory_gib: int) -> None:
    """Source: ngx_http_file_cache_add: an object without a key is not in the cache."""
    facts = host(disks=min(disks, 8), mount="/data", memory_bytes=memory_gib * GIBIBYTE)
    sizes = ObjectSizes(mean_bytes=float(object_bytes), provenance="learnt")
    workload = msgspec.structs.replace(Workload(kind="cache"), sizes=sizes)
    given = site(cache_dirs=[f"/data/{n}" for n in range(1, disks + 1)])
    decisions = decide(facts, workload, site=given)
    paths = [
        s.args
        for d in decisions.decisions
        for s in (*d.settings, *d.proposed)
        if s.directive == "proxy_cache_path"
    ]
    assert len(paths) == disks
    zones = 0
    for args in paths:
        words = dict(word.split("=", 1) for word in args[2:])
        zone = int(words["keys_zone"].split(":")[1].removesuffix("m"))
        if "max_size" not in words:  # the facts have no disk for the last ones
            zones += zone
            continue
        number, unit = int(words["max_size"][:-1]), words["max_size"][-1]
        size = number * {"g": GIBIBYTE, "m": MEBIBYTE}[unit]
        zones += zone
        file_bytes = -(-(object_bytes + 640) // 4096) * 4096
        assert size <= zone * 7083 * file_bytes + GIBIBYTE
    assert zones <= max(disks * 10, 0.5 * memory_gib * 1024)


@each_row(
    ("version", "verdict", "written"),
    [
        ("1.26.3", "lower", ["sendfile_max_chunk 512k"]),
        ("1.20.2", "set", ["sendfile_max_chunk 512k"]),
    ],
)
def test_a_hard_disk_gets_the_chunk_of_the_source(
    version: str, verdict: str, written: list[str]
) -> None:
    """A3, nginx CHANGES, 1.21.4."""
    d = one(decide(host(nginx=nginx(version)), load(), site=site()), "sendfile-max-chunk")
    assert (d.verdict, lines(d)) == (verdict, written)


def test_a_shared_folder_gets_no_sendfile() -> None:
    storage = Storage(paths=[PathStorage(path="/srv/1", filesystem="vboxsf")])
    d = one(decide(host(storage=storage), load(), site=site()), "sendfile")
    assert (d.verdict, lines(d)) == ("disable", ["sendfile off"])


def test_large_tls_bodies_are_read_in_larger_pieces() -> None:
    """Counted in the debug log: 245 pool tasks with 32k buffers, 16 with 512k."""
    workload = msgspec.structs.replace(load(), tls=TlsUse(value=True, provenance="declared"))
    d = one(decide(host(), workload, site=site()), "output-buffers")
    assert lines(d) == ["output_buffers 2 256k"]


def test_open_files_are_cached_within_the_descriptors() -> None:
    """C7: open() is never offloaded."""
    few = one(
        decide(host(), load(data_bytes=10**7, file_bytes=10**4), site=site()), "open-file-cache"
    )
    assert [" ".join([one.directive, *one.args]) for one in few.proposed] == [
        "open_file_cache max=1000 inactive=60s",
        "open_file_cache_valid 3s",
    ]
    many = load(data_bytes=10**13, file_bytes=10**5)
    assert one(decide(host(), many, site=site()), "open-file-cache").verdict == "disable"


def test_descriptors_of_files_that_are_asked_for_once_save_nothing() -> None:
    """Scenario cold-open: names are read from the disk, each for one request alone."""
    workload = load(data_bytes=10**8, file_bytes=10**5, rate=50.0)
    for change in ({"once": True}, {"requests_seen": 20.0}):
        asked = msgspec.structs.replace(workload.popularity, **change)
        seen = msgspec.structs.replace(workload, popularity=asked)
        d = one(decide(host(), seen, site=site()), "open-file-cache")
        assert (d.verdict, d.settings) == ("disable", []), change


@each_row(
    ("workload", "saved"),
    [
        (load(data_bytes=10**9, file_bytes=10**6), "of a request's time"),
        (load(data_bytes=10**8, file_bytes=10**5), "of a request's time"),
        (load(data_bytes=10**7, file_bytes=10**4, rate=100.0), "of a loop's time"),
    ],
    ids=["large files", "files of 100 KB", "few requests"],
)
def test_where_opens_cost_next_to_nothing_they_are_left(workload: Workload, saved: str) -> None:
    d = one(decide(host(), workload, site=site()), "open-file-cache")
    assert (d.verdict, lines(d)) == ("keep", [])
    assert saved in d.summary


def test_large_cold_files_in_demand_keep_a_descriptor_for_each_reader() -> None:
    """Few files of many windows, several readers of each: they would share the read-ahead."""
    d = one(decide(lab_host(), lab_load(), site=site()), "open-file-cache")
    assert (d.verdict, lines(d)) == ("keep", [])
    assert "read-ahead" in d.summary


def test_names_that_memory_forgets_are_worth_a_descriptor() -> None:
    """C8: 200 GB in files of a megabyte, and memory for the inodes of a few."""
    data = load(data_bytes=200 * 10**9, file_bytes=10**6, rate=50.0, exponent=1.2)
    small = host(memory_bytes=10**9, page_cache_bytes=10**9)
    assert one(decide(small, data, site=site()), "open-file-cache").verdict == "enable"


@each_row(
    ("workload", "version", "lines"),
    [
        (load(data_bytes=GIBIBYTE // 4, file_bytes=10**6), "1.26.3", []),
        (load(data_bytes=GIBIBYTE // 4, file_bytes=10**6), "1.18.0", ["2m"]),
        (load(data_bytes=10**13, file_bytes=10**7), "1.26.3", ["512k"]),
    ],
)
def test_no_chunk_is_made_for_a_disk_that_nobody_reads(
    workload: Workload, version: str, lines: list[str]
) -> None:
    """Memory holds a quarter of a gibibyte: what an assumed disk would want is no reason."""
    d = one(decide(host(nginx=nginx(version)), workload, site=site()), "sendfile-max-chunk")
    assert [one.args[0] for one in d.settings] == lines


def test_a_chunk_is_not_made_for_files_that_are_all_smaller() -> None:
    sizes = ObjectSizes(mean_bytes=40_000, p99_bytes=240_000, provenance="learnt")
    workload = msgspec.structs.replace(load(data_bytes=10**13, file_bytes=40_000), sizes=sizes)
    d = one(decide(host(), workload, site=site()), "sendfile-max-chunk")
    assert (d.verdict, d.settings) == ("keep", [])


@each_row(
    ("sizes", "live", "is_locked"),
    [
        (ObjectSizes(mean_bytes=6 << 20, p99_bytes=20 << 20, provenance="learnt"), [], True),
        (ObjectSizes(mean_bytes=6 << 20, p99_bytes=900 << 20, provenance="learnt"), [], False),
        (ObjectSizes(mean_bytes=6 << 20, p99_bytes=20 << 20, provenance="assumed"), [], False),
        (ObjectSizes(mean_bytes=16 << 10, p99_bytes=90 << 10, provenance="learnt"), [], False),
        (ObjectSizes(mean_bytes=16 << 10, provenance="learnt"), ["/live/"], True),
    ],
)
def test_requests_for_a_missing_page_wait_where_it_helps(
    sizes: ObjectSizes, live: list[str], *, is_locked: bool
) -> None:
    """One fetch takes as long as the others wait, or all ask for a new file at once."""
    workload = msgspec.structs.replace(load("cache"), sizes=sizes)
    d = one(decide(host(), workload, site=site(live_files=live)), "cache-misses")
    assert any(one.directive == "proxy_cache_lock" for one in d.settings) is is_locked
