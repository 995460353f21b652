"""Arms of scenarios: what is refused, what is written, and what each mechanism does, shortly."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nginx_tune.documents.base import decode
from nginx_tune.documents.decisions import Decision, Decisions, Setting
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.loadplan import Arrivals, Http2, Http3, Priority
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import Claim, ExtraVariant, Scenario, ScenarioClass, ScenarioRun
from nginx_tune.errors import MissingToolError, UsageError
from nginx_tune.experiment.scenario.files import check_scenario, list_scenarios
from nginx_tune.experiment.scenario.variants import (
    find_programs,
    tried_decisions,
    tries_chunk,
    variant_of_prediction,
)
from nginx_tune.measure.proof.gates import judge_claims
from nginx_tune.measure.proof.runs import count_valid, schedule_rounds, select_pairs
from nginx_tune.report.scenario import render_scenario_markdown, scenario_parts, scenario_words
from nginx_tune.report.screen import plain_text

RunCli = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "benchmarks" / "scenarios"
SCENARIOS = {scenario.name: scenario for scenario in list_scenarios()}

in_the_lab = pytest.mark.needs("root", "nginx", "loop", "blkio", "probe")


def test_every_scenario_can_be_run_as_written() -> None:
    for name, scenario in SCENARIOS.items():
        check_scenario(scenario)
        assert all(claim.source_row for claim in scenario.claims), name
        assert any(claim.source_figure for claim in scenario.claims), name


def test_every_scenario_is_an_example_and_has_a_page() -> None:
    for name, scenario in SCENARIOS.items():
        example = ROOT / "examples" / "scenarios" / f"{name}.toml"
        built_in = ROOT / "nginx_tune" / "scenarios" / f"{name}.toml"
        assert example.read_bytes() == built_in.read_bytes(), name
        shown = scenario_words(scenario) + plain_text(scenario_parts(scenario))
        for page in (shown, render_scenario_markdown(scenario)):
            assert scenario.title in page, name
            for claim in scenario.claims:
                assert claim.source_row in page, (name, claim.name)
                assert claim.expression in page, (name, claim.name)


VARIANT = ExtraVariant(name="other")
IN_TLS = msgspec.structs.replace(SCENARIOS["page-cache-fits"].lab, tls=True)
H3 = ScenarioClass(
    name="files",
    source="random",
    connections=1,
    http3=Http3(streams=1),
    arrivals=Arrivals(kind="closed", users=1),
)
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a name twice": ({"variants": [VARIANT, VARIANT]}, "a name appears twice"),
    "a variant called baseline": (
        {"variants": [ExtraVariant(name="baseline")]},
        "a name appears twice",
    ),
    "a name with a slash": ({"variants": [ExtraVariant(name="../x")]}, "arms: not a valid name"),
    "a claim on no arm": (
        {"claims": [Claim(name="c", source_row="A1", expression="total.errors == 0", variant="x")]},
        "claims: no variant 'x'",
    ),
    "a sysctl of the machine": (
        {"variants": [ExtraVariant(name="other", sysctls={"vm.swappiness": "1"})]},
        "only names below net.",
    ),
    "a sysctl with a path": (
        {"variants": [ExtraVariant(name="other", sysctls={"net.../../vm/x": "1"})]},
        "only names below net.",
    ),
    "a value that is none": (
        {"variants": [ExtraVariant(name="other", sysctls={"net.ipv4.tcp_x": "1\n2"})]},
        "only names below net.",
    ),
    "a series with a path": ({"variants": [ExtraVariant(name="other", series="../1")]}, "series"),
    "classes of other names": (
        {
            "variants": [
                msgspec.convert(
                    {
                        "name": "other",
                        "classes": [
                            {
                                "name": "odd",
                                "source": "hot",
                                "connections": 1,
                                "arrivals": {"kind": "closed", "users": 1},
                            }
                        ],
                    },
                    ExtraVariant,
                )
            ]
        },
        "need the names of the scenario's",
    ),
    "no workers after a reload": (
        {
            "variants": [
                msgspec.convert(
                    {"name": "other", "reload": {"every_seconds": 1.0, "worker_processes": [4, 0]}},
                    ExtraVariant,
                )
            ]
        },
        "reload.worker_processes",
    ),
    "QUIC in a lab without TLS": ({"classes": [H3]}, "classes.http3: QUIC is encrypted"),
    "two protocols at once": (
        {"classes": [msgspec.structs.replace(H3, http2=Http2(streams=1))]},
        "http2 and http3 exclude each other",
    ),
    "connections of one request over QUIC": (
        {"classes": [msgspec.structs.replace(H3, keepalive=False)], "lab": IN_TLS},
        "keepalive = false needs HTTP/1.1",
    ),
    "QUIC in cleartext": (
        {"classes": [H3], "lab": IN_TLS, "variants": [ExtraVariant(name="other", cleartext=True)]},
        "other: cleartext: HTTP/3 is always encrypted",
    ),
    "cleartext of a lab that has no TLS": (
        {"variants": [ExtraVariant(name="other", cleartext=True)]},
        "other: cleartext: has no effect, because the lab has no TLS",
    ),
    "what needs no file beside a hot one": (
        {"classes": [msgspec.structs.replace(H3, http3=None, source="hot", beside_memory=1)]},
        "classes.beside_memory: only for random files",
    ),
    "the same without a rate": (
        {"classes": [msgspec.structs.replace(H3, http3=None, beside_memory=1)]},
        "classes.beside_memory: only for random files",
    ),
    "slow clients over QUIC": (
        {"classes": [msgspec.structs.replace(H3, read_bytes_per_second=9)], "lab": IN_TLS},
        "slow clients need HTTP/1.1 or HTTP/2",
    ),
    "connections of nobody": (
        {"classes": [msgspec.structs.replace(H3, http3=None, connections_of="other")]},
        "classes.connections_of: not an HTTP/2 class",
    ),
    "a weight over HTTP/1.1": (
        {"classes": [msgspec.structs.replace(H3, http3=None, priority=Priority(weight=9))]},
        "classes.priority: weight: only for HTTP/2",
    ),
    "a stand-in with settings": (
        {"variants": [ExtraVariant(name="other", stand_in="raw-epoll-accept", series="1.18")]},
        "a stand-in takes no",
    ),
}


def test_a_variant_that_cannot_run_is_refused_before_anything_runs() -> None:
    wrong = {fault: found for fault in FAULTS if FAULTS[fault][1] not in (found := refusal(fault))}
    assert wrong == {}


def refusal(fault: str) -> str:
    """What is said of it; empty where it is taken."""
    try:
        check_scenario(msgspec.structs.replace(SCENARIOS["page-cache-fits"], **FAULTS[fault][0]))
    except UsageError as error:
        return error.message
    return ""


def test_an_optional_variant_is_left_out_with_its_claims(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scenario = SCENARIOS["accept-balance"]
    programs = find_programs(scenario, Nginx(version="1.22.1"), "/usr/sbin/nginx")
    assert set(programs.left_out) == {"nginx-1.18"}
    assert "nginx-1.18" not in programs.of_variant
    [result] = judge_claims(
        [claim for claim in scenario.claims if claim.variant == "nginx-1.18"],
        [],
        left_out=programs.left_out,
    )
    assert (result.held, result.left_out) == (False, True)
    assert "1.18 is not installed" in result.reason
    needed = [msgspec.structs.replace(variant, optional=False) for variant in scenario.variants]
    with pytest.raises(MissingToolError):
        find_programs(
            msgspec.structs.replace(scenario, variants=needed), Nginx(), "/usr/sbin/nginx"
        )


def test_rounds_hold_every_variant_once_and_turn_around() -> None:
    variants = ["baseline", "candidate", "third", "fourth"]
    order = schedule_rounds(variants, 6, 3)
    rounds = [order[start : start + 4] for start in range(0, 24, 4)]
    assert all(sorted(one) == sorted(variants) for one in rounds)
    assert all(
        forwards == backwards[::-1]
        for forwards, backwards in zip(rounds[::2], rounds[1::2], strict=True)
    )
    assert order == schedule_rounds(variants, 6, 3)
    assert len({tuple(schedule_rounds(variants, 2, seed)) for seed in range(20)}) > 5


def _block(variant: str, number: int, *, connections: int, flags: list[str] | None = None) -> Any:
    server = ServerMeasurement(served_connections={"1": connections, "2": 10})
    return Measurement(variant=variant, number=number, server=server, flags=flags or [])


def test_a_claim_is_judged_on_the_variants_it_names() -> None:
    blocks = [
        _block("third", 0, connections=90),
        _block("baseline", 1, connections=10),
        _block("candidate", 2, connections=30),
        _block("baseline", 3, connections=10),
        _block("candidate", 4, connections=30),
        _block("third", 5, connections=90),
    ]
    names = ["baseline", "candidate", "third"]
    assert count_valid(blocks, names) == 2
    assert [b.number for b in select_pairs(blocks, 3, against="baseline", variant="third")] == [
        1,
        0,
        2,
        3,
    ]

    def measured(expression: str, **more: Any) -> Any:
        claim = Claim(name="c", source_row="B2", expression=expression, **more)
        return judge_claims([claim], blocks)[0]

    share = "server.busiest_worker_ratio"
    assert measured(f"{share} >= 0").measured == 0.75
    assert measured(f"{share} >= 0", variant="third").measured == 0.9
    assert measured(f"baseline({share}) >= 0").measured == 0.5
    assert measured(f"ratio({share}) >= 0", variant="third").measured == pytest.approx(1.8)
    assert measured(f"ratio({share}) > 1", variant="third", against="candidate").held
    assert measured(f"{share} <= 0.5", expect="fails").held
    assert not measured(f"{share} <= 0.8", expect="fails").held
    assert not measured("total.truncated == 0", expect="fails").held, "nothing was measured"
    assert not measured(f"outcome({share}) != better").held, "two pairs are no evidence"
    claims = [
        Claim(name="large", source_row="B4", expression=f"ratio({share}) > 0", variant="third"),
        Claim(name="small", source_row="B4", expression=f"ratio({share}) > 0", less_than="large"),
        Claim(
            name="wrong",
            source_row="B4",
            expression=f"ratio({share}) > 0",
            variant="third",
            less_than="small",
        ),
    ]
    assert [result.held for result in judge_claims(claims, blocks)] == [True, True, False]
    blocks[0] = _block("third", 0, connections=90, flags=["lateness: x: y"])
    assert count_valid(blocks, names) == 1


def run(run_cli: RunCli, name: str, *arguments: str, seconds: str = "2s") -> ScenarioRun:
    length = ("--pairs", "1", "--duration", seconds)
    result = run_cli("-q", "scenario", "run", name, *length, *arguments, "-f", "json", timeout=240)
    assert result.returncode in {0, 1, 4}, result.stderr
    assert "Traceback" not in result.stderr
    return decode(ScenarioRun, result.stdout.encode())


def blocks_of(result: ScenarioRun) -> dict[str, Measurement]:
    """The last block of each variant; a round may have been run again."""
    return {block.variant: block for block in result.measurements}


@in_the_lab
@pytest.mark.thorough  # in the gate tests/validate has the verdict on such a pool
def test_an_overflowing_pool_truncates_and_its_statuses_say_nothing(run_cli: RunCli) -> None:
    blocks = blocks_of(run(run_cli, "pool-overflow"))
    small = blocks["candidate"]
    truncated = sum(part.truncated for part in small.classes.values())
    assert truncated > 0
    assert small.server.pool_overflow == pytest.approx(truncated, rel=0.05)
    assert {status for part in small.classes.values() for status in part.statuses} == {"200"}
    for variant in ("baseline", "fits"):
        assert blocks[variant].server.pool_overflow == 0
        assert sum(part.truncated for part in blocks[variant].classes.values()) == 0


def _short_accept_balance(scenario: Scenario, variants: set[str]) -> list[str]:
    """The text of a scenario file with some of the variants alone."""
    built_in = ROOT / "nginx_tune" / "scenarios" / f"{scenario.name}.toml"
    head, *parts = built_in.read_text().split("\n[[arms]]\n")
    kept = [part for part in parts[:-1] if part.partition('"')[2].partition('"')[0] in variants]
    tail = parts[-1][parts[-1].index("\n[[classes]]") :].partition("\n[[claims]]")[0]
    return [head, *(f"\n[[arms]]\n{part}" for part in kept), tail]


@pytest.mark.thorough
@in_the_lab
def test_bare_processes_take_turns_in_accept_and_not_in_epoll(
    run_cli: RunCli, tmp_path: Path
) -> None:
    text = "".join(
        _short_accept_balance(
            SCENARIOS["accept-balance"], {"raw-blocking", "raw-epoll", "accept-mutex"}
        )
    )
    file = tmp_path / "short.toml"
    file.write_text(text)
    blocks = blocks_of(run(run_cli, str(file)))

    def busiest(variant: str) -> float:
        served = blocks[variant].server.served_connections.values()
        return max(served) / sum(served)

    for variant in ("baseline", "candidate", "raw-blocking"):
        assert len(blocks[variant].server.served_connections) == 4, variant
    assert busiest("raw-blocking") < busiest("raw-epoll")
    assert busiest("raw-blocking") < busiest("accept-mutex")


@in_the_lab
@pytest.mark.thorough  # of the reset connections tests/rehearse has a proof
def test_workers_that_shrink_lose_connections_only_where_queues_close(run_cli: RunCli) -> None:
    for _ in range(3):  # on a busy machine all queues may happen to be empty at each reload
        blocks = blocks_of(run(run_cli, "reuseport-reload", seconds="3s"))
        lost = {
            variant: sum(sum(part.errors.values()) for part in block.classes.values())
            for variant, block in blocks.items()
        }
        if lost["baseline"]:
            break
    assert lost["baseline"] > max(lost["candidate"], lost["shared"])


@pytest.mark.thorough
@in_the_lab
@pytest.mark.needs("nginx-1.30")
def test_a_reload_takes_answers_over_http3_and_none_over_http2(run_cli: RunCli) -> None:
    blocks = blocks_of(run(run_cli, str(MEASURED / "quic-reload.toml"), seconds="4s"))
    lost = {
        variant: {name: sum(part.errors.values()) for name, part in block.classes.items()}
        for variant, block in blocks.items()
    }
    assert lost["baseline"] == {"h2": 0, "h3": 0}
    assert lost["candidate"]["h3"] > 0
    assert lost["candidate"]["h2"] == 0
    for block in blocks.values():
        assert block.classes["h2"].http2 is not None
        assert block.classes["h3"].http3 is not None


@in_the_lab
@pytest.mark.needs("nginx-1.30")
@pytest.mark.alone  # compares times
@pytest.mark.thorough
def test_streams_of_a_cleartext_connection_wait_for_its_one_sendfile(run_cli: RunCli) -> None:
    result = run(run_cli, str(MEASURED / "http2-cold-files.toml"), seconds="3s")
    texts = {variant.variant: variant.nginx_conf for variant in result.variants}
    listens = {variant: re.findall(r"listen ([^;]*);", text) for variant, text in texts.items()}
    assert listens["candidate"] == ["127.0.0.1:8080 ssl http2"]
    assert listens["cleartext-sendfile"] == ["127.0.0.1:8080"]
    waited = {variant: block.classes["mixed"] for variant, block in blocks_of(result).items()}
    assert all(sum(part.errors.values()) == 0 for part in waited.values())
    p90 = {variant: part.response_seconds.p90 or 0.0 for variant, part in waited.items()}
    # The tenth of the requests that waits longest holds twice as many as ask for files.
    assert p90["candidate"] < p90["baseline"]
    assert p90["cleartext-buffers"] < p90["cleartext-sendfile"]
    assert p90["candidate"] < p90["cleartext-sendfile"]


def pools(*args: str, verdict: str = "enable") -> Decisions:
    """Thread pools as they are decided, and something else that is written."""
    aio = [Setting(context="location", directive="aio", args=list(args))] if args else []
    cache = Setting(context="http", directive="open_file_cache", args=["max=1000"])
    return Decisions(
        decisions=[
            Decision(id="thread-pools", verdict=verdict, summary="s", settings=aio),  # type: ignore[arg-type]
            Decision(id="open-file-cache", verdict="set", summary="s", settings=[cache]),
            Decision(id="reuseport", verdict="keep", summary="s"),
        ]
    )


def test_which_predictions_a_run_answers() -> None:
    both = {"thread-pools", "open-file-cache"}
    table: list[tuple[str, Decisions, str, set[str]]] = [
        # All that was written is tried by the variant that has it.
        ("thread-pools", pools("threads=hot"), "candidate", both),
        ("thread-pools-cold-heavy", pools("threads=hot"), "recommended", both),
        # Pools that are forced on try a forecast of the same pools, or of what they would cost.
        ("loop-blocked", pools("threads"), "candidate", {"thread-pools"}),
        ("loop-blocked", pools("threads=many"), "candidate", set()),
        ("page-cache-fits", pools(verdict="disable"), "candidate", {"thread-pools"}),
        # Both variants have pools, or none.
        ("pool-overflow", pools("threads"), "candidate", set()),
        ("per-disk-pools", pools("threads=pool_$disk"), "candidate", set()),
        ("accept-balance", pools("threads"), "candidate", set()),
    ]
    for name, decisions, variant, tried in table:
        assert variant_of_prediction(SCENARIOS[name]) == variant, name
        assert tried_decisions(SCENARIOS[name], decisions) == tried, name


def test_whether_a_run_shows_how_long_a_decided_chunk_takes() -> None:
    for name, chunk, is_tried in (
        ("sendfile-chunk-cold", "512k", True),
        ("sendfile-chunk-cold", "1m", False),  # decided, and no variant has it
        ("sendfile-chunk-cold", "", False),
        ("loop-blocked", "512k", False),  # its candidate has pools
        ("thread-pools", "512k", False),
    ):
        settings = [Setting(context="http", directive="sendfile_max_chunk", args=[chunk])]
        decided = Decision(
            id="sendfile-max-chunk",
            verdict="lower" if chunk else "keep",
            summary="s",
            settings=settings if chunk else [],
        )
        found = tries_chunk(SCENARIOS[name], Decisions(decisions=[decided]))
        assert found is is_tried, (name, chunk)
