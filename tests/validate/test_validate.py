"""``validate`` through the command line: real configurations, real gates."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import RunCli
from unprivileged import let_all_see

from nginx_tune.documents.base import decode
from nginx_tune.documents.verdict import Verdict

CONF = """
user root;  # so that the rights of the shared temporary directory do not matter
events {{ worker_connections 256; }}
{main}
http {{
    access_log off;
    server {{
        listen 8080;
        location / {{ root {root}; {location} }}
        location = /healthz {{ return 200 "ok\\n"; }}
    }}
}}
"""

SHORT = ("--pairs", "1", "--duration", "500ms", "--warmup", "200ms", "--accept-inconclusive")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "www"
    root.mkdir()
    for index in range(4):
        (root / f"f{index}").write_bytes(bytes(20_000))
    let_all_see(tmp_path)
    return root


def write(site: Path, name: str, *, main: str = "", location: str = "") -> Path:
    path = site.parent / name
    path.write_text(CONF.format(root=site, main=main, location=location))
    return path


@pytest.mark.needs("root", "nginx", "probe")
def test_gates_decide_and_what_differs_is_said(run_cli: RunCli, site: Path) -> None:
    plain, pools = write(site, "plain.conf"), write(site, "pools.conf", location="aio threads;")
    result = run_cli(
        "-q", "validate", pools, "--against", plain, *SHORT, "-f", "json",
        "--require", "total.truncated == 0", "--require", "hot.requests_per_second >= 1G",
    )  # fmt: skip
    verdict = decode(Verdict, result.stdout.encode())
    valid = verdict.outcome != "invalid"  # on a busy machine the one pair may be discarded
    assert [gate.passed for gate in verdict.gates] == [valid, False]
    assert result.returncode == (1 if valid else 4)
    assert any("loopback" in line for line in verdict.environment.differences)
    assert verdict.environment.tcp["net.ipv4.tcp_congestion_control"] in {"cubic", "reno"}


@pytest.mark.needs("root", "nginx", "probe")
def test_an_overflowing_pool_is_worse_though_every_status_is_200(
    run_cli: RunCli, site: Path
) -> None:
    plain = write(site, "plain.conf")
    tiny = write(
        site, "tiny.conf", main="thread_pool p threads=1 max_queue=0;", location="aio threads=p;"
    )
    result = run_cli(
        "-q", "validate", tiny, "--against", plain, *SHORT, "-f", "json",
        "--require", "total.truncated == 0", "--require", "server.pool_overflow == 0",
    )  # fmt: skip
    verdict = decode(Verdict, result.stdout.encode())
    assert result.returncode in {1, 4}
    gates = {gate.expression: gate for gate in verdict.gates}
    if verdict.outcome != "invalid":
        assert gates["server.pool_overflow == 0"].passed is False
        assert (gates["server.pool_overflow == 0"].measured or 0) > 0
        assert (gates["total.truncated == 0"].measured or 0) > 0
        assert verdict.outcome == "worse"


@pytest.mark.needs("root", "nginx", "probe")
@pytest.mark.thorough
@pytest.mark.alone  # compares CPU times
def test_a_candidate_that_costs_more_cpu_is_worse_though_clients_hardly_see_it(
    run_cli: RunCli, site: Path
) -> None:
    """Four users who pause 20 ms cannot tell tenths of a millisecond apart; CPU time can."""
    for file in site.iterdir():
        file.write_bytes(b"<a href=x>y</a>\n" * 200)
    costly = (
        "sendfile off; output_buffers 1 512; types { } default_type text/html; "
        "sub_filter_once off; sub_filter abc xyz; sub_filter href hrex; sub_filter uio plm;"
    )
    plain, dear = write(site, "plain.conf"), write(site, "dear.conf", location=costly)
    result = run_cli(
        "-q", "validate", dear, "--against", plain, "--pairs", "8", "--duration", "600ms",
        "--warmup", "200ms", "-f", "json",
    )  # fmt: skip
    verdict = decode(Verdict, result.stdout.encode())
    if verdict.outcome == "invalid":  # on a busy machine pairs may be discarded
        assert result.returncode == 4
        return
    cost = next(one for one in verdict.metrics if one.name == "server.cpu_seconds_per_request")
    assert (cost.ratio or 0) > 1.3, verdict
    assert (verdict.outcome, result.returncode) == ("worse", 1)


@pytest.mark.needs("nginx")
def test_what_nginx_refuses_for_its_structure_is_no_site_without_a_server(
    run_cli: RunCli, site: Path
) -> None:
    plain = write(site, "plain.conf")
    lost = site / "lost.conf"
    for text, said in (
        ("", 'no "events" section'),
        ("# all of it was lost", 'no "events" section'),
        ("http { server { listen 8080; } }", 'no "events" section'),
        ("\ufeffevents {} http {}", "byte order mark"),
    ):
        lost.write_text(text)
        for pair in ((lost, "--against", plain), (plain, "--against", lost)):
            result = run_cli("-q", "validate", *map(str, pair), *SHORT)
            assert (result.returncode, len(result.stderr.splitlines())) == (3, 1), text
            assert f"{lost}:1: " in result.stderr, text
            assert said in result.stderr, text


@pytest.mark.needs("nginx")
def test_bad_input_is_one_line(run_cli: RunCli, site: Path) -> None:
    write(site, "plain.conf")
    write(site, "twin.conf")
    (site.parent / "broken.conf").write_text("http { server {")
    (site.parent / "empty.conf").write_text("events {} http { }")
    for arguments, status, said in (
        ((), 2, "no candidate configuration"),
        (("missing.conf",), 2, "missing.conf: cannot read: No such file"),
        (("plain.conf", "--against", "gone.conf"), 2, "gone.conf: cannot read: No such file"),
        (("plain.conf", "-c", "plain.conf"), 2, "CONF is given twice"),
        (("plain.conf", "--against", "./plain.conf"), 2, "both the candidate and the baseline"),
        (("plain.conf", "--against", "twin.conf", "--speed", "5"), 2, "--speed needs --manifest"),
        (("plain.conf", "--against", "twin.conf", "--duration", "1ms"), 2, "too short"),
        (("plain.conf", "--against", "twin.conf", "--seed", "-1"), 2, "--seed"),
        (("plain.conf", "--against", "twin.conf", "--require", "hot.p98 < 1"), 2, "hot.p98"),
        (("plain.conf", "--against", "twin.conf", "--require", "hot.p99 <"), 2, "hot.p99 <"),
        (("plain.conf", "--against", "twin.conf", "--duration", "soon"), 2, "not a duration"),
        (("plain.conf", "--against", "twin.conf", "--accept-worse", "hot.p98"), 2, "hot.p98"),
        (("plain.conf", "--against", "twin.conf", "--objective", "gone.p99 <= 1s"), 2, "gone"),
        (("plain.conf", "--against", "twin.conf", "--max-time", "soon"), 2, "soon"),
        (("plain.conf", "--against", "twin.conf", "--max-time", "2"), 2, "one pair of runs, 20 s"),
        (
            ("plain.conf", "--against", "twin.conf", "--accept-worse", "hot.requests_per_second"),
            2,
            "hot.requests_per_second is the primary metric",
        ),
        (("broken.conf", "--against", "plain.conf"), 3, "broken.conf"),
        (("empty.conf", "--against", "plain.conf"), 4, "no server"),
    ):
        result = run_cli("-q", "validate", *arguments, cwd=site.parent)
        assert result.returncode == status, (arguments, result.stderr)
        assert said in result.stderr, arguments
        assert len(result.stderr.strip().splitlines()) == 1, arguments


@pytest.mark.thorough
@pytest.mark.needs("userns", "nginx", "probe")
def test_an_ordinary_user_gets_a_verdict_without_the_emulation(site: Path) -> None:
    plain, pools = write(site, "plain.conf"), write(site, "pools.conf", location="aio threads;")
    command = [
        "unshare", "--user", "--map-user=1000", "--map-group=1000",
        sys.executable, "-m", "nginx_tune", "-q",
        "validate", str(pools), "--against", str(plain), *SHORT, "-f", "json",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in result.stderr
    assert result.returncode in {0, 4}, result.stderr
    verdict = json.loads(result.stdout)
    assert any("not run as root" in line for line in verdict["environment"]["differences"])
