"""The same host and data under other objectives: pools, chunk and buffers go to their side."""

from functools import partial
from typing import Any

import msgspec
import pytest
from rows import each_row
from situations import GIBIBYTE, MEBIBYTE, host, load, measured, nginx, scanned, site, two_sizes

from nginx_tune.decide.bodies import decide_output_buffers
from nginx_tune.decide.engine import situation_of
from nginx_tune.decide.objectives import aim_of
from nginx_tune.decide.pool_plan import plan_pools
from nginx_tune.decide.sendfile import decide_sendfile_max_chunk
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import SiteTls
from nginx_tune.documents.workload import Objective, Workload

replace = msgspec.structs.replace
TLS = SiteTls(certificate="/c", certificate_key="/k")
BYTES = "cold.bytes_per_second >= 100 MB"


def situation(facts: Facts, workload: Workload, *objectives: str, **own: Any) -> Situation:
    asked = [Objective(expression=text) for text in objectives]
    return situation_of(facts, replace(workload, objectives=asked), site=site(**own))


def chunk(s: Situation) -> str:
    found = decide_sendfile_max_chunk(s, plan_pools(s))
    return found.settings[0].args[0] if found.settings else "default"


def test_a_chunk_for_the_tail_of_small_answers_is_smaller_than_one_for_bytes() -> None:
    """A disk of 8 ms and 150 MB/s: 1m is as long as the way to it."""
    facts = measured(host(), 0.008, 150e6)
    at = partial(situation, facts, load(data_bytes=900 * GIBIBYTE))
    assert [chunk(at(*texts)) for texts in ((), ("hot.p99 <= 20ms",), (BYTES,))] == [
        "1m", "512k", "default",
    ]  # fmt: skip
    assert chunk(at("hot.p99 <= 20ms", BYTES)) == "512k", "the time is kept whatever else is asked"
    assert chunk(at("hot.p99 <= 2s")) == "1m", "a bound that no chunk comes near moves nothing"
    found = decide_sendfile_max_chunk(at("hot.p99 <= 20ms"), plan_pools(at()))
    assert "hot.p99 <= 20ms" in found.summary
    assert any(one.fact == "workload.objectives" for one in found.evidence)


def test_buffers_that_a_loop_encrypts_are_smaller_for_the_tail() -> None:
    at = partial(situation, host(), load(data_bytes=900 * GIBIBYTE), tls=TLS)

    def size(*objectives: str) -> str:
        s = at(*objectives)
        return decide_output_buffers(s, plan_pools(s)).settings[0].args[1]

    assert (size(), size("p99 <= 1ms"), size("p99 <= 1s")) == ("256k", "64k", "256k")


def test_pools_are_on_where_reads_keep_more_late_than_an_objective_allows() -> None:
    """Five reads a second of a hard disk: too few to pay, and 2 in 1,000 answers meet one."""
    workload = load(data_bytes=60 * GIBIBYTE, file_bytes=32 << 10, rate=5.0)
    at = partial(situation, measured(host(), 0.008, 150e6), workload)
    verdicts = {text: plan_pools(at(text)).judgement for text in ("p999 <= 5ms", "p99 <= 5ms")}
    assert plan_pools(at()).judgement.verdict == "disable"
    assert verdicts["p99 <= 5ms"].verdict == "disable", "one in a hundred may"
    assert verdicts["p999 <= 5ms"].verdict == "enable"
    assert "p999 <= 5ms" in verdicts["p999 <= 5ms"].reason
    assert plan_pools(at("p999 <= 50ms")).judgement.verdict == "disable", "no read is as long"


def test_others_do_not_count_where_only_bytes_are_asked_for() -> None:
    """Large answers from memory, each encrypted in one turn: a pool is for those that wait."""
    sizes = two_sizes(900, 16 << 10, 100, 20 * MEBIBYTE)
    facts, workload = scanned(sizes, kind="static", exponent=0.5, cpus=1, disk_class="ssd")
    workload = replace(
        workload,
        concurrency=replace(workload.concurrency, peak=8.0, clients_keep_pace=True),
        rate=replace(workload.rate, peak_per_second=40.0, mean_per_second=40.0),
    )
    at = partial(situation, replace(facts, nginx=nginx("1.26.3")), workload, roots=["/srv/1"])
    assert plan_pools(at(tls=TLS)).judgement.verdict == "enable"
    assert plan_pools(at(BYTES, tls=TLS)).judgement.verdict == "disable"
    assert plan_pools(at(BYTES, "hot.p99 <= 1s", tls=TLS)).judgement.verdict == "enable"


@each_row(
    ("texts", "seconds", "share", "only"),
    [
        (["hot.p99 <= 50ms", "p999<0.2 s", "errors == 0"], 0.05, 0.01, False),
        (["hot.ttfb.mean <= 300 us"], 300e-6, None, False),
        (["total.requests_per_second >= 2000"], None, None, True),
        (["hot.p99 >= 50ms", "hot.errors <= 3", "nonsense"], None, None, False),
    ],
)
def test_an_aim_is_read_from_objectives(
    texts: list[str], seconds: float | None, share: float | None, *, only: bool
) -> None:
    found = aim_of([Objective(expression=text) for text in texts])
    assert (found.limit_seconds, found.limit_share) == (pytest.approx(seconds), share)
    assert found.only_quantity is only
