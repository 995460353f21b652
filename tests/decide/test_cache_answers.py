"""Which answers of a cache are kept for whom, fetched how and in which parts."""

import pytest
from msgspec.structs import replace
from rows import each_row
from situations import GIBIBYTE, MEBIBYTE, dataset, host, load, nginx, site
from situations import decide_without_break_evens as decide

from nginx_tune.decide.cache_fetches import once_share, slice_bytes
from nginx_tune.decide.engine import situation_of
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.workload import (
    CurveShare,
    LogSummary,
    ObjectSizes,
    Popularity,
    Rate,
    ServedData,
    Traffic,
    Workload,
)

CACHES = site(cache_dirs=["/srv/1"])
SLICES = nginx("1.26.3", ["--with-threads", "--with-http_slice_module"])


def decided(workload: Workload, facts: Facts | None = None) -> dict[str, Decision]:
    found = decide(facts or host(), workload, site=CACHES)
    return {one.id: one for one in found.decisions}


def lines(decision: Decision, *, proposed: bool = False) -> list[str]:
    chosen = decision.proposed if proposed else decision.settings
    return [" ".join([one.directive, *one.args]) for one in chosen]


def learnt(**statuses: float) -> Workload:
    return replace(load("cache", data_bytes=None), traffic=Traffic(cache_statuses=statuses))


@each_row("kind", ["static", "media", "proxy"])
def test_nothing_is_said_where_nothing_is_cached(kind: str) -> None:
    found = decided(load(kind))  # type: ignore[arg-type]
    for name in ("cache-layout", "cache-key", "cache-misses", "cache-updates", "slice"):
        assert found[name].verdict == "not_applicable"


@each_row("packs", [True, False])
def test_what_shows_credentials_is_neither_kept_nor_answered_from_what_is(*, packs: bool) -> None:
    """And of what a server compresses, nobody gets what he cannot read."""
    given = site(cache_dirs=["/srv/1"], gzip=["gzip on"] if packs else [])
    found = {d.id: d for d in decide(host(), load("cache"), site=given).decisions}["cache-key"]
    key = "proxy_cache_key $scheme$host$request_uri"
    assert lines(found) == [
        key if packs else f"{key}|$http_accept_encoding",
        *(["proxy_set_header Accept-Encoding "] if packs else []),
        "proxy_cache_bypass $http_authorization",
        "proxy_no_cache $http_authorization",
    ]


@each_row(("version", "is_told"), [("1.6.2", True), ("1.26.3", False)])
def test_a_version_that_ignores_vary_is_told(version: str, *, is_told: bool) -> None:
    risks = decided(load("cache"), host(nginx=nginx(version)))["cache-key"].risks
    assert any("ignores Vary" in risk for risk in risks) == is_told


@each_row(
    ("workload", "locks"),
    [
        (load("cache"), False),
        (learnt(none=1.0), False),
        (learnt(HIT=0.95, MISS=0.05), False),
        (learnt(HIT=0.995, MISS=0.005), True),
        # Half of the requests pass the cache by and ask for no lock.
        (learnt(HIT=0.49, MISS=0.01, BYPASS=0.5), False),
        (learnt(HIT=0.496, MISS=0.004, BYPASS=0.5), True),
    ],
    ids=["no log", "no cache in it", "many miss", "few miss", "many of a half", "few of a half"],
)
def test_a_lock_only_where_hardly_a_request_can_wait_for_it(
    workload: Workload, *, locks: bool
) -> None:
    found = decided(workload)["cache-misses"]
    assert ("proxy_cache_lock on" in lines(found)) == locks
    assert ("proxy_cache_lock on" in lines(found, proposed=True)) != locks
    assert any("wait" in risk for risk in found.risks) == locks


@each_row(("version", "revalidates"), [("1.4.7", False), ("1.10.3", True)])
def test_only_what_the_version_knows(version: str, *, revalidates: bool) -> None:
    found = decided(load("cache"), host(nginx=nginx(version)))["cache-updates"]
    assert ("proxy_cache_revalidate on" in lines(found)) == revalidates
    assert "proxy_cache_use_stale error timeout updating" in lines(found)


def asked_once(share: float, files: int = 100_000) -> Workload:
    """A log of ten requests for each of some files, and of one for each of the others."""
    popular = round((1 - share) * files)
    requests = 10 * popular + files - popular
    size = 100_000
    return replace(
        load("cache", data_bytes=files * size, file_bytes=size),
        dataset=ServedData(files=files, bytes=files * size, provenance="learnt"),
        popularity=Popularity(
            curve=[
                CurveShare(requests_ratio=10 * popular / requests, bytes=popular * size),
                CurveShare(requests_ratio=1.0, bytes=files * size),
            ],
            provenance="learnt",
        ),
        log=LogSummary(format="combined", lines=requests, requests=requests),
    )


