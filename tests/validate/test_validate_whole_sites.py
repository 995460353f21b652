"""``validate`` on all that a site is: servers beside servers, upstreams, logins, pure proxies."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import RunCli
from twins import twin

from nginx_tune.nginx.binary import find_series
from nginx_tune.nginx.lab.network import make_certificate

SHORT = ("--pairs", "1", "--duration", "700ms", "--warmup", "100ms", "--accept-inconclusive")

pytestmark = pytest.mark.needs("root", "nginx", "probe", "ip")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "site"
    made.mkdir()
    for index in range(4):
        (made / f"f{index}").write_bytes(bytes(20_000))
    return made


def write(root: Path, http: str, name: str = "nginx.conf") -> Path:
    conf = root.parent / name
    conf.write_text(f"user root; worker_processes 2; events {{}} http {{ {http} }}")
    return conf


def validate(
    run_cli: RunCli, conf: Path, *arguments: str | Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The verdict, and what was measured."""
    env = {"XDG_STATE_HOME": str(conf.parent / "state")}
    run = run_cli(
        "-q", "validate", conf, "--against", twin(conf), *SHORT, *arguments, "-f", "json", env=env
    )
    assert run.returncode in {0, 4}, run.stderr
    assert run.stderr == ""
    stored = run_cli("runs", "show", "last", "-f", "json", env=env)
    verdict: dict[str, Any] = json.loads(run.stdout)
    measurements: list[dict[str, Any]] = json.loads(stored.stdout)["result"]["measurements"]
    return verdict, measurements


def assert_served(blocks: list[dict[str, Any]], name: str) -> None:
    """Each answer is what the class expects; on a busy machine one block may be without any."""
    found = [block["classes"][name] for block in blocks]
    assert [one["errors"] for one in found] == [{}] * len(found), name
    assert sum(one["requests"] for one in found) > 0, name


def differences(verdict: dict[str, Any], word: str) -> str:
    """What is said with that word, as one text."""
    return "\n".join(one for one in verdict["environment"]["differences"] if word in one)


UPSTREAMS = r"""
    upstream app {{ server app1.internal:9000; server app2.internal:9000; }}
    server {{
        listen 18081; root {root}; access_log syslog:server=unix:/dev/log,tag=a;
        location /api {{ proxy_pass http://app; }}
        location /usual {{ proxy_pass http://usual.internal:18081; }}
        location /login {{ auth_request /check; mirror /copy; proxy_pass http://app; }}
        location = /check {{ internal; proxy_pass http://198.51.100.9:8000; }}
        location = /copy {{ internal; proxy_pass http://copies.internal:8001; }}
        location /local {{ proxy_pass http://localhost:18077; }}
        location /secure {{ proxy_pass https://secure.internal; }}
        location /late {{
            resolver 192.0.2.53; set $late late.internal; proxy_pass http://$late:8123;
        }}
        location /php {{ fastcgi_pass 127.0.0.1:18078; }}
        location /kept {{ fastcgi_keep_conn on; fastcgi_pass app.internal:9001; }}
        location /scgi {{ scgi_pass 127.0.0.1:18079; }}
        location /py {{ uwsgi_pass unix:/run/app/app.sock; }}
        location /rpc {{ grpc_pass grpc://rpc.internal:9200; }}
        location /cached {{ set $memcached_key $uri; memcached_pass 127.0.0.1:11211; }}
    }}"""
ANSWERED = (
    "api", "usual", "login", "local", "secure", "late", "php", "kept", "scgi", "py", "rpc",
)  # fmt: skip


