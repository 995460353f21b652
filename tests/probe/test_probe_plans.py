"""Loads of one URL by options, load plans as files, replays and the search, on the real nginx."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import msgspec
import pytest
from command_line import RunCli
from probe_loads import Nginx, StartNginx, load_class, load_plan

from nginx_tune.cli.probe_load import (
    parse_bytes,
    parse_headers,
    parse_keepalive,
    parse_moment,
    parse_rate,
    parse_statuses,
    parse_stripe,
)
from nginx_tune.documents.base import decode, json_schema
from nginx_tune.documents.loadplan import Arrivals, ByteRanges, LoadPlan, Paths
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Capacity, Measurement
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.classes import plan_at_rate
from nginx_tune.measure.load.one_class import Keepalive, OfferedRate
from nginx_tune.measure.load.probe import run_probe

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "loadplan" / "hot-and-cold.json"

SHORT = ("--allow-live", "--duration", "500ms", "--warmup", "0", "-f", "json")


def measure(run_cli: RunCli, *arguments: str | Path) -> Measurement:
    run = run_cli("probe", *arguments)
    assert run.returncode == 0, run.stderr
    return decode(Measurement, run.stdout.encode())


def url_class(run_cli: RunCli, *arguments: str | Path) -> ClassMeasurement:
    return measure(run_cli, *arguments, *SHORT).classes["url"]


@pytest.mark.needs("nginx", "probe")
def test_the_example_runs(nginx: Nginx, run_cli: RunCli, tmp_path: Path) -> None:
    plan = json.loads(EXAMPLE.read_text())
    jsonschema.validate(plan, json.loads(json_schema(LoadPlan)))
    plan["target"]["port"] = nginx.port
    plan["warmup_seconds"], plan["duration_seconds"] = 0.2, 1.5
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    measurement = measure(run_cli, file, "--allow-live", "-f", "json")
    assert set(measurement.classes) == {"hot", "cold", "arriving", "slow"}
    for name, part in measurement.classes.items():
        assert part.errors == {}, name
        assert part.requests > 0, name
    arriving = measurement.classes["arriving"]
    assert arriving.connections_opened >= arriving.requests
    assert measurement.classes["cold"].statuses.keys() == {"206"}
    assert measurement.generator.idle_connections is not None
    assert measurement.generator.idle_connections.open == 50


@pytest.mark.needs("nginx", "probe")
def test_a_url_is_loaded_as_its_options_say(nginx: Nginx, run_cli: RunCli) -> None:
    url = nginx.url("/100k")
    rate = ("--rate", "200", "--connections", "30")
    kept = url_class(run_cli, url, "--connections", "1", "--keepalive", "10")
    assert kept.errors == {}
    assert kept.connections_opened >= kept.requests / 10 > 1
    two = measure(run_cli, url, *rate, "--threads", "2", *SHORT)
    assert (two.generator.threads, two.classes["url"].connections_opened) == (2, 30)
    part = url_class(run_cli, url, *rate, "-H", "Range: bytes=0-9", "--status", "206")
    assert part.statuses.keys() == {"206"}
    for words in ("0-400", "100,300"):
        # Five standard deviations of a Poisson count of 100.
        assert abs(url_class(run_cli, url, "--rate", words).requests - 100) <= 50, words


@pytest.mark.needs("nginx", "probe")
def test_a_plan_says_what_options_do_not(nginx: Nginx, tmp_path: Path) -> None:
    file = tmp_path / "files" / "100k"
    paths = Paths(kind="fixed", paths=["/100k"], bytes=[102_400], files=[str(file)])
    part = load_class(name="part", paths=paths, range=ByteRanges(kind="random", bytes=1024))
    head = load_class("/100k", name="head", method="HEAD")
    one = Arrivals(kind="closed", users=1)
    slow = load_class("/100k", name="slow", arrivals=one, read_bytes_per_second=400_000)
    found = run_probe(load_plan(nginx, part, head, slow)).classes
    assert found["part"].statuses == {"206": 100}
    assert found["part"].bodies is not None
    assert (found["part"].bodies.compared >= 1, found["part"].bodies.differing) == (True, 0)
    assert (found["head"].requests, found["head"].bytes) == (100, 0)
    # A quarter of a second each: at 500 ms and the drain no more than two are measured.
    assert found["slow"].requests <= 3
    other = tmp_path / "other"
    other.write_bytes(b"x" * 102_400)
    wrong = msgspec.structs.replace(paths, files=[str(other)])
    measurement = run_probe(load_plan(nginx, load_class(paths=wrong)))
    assert measurement.classes["c"].errors["hash"] >= 1
    assert any(flag.startswith("hash: c: ") for flag in measurement.flags)


def write_manifest(file: Path, count: int, gap_seconds: float) -> Path:
    lines = [{"schema": "nginx-tune/manifest/1", "requests": count, "paths": "kept"}]
    lines[0]["duration_seconds"] = count * gap_seconds
    for number in range(count):
        line = {"offset_seconds": round(number * gap_seconds, 6), "path": "/1k", "bytes": 1024}
        if number % 2:
            line = {**line, "path": "/100k", "bytes": 102_400, "range": [5, 104]}
        lines.append(line)
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    file.write_bytes(gzip.compress(text) if file.name.endswith(".gz") else text)
    return file


@pytest.mark.needs("nginx", "probe")
def test_a_recorded_stream_is_sent_again(nginx: Nginx, run_cli: RunCli, tmp_path: Path) -> None:
    for name in ("manifest.jsonl", "manifest.jsonl.gz"):
        manifest = write_manifest(tmp_path / name, 200, 0.01)
        recorded = Paths(kind="manifest", manifest=str(manifest))
        replay = load_class(paths=recorded, arrivals=Arrivals(kind="replay", speed=4.0))
        measurement = run_probe(load_plan(nginx, replay, duration_seconds=20.0))
        result = measurement.classes["c"]
        assert (result.intended, result.requests, result.errors) == (200, 200, {}), name
        assert result.statuses == {"200": 100, "206": 100}, name
        # Two recorded seconds in half a second, and what a busy machine adds.
        assert 0.45 < measurement.duration_seconds < 5
        paths = ("--paths-from", manifest, "--rate", "100")
        assert url_class(run_cli, nginx.url("/"), *paths).statuses.keys() == {"200", "206"}, name


@pytest.mark.needs("nginx", "probe")
def test_a_list_of_paths_is_asked_for(nginx: Nginx, run_cli: RunCli, tmp_path: Path) -> None:
    listed = tmp_path / "paths"
    listed.write_text(f"# hot first\n/1k\n\n{nginx.url('/100k')}\n/none\n")
    arguments = ("--paths-from", listed, "--rate", "300", "--status", "200,404")
    assert url_class(run_cli, nginx.url("/"), *arguments).statuses.keys() == {"200", "404"}


@pytest.mark.needs("nginx", "probe")
def test_the_search_finds_the_limit_that_nginx_was_given(
    start_nginx: StartNginx, run_cli: RunCli
) -> None:
    # A limit that hangs on no machine: nginx refuses what is above 100 requests a second, with
    # room for 20 at once.
    nginx = start_nginx(
        http="limit_req_zone $server_addr zone=all:1m rate=100r/s;",
        server="limit_req zone=all burst=20 nodelay;",
    )
    arguments = ("--objective", "p50 <= 1s", "--rate", "40")
    run = run_cli("probe", nginx.url("/1k"), *arguments, *SHORT[:1], *_step("600ms"), "-f", "json")
    assert run.returncode == 0, run.stderr
    capacity = decode(Capacity, run.stdout.encode())
    assert capacity.limited_by == "failures"
    assert capacity.capacity_per_second is not None
    # 600 ms at R a second, less the burst of 20 and the one that is free: R up to 135. A busy
    # machine sends late, in bursts that fill the 20 sooner.
    assert 25 <= capacity.capacity_per_second <= 150
    assert capacity.measurement is not None
    assert capacity.measurement.classes["url"].errors == {}
    assert [step.met for step in capacity.steps].count(True) >= 2


@pytest.mark.needs("nginx", "probe")
def test_a_search_that_ends_at_a_bound_names_no_capacity(nginx: Nginx, run_cli: RunCli) -> None:
    arguments = ("--objective", "p50 <= 5s", "--rate", "50", "--cap", "rate=80", "--allow-live")
    run = run_cli("probe", nginx.url("/1k"), *arguments, *_step("300ms"))
    assert run.returncode == 0, run.stderr
    assert "capacity: at least 80/s with p50 <= 5s" in run.stdout
    assert "the highest rate allowed" in run.stdout
    never = ("--objective", "mean <= 1ns", "--rate", "4", "--allow-live", "-f", "json")
    run = run_cli("probe", nginx.url("/1k"), *never, *_step("20ms"))
    assert run.returncode == 4
    assert run.stderr.startswith("nginx-tune: no capacity found: it does not hold even at 1/s")


def _step(duration: str) -> tuple[str, ...]:
    return ("--duration", duration, "--warmup", "0")


@pytest.mark.needs("root", "ip", "probe")
def test_ports_that_run_out_are_named_or_had_from_other_addresses() -> None:
    # A network of its own, with ten local ports.
    setup = "ip link set lo up && echo 40000 40009 > /proc/sys/net/ipv4/ip_local_port_range"
    script = Path(__file__).with_name("few_ports.py")
    command = ["unshare", "-n", "sh", "-c", f'{setup} && exec "$@"', "sh"]
    run = subprocess.run(
        [*command, sys.executable, script], capture_output=True, check=True, timeout=60
    )
    spread, exhausted = (decode(Measurement, line) for line in run.stdout.splitlines())
    # 127.0.0.1 has ten ports, and so has each other address of 127.0.0.0/8.
    part = spread.classes["c"]
    assert part.errors == {}
    # Not all 40 users need one at once; more than one address has is what matters.
    assert part.connections_opened > 10
    assert spread.generator.source_addresses > 1
    # ::1 is alone, and seven of its ports are held: some of five users go without.
    part = exhausted.classes["c"]
    assert exhausted.generator.source_addresses == 1
    assert part.errors.keys() == {"local_ports"}
    assert part.requests > 0
    [flag] = [flag for flag in exhausted.flags if flag.startswith("local_ports: c: ")]
    assert "none of the 10 local ports free" in flag
    assert "net.ipv4.ip_local_port_range" in flag


@pytest.mark.needs("nginx", "probe")
def test_load_hosts_share_a_load_from_one_moment(nginx: Nginx, run_cli: RunCli) -> None:
    start = str(time.time() + 3)
    arguments = ("--rate", "100", "--start-at", start)
    part = measure(run_cli, nginx.url("/1k"), *arguments, "--stripe", "1/4", *SHORT)
    assert 0 < part.classes["url"].requests < 40
    assert part.generator.start_skew_seconds is not None
    assert 0 <= part.generator.start_skew_seconds < 1
    late = run_cli("probe", nginx.url("/1k"), "--start-at", "2020-01-01T00:00:00Z", *SHORT)
    assert late.returncode == 2
    assert "s ago" in late.stderr


def test_options_that_mean_nothing_are_one_line(run_cli: RunCli) -> None:
    for arguments, words in (
        (["--rate", "fast"], "is not a rate"),
        (["--rate", "0"], "a rate is above 0"),
        (["--keepalive", "sometimes"], "--keepalive 'sometimes'"),
        (["-H", "no colon"], "--header 'no colon'"),
        (["--stripe", "3/3"], "--stripe '3/3'"),
        (["--status", "ok"], "--status 'ok'"),
        (["--start-at", "noon"], "is not a time"),
        (["--start-at", "2026-11-20T19:00:00"], "is not a time"),
        (["--paths-from", "/no/such/list"], "cannot read /no/such/list"),
        (["--paths-from", "/dev/null"], "it has no paths"),
        (["--objective", "p98 < 1"], "unknown metric"),
        (["--objective", "p99 <= 1s", "--rate", "1,2"], "needs one rate"),
        (
            ["--rate", "5", "--connections", "3", "--keepalive", "off"],
            "--keepalive off closes them",
        ),
    ):
        run = run_cli("probe", "http://127.0.0.1:1/nothing", *arguments, "--allow-live")
        assert run.returncode == 2, (arguments, run.stdout)
        assert words in run.stderr, arguments
        assert run.stderr.count("\n") == 1, arguments


def test_words_become_values() -> None:
    assert parse_rate("100") == OfferedRate((100.0,))
    assert parse_rate("1e3, 2.5") == OfferedRate((1000.0, 2.5))
    assert parse_rate("10-20") == OfferedRate((10.0, 20.0), ramp=True)
    assert parse_keepalive("on") == Keepalive()
    assert parse_keepalive("off") == Keepalive(kept=False)
    assert parse_keepalive("100") == Keepalive(requests=100)
    assert parse_keepalive("1/50") == Keepalive(close_probability=0.02)
    assert [parse_bytes(text, "x") for text in ("1", "2K", "3m", "1GiB")] == [
        1, 2048, 3 << 20, 1 << 30,
    ]  # fmt: skip
    assert parse_headers(("A: b:c", "D:")) == {"A": "b:c", "D": ""}
    assert (parse_stripe("2/3").index, parse_stripe("0/3").index) == (2, 0)
    assert parse_statuses("200, 304") == [200, 304]
    assert parse_moment("2026-11-20T19:00:00Z") == parse_moment("2026-11-20T20:00:00+01:00")
    assert parse_moment("12.5") == 12.5


def test_a_load_at_another_rate_keeps_its_shares() -> None:
    rates = [Arrivals(kind="poisson", rate_per_second=rate) for rate in (30.0, 10.0)]
    classes = [load_class("/1k", name=f"c{n}", arrivals=one) for n, one in enumerate(rates)]
    plan = load_plan(Nginx(1, Path("/")), *classes, duration_seconds=1.0)
    faster = plan_at_rate(plan, 400, samples=1300, seed=9)
    assert [c.arrivals.rate_per_second for c in faster.classes] == [300, 100]
    assert faster.duration_seconds == 13
    assert faster.seed == 9
    users = Arrivals(kind="closed", users=3)
    closed = load_plan(Nginx(1, Path("/")), load_class("/1k", arrivals=users))
    with pytest.raises(UsageError, match="needs a class with a rate"):
        plan_at_rate(closed, 10, samples=0, seed=1)