@each_row("share", [0.1, 0.6, 0.9])
def test_what_is_asked_for_once_is_counted_by_the_curve(share: float) -> None:
    s = situation_of(host(), asked_once(share), site=CACHES)
    assert once_share(s) == pytest.approx(share, abs=0.01)


@each_row(("share", "room_gib", "is_proposed"), [(0.9, 4, True), (0.9, 64, False), (0.1, 4, False)])
def test_two_uses_are_proposed_where_the_cache_is_full_of_what_is_asked_for_once(
    share: float, room_gib: int, *, is_proposed: bool
) -> None:
    facts = host()
    place = replace(
        facts.storage.paths[0], size_bytes=room_gib * GIBIBYTE, available_bytes=room_gib * GIBIBYTE
    )
    facts = replace(facts, storage=replace(facts.storage, paths=[place]))
    found = decided(asked_once(share), facts)["cache-misses"]
    assert "proxy_cache_min_uses 2" not in lines(found)
    assert ("proxy_cache_min_uses 2" in lines(found, proposed=True)) == is_proposed


def ranges(partial: float, sent: float, mean_bytes: float = 64.0 * MEBIBYTE) -> Workload:
    sizes = ObjectSizes(
        mean_bytes=mean_bytes,
        sent_mean_bytes=sent * mean_bytes,
        sent_ratio=sent,
        partial_ratio=partial,
        provenance="learnt",
    )
    return replace(load("cache"), sizes=sizes)


@each_row(
    ("workload", "build", "verdict", "proposes"),
    [
        (load("cache"), SLICES, "not_enough_evidence", False),
        (ranges(0.4, 0.25), SLICES, "not_enough_evidence", True),
        (ranges(0.4, 0.9), SLICES, "disable", False),
        (ranges(0.01, 0.25), SLICES, "disable", False),
        (ranges(0.4, 0.25, 30_000.0), SLICES, "disable", False),
        (ranges(0.4, 0.25), nginx("1.26.3"), "not_applicable", False),
        (ranges(0.4, 0.25), nginx("1.9.7", SLICES.flags), "not_applicable", False),
    ],
    ids=["no log", "ranges", "whole", "few", "small", "no module", "old"],
)
def test_parts_are_proposed_for_ranges_of_large_objects(
    workload: Workload, build: Nginx, verdict: str, *, proposes: bool
) -> None:
    found = decided(workload, host(nginx=build))["slice"]
    assert found.verdict == verdict
    assert found.settings == []
    wanted = [
        "slice 2m",
        "proxy_set_header Range $slice_range",
        "proxy_cache_key $scheme$host$request_uri$slice_range",
    ]
    assert lines(found, proposed=True) == (wanted if proposes else [])


@each_row(("answer_mib", "part_mib"), [(0.5, 1), (8, 1), (20, 2), (64, 8), (1000, 16)])
def test_a_part_is_an_eighth_of_an_answer_within_bounds(answer_mib: float, part_mib: int) -> None:
    assert slice_bytes(answer_mib * MEBIBYTE) == part_mib * MEBIBYTE


def path_words(workload: Workload, facts: Facts) -> dict[str, str]:
    (line,) = [
        one
        for one in decided(workload, facts)["cache-layout"].settings
        if one.directive == "proxy_cache_path"
    ]
    return dict(word.split("=", 1) for word in line.args[1:])


@each_row(
    ("file_bytes", "disk_class", "loader_files"),
    [(16 << 10, "nvme", "10000"), (16 << 10, "hdd", None), (64 << 20, "nvme", None)],
    ids=["145 million names", "a disk that looks up 25 in a turn", "few"],
)
def test_the_loader_takes_more_where_the_files_are_many(
    file_bytes: int, disk_class: str, loader_files: str | None
) -> None:
    """Keys of 145 million objects, which the loader takes 20 hours for by default."""
    facts = host(disk_class=disk_class, memory_bytes=256 * GIBIBYTE)  # type: ignore[arg-type]
    words = path_words(load("cache", data_bytes=None, file_bytes=file_bytes), facts)
    assert words.get("loader_files") == loader_files
    assumed = Workload(kind="cache")
    assert "loader_files" not in path_words(assumed, facts)
    held = replace(facts, datasets=[dataset(64 * GIBIBYTE, 16 << 10)])
    scanned = path_words(replace(assumed, sizes=ObjectSizes(provenance="assumed")), held)
    assert ("loader_files" in scanned) == (disk_class == "nvme")


@each_row(
    ("misses", "version", "manager_files"),
    [(0.1, "1.26.3", "200"), (0.01, "1.26.3", None), (0.1, "1.10.3", None)],
)
def test_the_manager_removes_as_much_as_is_kept(
    misses: float, version: str, manager_files: str | None
) -> None:
    workload = replace(
        learnt(HIT=1 - misses, MISS=misses),
        rate=Rate(mean_per_second=20_000.0, peak_per_second=20_000.0, provenance="learnt"),
    )
    words = path_words(workload, host(nginx=nginx(version)))
    assert words.get("manager_files") == manager_files