@pytest.mark.needs("openssl")
def test_stubs_answer_for_the_servers_that_are_asked(run_cli: RunCli, root: Path) -> None:
    """Each location is a class of its own, and its requests come back whole."""
    conf = write(root, UPSTREAMS.format(root=root))
    verdict, blocks = validate(run_cli, conf)
    assert "memcached_pass" in differences(verdict, "no stub speaks")
    assert "/cached: answers 502" in differences(verdict, "not loaded")
    said = differences(verdict, "a stub in the place of")
    for name in ("app1.internal:9000", "198.51.100.9:8000", "unix:/run/app/app.sock", "192.0.2.53"):
        assert name in said
    assert "200 with 2048 bytes" in said
    for name in ANSWERED:
        assert_served(blocks, name)
        # Bytes count when they come, requests when they end: an edge may lie between the two.
        for found in (block["classes"][name] for block in blocks):
            assert abs(found["bytes"] - 2048 * found["requests"]) <= 2 * 2048, name


@pytest.mark.parametrize(
    "path",
    [
        "/run/systemd/journal/dev-log",
        pytest.param("/dev/log", marks=pytest.mark.thorough),
        pytest.param("/run/none/log", marks=pytest.mark.thorough),
    ],
)
def test_a_system_log_at_a_path_takes_what_is_said(run_cli: RunCli, root: Path, path: str) -> None:
    log = root.parent / "logs" / "error.log"
    log.parent.mkdir()
    http = f"access_log syslog:server=unix:{path},tag=a; server {{ listen 18083; root {root}; }}"
    conf = write(root, http)
    conf.write_text(f"error_log {log};\n{conf.read_text()}")
    verdict, blocks = validate(run_cli, conf)
    assert f"syslog unix:{path}" in differences(verdict, "discarded")
    assert [block["server"]["error_lines"] for block in blocks] == [{}] * len(blocks)


@pytest.mark.thorough
def test_several_servers_are_asked_where_they_listen(run_cli: RunCli, root: Path) -> None:
    """By name, by port, by address; a redirect is what it is, and its 301 no failure."""
    other = root.parent / "other"
    other.mkdir()
    (other / "g").write_bytes(bytes(777))
    empty = root.parent / "empty"
    empty.mkdir()
    conf = write(
        root,
        f"add_header X-Http 1; server {{ listen 18081 default_server; root {root}; }}"
        f" server {{ listen 18081; server_name b.example; add_header X-Own 1;"
        f"   root {other}; }}"
        f" server {{ listen 198.51.100.7:18082; server_name c.example; root {other}; }}"
        " server { listen 18083; server_name .d.example;"
        "   return 301 https://d.example$request_uri; }"
        " server { listen 18084; server_name e.example; location /x { return 403; } }"
        f" server {{ listen unix:/run/f.sock; server_name f.example; root {empty}; }}",
    )
    verdict, blocks = validate(run_cli, conf, "--require", "b-example.errors.length == 0")
    asked = differences(verdict, "also loaded")
    for name in ("b-example", "c-example", "d-example"):
        assert name in asked
        assert_served(blocks, name)
    left = differences(verdict, "not loaded")
    assert "e.example /x: answers 403" in left
    assert "f.example: answers 403" in left
    assert blocks[0]["classes"]["c-example"]["bytes"] > 0
    # Each response told its worker, whatever headers its server adds.
    assert differences(verdict, "X-Probe-Worker")
    assert "X-Probe-Worker" not in conf.read_text()
    for block in blocks:
        pids = {str(one["pid"]) for one in block["server"]["workers"]}
        for name in ("cold", "b-example", "d-example"):
            told = block["classes"][name]["workers"]
            assert set(told) <= pids, name
            assert sum(told.values()) == block["classes"][name]["requests"], name


@pytest.mark.needs("openssl")
def test_a_site_that_is_a_proxy_and_speaks_tls(run_cli: RunCli, root: Path) -> None:
    certificate, key = make_certificate(root.parent, names=["a"])
    conf = write(
        root,
        f"ssl_certificate {certificate}; ssl_certificate_key {key};"
        " server { listen 18081; server_name a.example; return 301 https://a.example/; }"
        " server { listen 18443 ssl http2; server_name a.example;"
        "   location / { proxy_pass http://backend.internal; } }",
    )
    verdict, blocks = validate(run_cli, conf)
    assert verdict["primary_metric"].endswith(".mean")
    assert len(blocks[0]["classes"]) == 2
    for name in blocks[0]["classes"]:
        assert_served(blocks, name)


