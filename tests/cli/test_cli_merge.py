"""``nginx-tune merge`` as a user calls it: files in, one measurement out."""

import json
from pathlib import Path

import msgspec
import pytest
from command_line import RunCli

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.loadplan import Stripe
from nginx_tune.documents.measurement import Measurement

SEEN = Path(__file__).parent.parent / "proof" / "data" / "probe-measurement.json"


@pytest.fixture
def hosts(tmp_path: Path) -> list[Path]:
    """A measurement of the load probe, as each of two load hosts would have it."""
    seen = decode(Measurement, SEEN.read_bytes())
    files = [tmp_path / f"host{index}.json" for index in range(2)]
    for index, file in enumerate(files):
        stripe = Stripe(index=index, count=2)
        file.write_bytes(encode(msgspec.structs.replace(seen, stripe=stripe)))
    return files


def test_two_hosts_become_one_measurement(run_cli: RunCli, hosts: list[Path]) -> None:
    run = run_cli("merge", *hosts, "-f", "json")
    assert run.returncode == 0, run.stderr
    merged = json.loads(run.stdout)
    before = json.loads(hosts[0].read_text())["classes"]["hot"]
    hot = merged["classes"]["hot"]
    assert hot["requests"] == 2 * before["requests"]
    assert hot["response_seconds"]["count"] == 2 * before["response_seconds"]["count"]
    # Twice the same samples: the same quantiles.
    assert hot["response_seconds"]["p99"] == pytest.approx(before["response_seconds"]["p99"])
    assert [agent["stripe"]["index"] for agent in merged["agents"]] == [0, 1]


def test_histograms_stand_below_the_report(run_cli: RunCli, hosts: list[Path]) -> None:
    """Of one host as of two: the same shape, twice the counts."""
    one = run_cli("merge", hosts[0], "--histogram", "hot.ttfb")
    assert one.returncode == 4, "half of the load"
    both = run_cli("merge", *hosts, "--histogram", "hot.ttfb")
    first, second = (run.stdout.partition("\nhot.ttfb\n")[2] for run in (one, both))
    assert counts(first)
    assert [2 * count for count in counts(first)] == counts(second)
    assert "|█" not in run_cli("merge", *hosts).stdout
    refused = run_cli("merge", *hosts, "--histogram", "hot.p99")
    assert refused.returncode == 2
    assert "no latency 'hot.p99'" in refused.stderr


def counts(text: str) -> list[int]:
    """Those behind the bars of a histogram."""
    rows = [line.rpartition("|")[2] for line in text.splitlines() if line.count("|") > 1]
    return [int(row.replace(",", "")) for row in rows]


def test_a_lost_stripe_is_written_and_status_4(run_cli: RunCli, hosts: list[Path]) -> None:
    run = run_cli("merge", hosts[1], "-f", "json")
    assert run.returncode == 4
    assert "part of the load is lost: of seed 1, stripes 0 of 2 are missing" in run.stderr
    merged = json.loads(run.stdout)
    assert merged["classes"]["hot"]["requests"] > 0, "what was measured is not lost too"
    assert any(flag.startswith("agents_missing: ") for flag in merged["flags"])


def test_the_same_file_twice_is_one_line_and_status_2(run_cli: RunCli, hosts: list[Path]) -> None:
    run = run_cli("merge", hosts[0], hosts[0])
    assert run.returncode == 2
    assert "have the same arrivals" in run.stderr
    assert run.stderr.count("\n") == 1
    assert run.stdout == ""
