"""A cache that is being filled: what is foretold of it, and what is not."""

import msgspec
from situations import GIBIBYTE, decide_without_break_evens, host, load, measured, site

from nginx_tune.documents.workload import Popularity

BLOCKED = "server.loop_blocked_ratio without pools"


def foretold(popularity: Popularity) -> set[str]:
    workload = load("cache", data_bytes=64 * GIBIBYTE, rate=5.0, peak=20)
    workload = msgspec.structs.replace(workload, popularity=popularity)
    given = site(cache_dirs=["/srv/1"])
    facts = measured(host(), 8e-3, 120e6)
    found = decide_without_break_evens(facts, workload, site=given).decisions
    return {p.metric for one in found if one.id == "thread-pools" for p in one.predicted}


def test_nothing_is_foretold_of_loops_that_wait_for_writes() -> None:
    known = Popularity(exponent=0.8, provenance="declared")
    assert BLOCKED in foretold(known)
    filling = msgspec.structs.replace(known, requests_seen=500.0)
    assert BLOCKED not in foretold(filling)
    assert BLOCKED in foretold(msgspec.structs.replace(filling, began_full=True))
    assert BLOCKED not in foretold(msgspec.structs.replace(known, once=True))
    assert "page_cache.hit_ratio" in foretold(filling)