@pytest.mark.needs("openssl")
def test_a_site_is_asked_over_http_2_where_it_speaks_it(run_cli: RunCli, root: Path) -> None:
    made = make_certificate(root.parent, names=["localhost"])
    http2 = (
        f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key};"
        f" server {{ listen 18443 ssl http2; root {root};"
        " location = /memory { return 200 ok; } }"
        " server { listen 18081; server_name other; return 200 other; }"
    )
    conf = write(root, http2)
    _, blocks = validate(run_cli, conf, "--http2")
    for name in ("hot", "cold", "memory", "other"):
        assert_served(blocks, name)
    for block in blocks:
        spoken = {name: item["http2"] is not None for name, item in block["classes"].items()}
        assert spoken == {"hot": True, "cold": True, "memory": True, "other": False}
    without = write(root, http2.replace(" http2", ""))
    refused = run_cli("validate", without, "--against", twin(without), "--pairs", 1, "--http2")
    assert (refused.returncode, "does not offer HTTP/2" in refused.stderr) == (4, True)


@pytest.mark.needs("openssl", "nginx-1.30")
def test_a_site_is_asked_over_http_3_and_over_each_protocol(run_cli: RunCli, root: Path) -> None:
    made = make_certificate(root.parent, names=["localhost"])
    conf = write(
        root,
        f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key};"
        " server { listen 18081; server_name plain; return 200 plain; }"
        f" server {{ listen 18443 ssl; listen 18444 quic reuseport; http2 on; root {root};"
        " location = /memory { return 200 ok; } }",
    )
    newer = find_series("1.30")
    assert newer is not None
    words = ("--http2", "--http3", "--nginx", newer, "--trust", "--duration", "1500ms")
    result, blocks = validate(run_cli, conf, *words)
    assert result["primary_metric"] == "hot-http2.requests_per_second"
    for block in blocks:
        for name, item in block["classes"].items():
            assert (item["http2"] is not None) == name.endswith("-http2")
            assert (item["http3"] is not None) == name.endswith("-http3")
    assert {"hot-http2", "hot-http3", "memory-http3", "plain"} <= set(blocks[0]["classes"])
    for name in blocks[0]["classes"]:
        assert_served(blocks, name)
    silent = write(
        root,
        f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key};"
        f" server {{ listen 18443 ssl; http2 on; root {root}; }}",
    )
    arguments = ("--pairs", 1, "--http3", "--nginx", newer, "--trust")
    refused = run_cli("validate", silent, "--against", twin(silent), *arguments)
    assert (refused.returncode, "does not offer HTTP/3" in refused.stderr) == (4, True)


