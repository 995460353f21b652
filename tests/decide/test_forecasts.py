"""What is foretold of thread pools, and of what nobody could tell."""

import msgspec
from rows import each_row
from situations import GIBIBYTE, MEBIBYTE, dataset, host, load, measured, scanned, site, two_sizes
from situations import decide_without_break_evens as decide

from nginx_tune.decide.engine import situation_of
from nginx_tune.decide.model.open_reads import apart_ratio
from nginx_tune.decide.pool_forecast import forecast_blocking, forecast_gain
from nginx_tune.decide.pool_plan import plan_pools
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts, Link, Network
from nginx_tune.documents.site import Site, SiteTls
from nginx_tune.documents.workload import Workload

replace = msgspec.structs.replace
BLOCKED = "server.loop_blocked_ratio without pools"
TOTAL = "ratio(total.bytes_per_second)"
TLS = SiteTls(certificate="/c", certificate_key="/k")


def pools(facts: Facts, workload: Workload, tls: SiteTls | None = None) -> Decision:
    found = decide(facts, workload, site=site(roots=["/srv/1"], tls=tls)).decisions
    return next(one for one in found if one.id == "thread-pools")


def metrics(decision: Decision) -> list[str]:
    return [one.metric for one in decision.predicted]


@each_row(("share", "told"), [(0.6, True), (0.78, True), (0.83, False)])
def test_loops_are_not_foretold_where_data_nearly_fills_the_memory(
    share: float, told: bool
) -> None:
    """drawn-7717-001: data of 84 %, and a loop that stood 0.05 of the time; none was foretold."""
    limit = 4 * GIBIBYTE
    data = round(share * limit)
    facts = host(page_cache_bytes=limit, datasets=[dataset(data, 8 * MEBIBYTE)])
    decision = pools(facts, load(data_bytes=data, file_bytes=8 * MEBIBYTE, peak=20))
    assert decision.verdict == "disable"
    assert (BLOCKED in metrics(decision)) is told


def mixed(*, others: float, rate: float = 11.0) -> tuple[Facts, Workload, Site]:
    """Some large files a second over TLS from disks that hold three times what memory does."""
    data = 24 * GIBIBYTE
    facts = measured(host(cpus=2, page_cache_bytes=8 * GIBIBYTE, disks=2), 8e-3, 120e6)
    workload = load(data_bytes=data, file_bytes=3_300_000, exponent=0.8, rate=rate, peak=20.0)
    asked = replace(workload.rate, without_file_per_second=others)
    return facts, replace(workload, rate=asked), site(roots=["/srv/1"], tls=TLS)


def test_requests_that_read_no_file_make_pools_pay_where_they_wait_for_long() -> None:
    """drawn-7717-003: others waited 1.3 ms behind cold reads, 0.3 ms with pools."""
    facts, workload, asked = mixed(others=50.0)
    decision = pools(facts, workload, TLS)
    assert decision.verdict == "enable"
    assert "requests without a file wait" in decision.summary
    s = situation_of(facts, workload, site=asked)
    assert s.blocking_inputs is not None
    (found,) = forecast_gain(s, s.blocking_inputs, plan_pools(s))
    assert found.metric == "ratio(memory.mean)"
    assert found.expected < 0.5
    assert any("a large response takes" in risk for risk in decision.risks)


@each_row(("others", "rate"), [(0.0, 11.0), (50.0, 0.2)])
def test_they_do_not_where_they_are_few_or_wait_for_nothing(others: float, rate: float) -> None:
    facts, workload, _ = mixed(others=others, rate=rate)
    decision = pools(facts, workload, TLS)
    assert decision.verdict == "disable" or "nobody measured the disks" in decision.summary
    assert "requests that read no file wait" not in decision.summary


