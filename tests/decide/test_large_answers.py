"""Large answers that memory holds: what ends a turn where clients keep pace, the flip elsewhere."""

from typing import Any

import msgspec
from rows import each_row
from situations import GIBIBYTE, MEBIBYTE, lines, nginx, scanned, site, two_sizes
from situations import decide_without_break_evens as decide

from nginx_tune.documents.base import Provenance
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Link, Network
from nginx_tune.documents.site import SiteTls
from nginx_tune.documents.workload import Objective

replace = msgspec.structs.replace
TLS = SiteTls(certificate="/c", certificate_key="/k")


def decided(
    name: str,
    *,
    keep_pace: bool,
    tls: SiteTls | None = TLS,
    rate: float | None = 40.0,
    transfers: float = 8.0,
    large_bytes: int = 20 * MEBIBYTE,
    disk_class: str = "ssd",
    disks: int = 1,
    version: str = "1.26.3",
    small_files: int = 900,
    link_gigabits: int = 10,
    objective: str = "",
    cache: int = 16 * GIBIBYTE,
    concurrency_from: Provenance = "declared",
    client_bytes_per_second: float | None = None,
) -> Decision:
    """One decision for a site of small files, and some large ones among them."""
    sizes = two_sizes(small_files, 16 << 10, 100, large_bytes)
    facts, workload = scanned(
        sizes, cache=cache, kind="static", exponent=0.5, cpus=1, disk_class=disk_class, disks=disks
    )
    link = Link(name="eth0", speed_bits_per_second=link_gigabits * 10**9)
    facts = replace(facts, nginx=nginx(version), network=Network(links=[link]))
    concurrency = replace(
        workload.concurrency,
        peak=transfers,
        clients_keep_pace=keep_pace,
        client_bytes_per_second=client_bytes_per_second,
        provenance=concurrency_from,
    )
    asked = replace(workload.rate, peak_per_second=rate, mean_per_second=rate)
    objectives = [Objective(expression=objective)] if objective else []
    workload = replace(workload, concurrency=concurrency, rate=asked, objectives=objectives)
    roots = [f"/srv/{n}" for n in range(1, disks + 1)]
    prefixes = [f"{root}/" for root in roots] if disks > 1 else []
    given = site(roots=roots, root_prefixes=prefixes, tls=tls)
    found = decide(facts, workload, site=given).decisions
    return next(one for one in found if one.id == name)


def pools(*, keep_pace: bool, tls: SiteTls | None = TLS, rate: float = 40.0) -> Decision:
    return decided("thread-pools", keep_pace=keep_pace, tls=tls, rate=rate)


def test_pools_end_the_turns_that_others_wait_for() -> None:
    decision = pools(keep_pace=True)
    assert decision.verdict == "enable"
    assert "in one turn" in decision.summary
    assert decision.predicted[0].metric == "ratio(memory.mean)"
    assert decision.predicted[0].expected < 0.5
    assert any("a large response takes" in risk for risk in decision.risks)
    assert any("sent in one turn" in one.fact for one in decision.evidence)


def test_where_the_clients_pace_is_not_known_it_is_what_would_change_the_answer() -> None:
    decision = pools(keep_pace=False)
    assert decision.verdict == "disable"
    assert any(text.startswith("concurrency.clients_keep_pace: ") for text in decision.flips_when)


@each_row(
    ("other", "verdict"),
    [
        ({}, "enable"),
        ({"client_bytes_per_second": 2e6}, "disable"),
        ({"concurrency_from": "declared"}, "disable"),
        ({"cache": 4 * GIBIBYTE}, "disable"),
        ({"rate": 500.0}, "disable"),
    ],
)
def test_data_above_memory_and_clients_of_unknown_speed_are_judged_by_the_smaller_regret(
    other: dict[str, Any], verdict: str
) -> None:
    """drawn-6151-031, -9157-004: requests without a file waited 37 and 24 ms, 0.3 and 0.5 with
    pools. Off: slow clients, or nobody said that they are fast; data that fits; no spare CPU time.
    """
    known = {"disk_class": "nvme", "cache": 1843 * MEBIBYTE, "concurrency_from": "learnt", **other}
    decision = decided("thread-pools", keep_pace=False, **known)
    assert decision.verdict == verdict
    if verdict == "enable":
        assert "the speed of the clients is not known" in decision.summary
        assert decision.confidence == "low"
        assert any("known to be slow" in text for text in decision.flips_when)
        each = decided("per-disk-pools", keep_pace=False, disks=2, **known)
        assert (each.verdict, each.confidence) == ("enable", "low")
        assert each.next_command.startswith("nginx-tune validate"), "the disks decide nothing"


@each_row("other", [{"tls": None}, {"rate": 0.5}, {"rate": 5000.0}])
def test_a_turn_that_nobody_feels_is_neither(other: dict[str, float | None]) -> None:
    for keep_pace in (True, False):
        decision = pools(keep_pace=keep_pace, **other)  # type: ignore[arg-type]
        assert decision.verdict == "disable"
        assert not any("clients_keep_pace" in text for text in decision.flips_when)


