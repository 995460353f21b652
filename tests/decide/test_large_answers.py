"""Large answers over TLS that memory holds: pools where clients keep pace, the flip elsewhere."""

from __future__ import annotations

import msgspec
import pytest
from situations import MEBIBYTE, scanned, site, two_sizes

from nginx_tune.decide import decide
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.site import SiteTls

replace = msgspec.structs.replace
TLS = SiteTls(certificate="/c", certificate_key="/k")


def pools(*, keep_pace: bool, tls: SiteTls | None = TLS, rate: float = 40.0) -> Decision:
    sizes = two_sizes(900, 16 << 10, 100, 20 * MEBIBYTE)
    facts, workload = scanned(sizes, kind="static", exponent=0.5, cpus=1, disk_class="ssd")
    concurrency = replace(workload.concurrency, peak=8.0, clients_keep_pace=keep_pace)
    asked = replace(workload.rate, peak_per_second=rate, mean_per_second=rate)
    workload = replace(workload, concurrency=concurrency, rate=asked)
    found = decide(facts, workload, site=site(roots=["/srv/1"], tls=tls)).decisions
    return next(one for one in found if one.id == "thread-pools")


def test_pools_end_the_turns_that_others_wait_for() -> None:
    decision = pools(keep_pace=True)
    assert decision.verdict == "enable"
    assert "in one turn" in decision.summary
    assert decision.predicted[0].metric == "ratio(memory.mean)"
    assert decision.predicted[0].expected < 0.5
    assert any("a large answer itself takes" in risk for risk in decision.risks)
    assert any("sent in one turn" in one.fact for one in decision.evidence)


def test_where_the_clients_pace_is_not_known_it_is_what_would_change_the_answer() -> None:
    decision = pools(keep_pace=False)
    assert decision.verdict == "disable"
    assert any(text.startswith("concurrency.clients_keep_pace: ") for text in decision.flips_when)


@pytest.mark.parametrize("other", [{"tls": None}, {"rate": 0.5}, {"rate": 5000.0}])
def test_a_turn_that_nobody_feels_is_neither(other: dict[str, float | None]) -> None:
    for keep_pace in (True, False):
        decision = pools(keep_pace=keep_pace, **other)  # type: ignore[arg-type]
        assert decision.verdict == "disable"
        assert not any("clients_keep_pace" in text for text in decision.flips_when)