def test_a_site_writes_and_listens_inside_of_what_it_serves(run_cli: RunCli, root: Path) -> None:
    """A socket of its own is no stub's; a cache and a log among its files take writes."""
    place = root.parent
    (place / "cache").mkdir()
    conf = write(
        root,
        f"proxy_cache_path {place}/cache keys_zone=z:1m use_temp_path=off; access_log {place}/log;"
        f"server {{ listen 18081; root {root}; error_log {root}/error.log;"
        f" location /own {{ proxy_pass http://unix:{place}/own:/; }}"
        f" location /kept {{ proxy_cache z; proxy_cache_valid any 1m; "
        f"proxy_pass http://unix:{place}/own:/kept; }} }}"
        f"server {{ listen unix:{place}/own; return 200 {'x' * 2000}; }}",
    )
    _, blocks = validate(run_cli, conf)
    assert_served(blocks, "own")
    assert_served(blocks, "kept")
    assert sorted(path.name for path in place.iterdir() if path.name != "state") == [
        "cache", "nginx.conf", "site", "twin-of-nginx.conf",
    ]  # fmt: skip


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    "words",
    [
        " ssl proxy_protocol",
        pytest.param("", marks=pytest.mark.thorough),
        pytest.param(" ssl", marks=pytest.mark.thorough),
    ],
)
def test_a_site_listens_on_a_socket_that_the_host_has_in_use(
    run_cli: RunCli, root: Path, words: str
) -> None:
    """As the running nginx of the same configuration has; that one is neither asked nor touched."""
    place = root.parent
    path = place / ("S" * (106 - len(str(place))))  # the longest that a socket can have
    certificate = make_certificate(place, names=["localhost"])
    conf = write(
        root,
        f"ssl_certificate {certificate.certificate}; ssl_certificate_key {certificate.key};"
        " ssl_protocols TLSv1.2; ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;"
        f" server {{ listen unix:{path}{words}; root {root};"
        " location = /memory { return 200 ok; } }"
        f" server {{ listen unix:{place}/other.sock; server_name other; return 200 other; }}",
    )
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(path))
        taken.listen()
        verdict, blocks = validate(run_cli, conf)
        taken.settimeout(0)
        with pytest.raises(BlockingIOError):
            taken.accept()
        assert path.is_socket()
    for name in ("hot", "cold", "memory", "other"):
        assert_served(blocks, name)
    spoken = {variant: [(one["version"], one["cipher"]) for one in sessions]
              for variant, sessions in verdict["environment"]["tls"].items()}  # fmt: skip
    agreed = [("1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")]
    assert spoken == ({"baseline": agreed, "candidate": agreed} if words else {})


@pytest.mark.thorough
def test_shares_of_a_workload_are_rates_of_locations(run_cli: RunCli, root: Path) -> None:
    conf = write(
        root,
        f"server {{ listen 18081; server_name a.example; location / {{ root {root}; }}"
        " location /api { proxy_pass http://app.internal; } }",
    )
    shares = {"/": 0.75, "/api": 0.25}
    workload = {
        "schema": "nginx-tune/workload/1",
        "rate": {"mean_per_second": 400.0},
        "traffic": {
            "locations": [
                {"server": "a.example", "location": name, "file": str(conf), "line": 1,
                 "requests_ratio": share, "bytes_ratio": share}
                for name, share in shares.items()
            ]
        },
    }  # fmt: skip
    file = root.parent / "workload.json"
    file.write_text(json.dumps(workload))
    _, blocks = validate(run_cli, conf, "--workload", file)
    intended = {
        name: sum(block["classes"][name]["intended"] for block in blocks)
        for name in ("site", "a-example-api")
    }
    # A quarter of some 560, with a standard deviation of 1.8 %.
    assert intended["site"] > 0
    share = intended["a-example-api"] / sum(intended.values())
    assert 0.13 < share < 0.37


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.thorough),
        pytest.param(signal.SIGHUP, marks=pytest.mark.thorough),
    ],
)
def test_an_interrupted_run_is_kept_with_its_mark(
    tmp_path: Path, run_cli: RunCli, number: signal.Signals
) -> None:
    """Every block that was whole by then is in it."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "f").write_bytes(bytes(20_000))
    conf = write(site, f"server {{ listen 18081; root {site}; }}")
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    process = subprocess.Popen(
        [sys.executable, "-m", "nginx_tune", "-v", "validate", conf, "--against", twin(conf),
         "--pairs", "20", "--duration", "300ms", "--warmup", "100ms", "-f", "json"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    with contextlib.closing(process.stderr):
        for line in process.stderr:
            if "run 2" in line:
                break
        process.send_signal(number)
        said = process.stderr.read()
    assert process.stdout is not None
    with contextlib.closing(process.stdout):
        verdict = json.loads(process.stdout.read())
    assert process.wait(timeout=60) == 130
    assert "stored as run" in said
    assert verdict["stopped"] == "interrupted"
    assert "interrupted" in run_cli("runs", "list", env=env).stdout
    shown = json.loads(run_cli("runs", "show", "last", "-f", "json", env=env).stdout)
    assert shown["summary"]["interrupted"] is True
    assert len(shown["result"]["measurements"]) >= 2