def chunk(**other: object) -> Decision:
    given = {"keep_pace": True, "tls": None, "rate": None, **other}
    return decided("sendfile-max-chunk", **given)  # type: ignore[arg-type]


@each_row("disk_class", ["ssd", "hdd"])
def test_files_in_memory_leave_in_small_chunks_where_others_wait_for_them(disk_class: str) -> None:
    """drawn-5309-039: small answers five times sooner, a tenth fewer bytes a second."""
    decision = chunk(disk_class=disk_class)
    assert (decision.verdict, lines(decision)) == ("lower", ["sendfile_max_chunk 128k"])
    (predicted,) = decision.predicted
    assert predicted.metric == "ratio(memory.mean)"
    assert predicted.expected < 0.5
    assert predicted.high / predicted.low < 10
    modelled = [one.provenance for one in decision.evidence if "(model)" in one.fact]
    assert modelled == ["declared"], "a number of the model is no measurement"


def test_before_nginx_bounded_it_nothing_is_foretold_of_the_small_chunk() -> None:
    decision = chunk(version="1.18.0")
    assert (decision.verdict, lines(decision)) == ("set", ["sendfile_max_chunk 128k"])
    assert not decision.predicted


def test_with_a_rate_the_small_chunk_is_set_and_not_foretold() -> None:
    decision = chunk(rate=6000.0)
    assert lines(decision) == ["sendfile_max_chunk 128k"]
    assert not decision.predicted


def test_clients_that_might_keep_pace_are_what_would_lower_the_chunk() -> None:
    decision = chunk(keep_pace=False)
    assert "sendfile_max_chunk 128k" not in lines(decision)
    (flip,) = [one for one in decision.flips_when if one.startswith("concurrency.")]
    assert flip.startswith("concurrency.clients_keep_pace: 128k where clients")


def test_the_default_stays_for_files_in_memory_where_only_bytes_are_asked_for() -> None:
    assert not lines(chunk(objective="large.bytes_per_second >= 100 MB"))


def test_the_disk_decides_where_threads_send() -> None:
    """drawn-6151-020: with 128k half as many bytes a second, for small answers 0.5 ms sooner."""
    nearly: dict[str, object] = {
        "large_bytes": 160 * MEBIBYTE,
        "transfers": 32.0,
        "disk_class": "hdd",
        "link_gigabits": 100,
    }
    threads = decided("thread-pools", keep_pace=True, tls=None, rate=None, **nearly)  # type: ignore[arg-type]
    assert threads.verdict == "enable"
    assert lines(chunk(**nearly)) == ["sendfile_max_chunk 512k"]


@each_row(
    "other",
    [
        {"large_bytes": 32 << 10},  # no transfer has a second pass
        {"transfers": 1.0, "rate": 0.5},
        {"tls": TLS},  # buffers: no chunk ends a turn
        {"small_files": 4_000_000},  # cold: the disk has a part
    ],
)
def test_the_small_chunk_is_for_nothing_else(other: dict[str, object]) -> None:
    decision = chunk(**other)
    assert "sendfile_max_chunk 128k" not in lines(decision)
    assert not any("clients_keep_pace" in text for text in decision.flips_when)


@each_row(
    ("keep_pace", "tls", "version", "is_cut"),
    [
        (True, TLS, "1.26.3", True),
        (False, TLS, "1.26.3", False),
        (True, None, "1.26.3", False),
        (True, TLS, "1.20.2", False),
    ],
    ids=["fast clients", "their pace is not known", "cleartext", "a chunk is a pause of 1 ms"],
)
def test_a_buffer_that_is_encrypted_at_once_is_cut_by_the_chunk(
    version: str, tls: SiteTls | None, *, keep_pace: bool, is_cut: bool
) -> None:
    """drawn-8842-004: small answers took 1.3 ms behind buffers of 256k, 0.69 with 128k."""
    found = decided(
        "sendfile-max-chunk", keep_pace=keep_pace, tls=tls, version=version,
        rate=None, large_bytes=400 * MEBIBYTE,
    )  # fmt: skip
    lines = [" ".join([one.directive, *one.args]) for one in found.settings]
    assert ("sendfile_max_chunk 128k" in lines) == is_cut


@each_row(
    ("rate", "large_bytes", "size"), [(None, 400 * MEBIBYTE, "128k"), (30.0, 20 * MEBIBYTE, "256k")]
)
def test_a_loop_that_has_time_encrypts_a_buffer_in_a_turn(
    rate: float | None, large_bytes: int, size: str
) -> None:
    """drawn-8842-032: a hot file took 1.12 ms with 64k, 0.88 with a whole buffer."""
    found = decided("sendfile-max-chunk", keep_pace=True, rate=rate, large_bytes=large_bytes)
    lines = [" ".join([one.directive, *one.args]) for one in found.settings]
    assert lines == [f"sendfile_max_chunk {size}"]