def test_all_bytes_are_foretold_only_where_hot_files_have_the_size_of_the_others() -> None:
    """drawn-7717-000: the hot file was one of 1.5 KB, the mean was 325 KB; 1.15 for 6.6 times."""
    buckets = two_sizes(900_000, 16 << 10, 100_000, 2 * MEBIBYTE)
    facts, workload = scanned(buckets, exponent=0.5, cpus=1, cache=GIBIBYTE)
    busy = replace(workload.concurrency, peak=24.0, cold_peak=20.0)
    busy = replace(busy, provenance="declared")
    several = pools(facts, replace(workload, concurrency=busy))
    assert several.verdict == "enable"
    assert TOTAL not in metrics(several)
    one_size = replace(facts, datasets=[dataset(64 * GIBIBYTE, 4 * MEBIBYTE)])
    alike = load(data_bytes=64 * GIBIBYTE, file_bytes=4 * MEBIBYTE, exponent=0.5)
    assert TOTAL in metrics(pools(one_size, replace(alike, concurrency=busy)))


@each_row(("rate", "told"), [(2.0, True), (2000.0, False)])
def test_hits_are_not_foretold_of_loops_that_fall_behind(rate: float, *, told: bool) -> None:
    """drawn-6151-016: all of it is under way, and what memory had has left it: 0.12, not 0.47."""
    data = 24 * GIBIBYTE
    facts = host(page_cache_bytes=8 * GIBIBYTE)
    decision = pools(facts, load(data_bytes=data, file_bytes=8 * MEBIBYTE, rate=rate, peak=20))
    assert ("page_cache.hit_ratio" in metrics(decision)) is told


@each_row(("rate", "told"), [(2.0, True), (2.9, True), (4.0, False)])
def test_nothing_is_foretold_of_a_link_that_more_is_asked_of_than_it_carries(
    rate: float, *, told: bool
) -> None:
    """drawn-8842-034: a third more, hits of 0.43 for 0.53 to 0.68, and loops that stood at 0.25."""
    link = Network(links=[Link(name="eth0", speed_bits_per_second=200_000_000)])
    facts = host(page_cache_bytes=8 * GIBIBYTE, network=link)
    workload = load(data_bytes=24 * GIBIBYTE, file_bytes=8 * MEBIBYTE, rate=rate, peak=20)
    decision = pools(facts, workload)
    assert ("page_cache.hit_ratio" in metrics(decision)) is told
    assert told or BLOCKED not in metrics(decision)
    assert any("% of the capacity towards the clients" in r for r in decision.risks) is not told


def test_the_range_begins_where_no_two_files_meet() -> None:
    facts = host(page_cache_bytes=8 * GIBIBYTE)
    workload = load(data_bytes=24 * GIBIBYTE, file_bytes=8 * MEBIBYTE, rate=3.0, peak=20)
    situation = situation_of(facts, workload, site=site(roots=["/srv/1"]))
    i, p = situation.blocking_inputs, situation.prediction
    assert i is not None
    assert p is not None
    apart = apart_ratio(i, 3.0 * i.miss_ratio)
    (stood,) = (one for one in forecast_blocking(situation, i, p) if one.metric == BLOCKED)
    assert apart < 0.9 * p.blocked_ratio
    assert stood.low < 0.8 * apart


@each_row(("rate", "keeps_up"), [(8.0, True), (40.0, False), (None, False)])
def test_who_may_be_answered_anyway_may_get_no_more_bytes(
    rate: float | None, *, keeps_up: bool
) -> None:
    """drawn-9157-003: loops that stood 0.35 of the time sent all of it without pools."""
    facts = host(page_cache_bytes=8 * GIBIBYTE)
    workload = load(data_bytes=24 * GIBIBYTE, file_bytes=8 * MEBIBYTE, rate=rate, peak=64.0)
    situation = situation_of(facts, workload, site=site(roots=["/srv/1"]))
    assert situation.blocking_inputs is not None
    found = forecast_gain(situation, situation.blocking_inputs, plan_pools(situation))
    (total,) = (one for one in found if one.metric == TOTAL)
    assert total.expected > 1
    assert (total.low < 1) is keeps_up
