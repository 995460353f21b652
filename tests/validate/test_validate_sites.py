"""``validate`` on configurations as they are met: several servers, logs beside the files."""

import json
import os
from pathlib import Path

import pytest
from command_line import RunCli
from twins import twin

SHORT = ("--pairs", "1", "--duration", "300ms", "--warmup", "100ms", "--accept-inconclusive")

pytestmark = pytest.mark.needs("root", "nginx", "probe")

SERVER = "listen 18081; root {root};"
SITES = {
    "named server behind a default one": "events {{}} http {{"
    " server {{ listen 18081; return 403; }}"
    f" server {{{{ server_name www.example.com; {SERVER} }}}} }}}}",
    "error log in the root": "error_log {root}/e.log; events {{}} http {{"
    f" server {{{{ {SERVER} }}}} }}}}",
    "root below the directory of the logs": "error_log {top}/e.log; pid {top}/pid; events {{}}"
    f" http {{{{ access_log {{top}}/a.log; server {{{{ {SERVER} }}}} }}}}",
    "cache in the root": "events {{}} http {{ proxy_cache_path {root}/c keys_zone=z:1m;"
    f" server {{{{ {SERVER} }}}} }}}}",
    "an address of another host": "events {{}} http {{"
    " server {{ listen 198.51.100.7:18081; root {root}; }} }}",
    "an IPv6 address of another host": "events {{}} http {{"
    " server {{ listen [2001:db8::7]:18081; root {root}; }} }}",
    "IPv6 alone": "events {{}} http {{ server {{ listen [::]:18081; root {root}; }} }}",
    "a range of ports": "events {{}} http {{"
    " server {{ listen 127.0.0.1:18081-18083; root {root}; }} }}",
    "upstreams that only the site knows": "events {{}} http {{"
    " upstream app {{ server app1.internal:9000; server app2.internal:9000; }}"
    f" server {{{{ {SERVER} location /api {{{{ proxy_pass http://app; }}}}"
    " location /auth {{ proxy_pass http://auth.internal; }} }} }}",
    "behind a balancer that speaks the PROXY protocol": "events {{}} http {{"
    " server {{ listen 18081 proxy_protocol; root {root}; set_real_ip_from 0.0.0.0/0;"
    " real_ip_header proxy_protocol; allow 127.0.0.1; deny all;"
    " location = /who {{ return 200 $proxy_protocol_addr; }}"
    " location /api {{ if ($proxy_protocol_addr = '') {{ return 500; }} return 200 ok; }} }} }}",
    "the same over IPv6": "events {{}} http {{"
    " server {{ listen [::1]:18081 proxy_protocol; root {root}; }} }}",
    "a unix socket alone": "events {{}} http {{"
    " server {{ listen unix:/run/a/b.sock; root {root}; location = /me {{ return 200 ok; }} }} }}",
    "one beside the files, behind a balancer": "events {{}} http {{"
    " server {{ listen unix:{root}/x.sock proxy_protocol; root {root};"
    " set_real_ip_from unix:; real_ip_header proxy_protocol; allow 127.0.0.1; deny all; }} }}",
    "one in /tmp, and another server's": "events {{}} http {{"
    " server {{ listen unix:/tmp/nt-x.sock; root {root}; }}"
    " server {{ listen unix:{top}/y.sock; server_name y; return 200 y; }} }}",
    "one process": "daemon off; master_process off; events {{}} http {{"
    f" server {{{{ {SERVER} }}}} }}}}",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "a site"
    made.mkdir()
    for index in range(4):
        (made / f"f {index}%41").write_bytes(bytes(20_000))
    return made


LOADED = {
    "error log in the root", "an IPv6 address of another host", "one process",
    "one beside the files, behind a balancer", "upstreams that only the site knows",
}  # fmt: skip
"""By the gate; what the others are asked is seen before any load."""


def write_site(root: Path, name: str) -> Path:
    conf = root.parent / "nginx.conf"
    plain = root.rename(root.parent / "site")
    conf.write_text("user root; " + SITES[name].format(root=plain, top=plain.parent))
    return conf


@pytest.mark.parametrize("name", sorted(SITES.keys() - LOADED))
def test_it_is_asked_and_nothing_is_written(run_cli: RunCli, root: Path, name: str) -> None:
    conf = write_site(root, name)
    other = twin(conf)
    before = sorted(conf.parent.rglob("*"))
    run = run_cli("-q", "validate", conf, "--against", other, "--dry-run")
    assert (run.returncode, run.stderr) == (0, "")
    assert 'source = "hot"' in run.stdout
    assert sorted(conf.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in LOADED else pytest.mark.thorough)
        for name in sorted(SITES)
    ],
)
def test_it_is_loaded_and_nothing_is_written(run_cli: RunCli, root: Path, name: str) -> None:
    conf = write_site(root, name)
    other = twin(conf)
    before = sorted(conf.parent.rglob("*"))
    run = run_cli("-q", "validate", conf, "--against", other, *SHORT, "-f", "json")
    assert run.returncode in {0, 4}, run.stderr
    assert run.stderr == ""
    assert json.loads(run.stdout)["environment"]["differences"]
    assert sorted(conf.parent.rglob("*")) == before


def test_what_cannot_be_loaded_is_said(run_cli: RunCli, root: Path) -> None:
    conf = root.parent / "nginx.conf"
    for listen in ("18081 http2", "unix:x.sock"):
        conf.write_text(f'events {{}} http {{ server {{ listen {listen}; root "{root}"; }} }}')
        run = run_cli("-q", "validate", conf, "--against", twin(conf), *SHORT)
        assert run.returncode == 4, listen
        assert "no server has a reachable HTTP or TLS listener" in run.stderr, listen
        assert len(run.stderr.splitlines()) == 1, listen


def test_names_that_are_no_utf_8(run_cli: RunCli, root: Path) -> None:
    """The overlay for the log makes one of them a mount point too."""
    odd = root.rename(os.fsdecode(os.fsencode(root.parent) + b"/\xff \\ \xc3\xbc"))
    (odd / "\udcfe").write_bytes(bytes(100))
    conf = odd / "\udcff.conf"
    written = os.fsencode(odd).replace(b"\\", b"\\\\")
    conf.write_bytes(
        b'user root; error_log "%s/e.log"; events {} http { server { listen 18081; root "%s"; } }'
        % (written, written)
    )
    run = run_cli("-q", "validate", conf, "--against", twin(conf), *SHORT, "-f", "json")
    assert run.returncode in {0, 4}, run.stderr
    assert run.stderr == ""


def test_the_prefix_is_nginx_s_too(run_cli: RunCli, root: Path) -> None:
    """A relative root and log stand on it."""
    (root.parent / "conf").mkdir()
    conf = root.parent / "conf" / "nginx.conf"
    text = 'user root; error_log e.log; events {} http { server { listen 18081; root "a site"; } }'
    conf.write_text(text)
    arguments = ("-p", ".", conf, "--against", twin(conf), *SHORT, "-f", "json")
    run = run_cli("-q", "validate", *arguments, cwd=root.parent)
    assert run.returncode in {0, 4}, run.stderr
    assert run.stderr == ""
    said = json.loads(run.stdout)["environment"]["differences"]
    assert f"relative paths are below {root.parent}" in said


def test_each_variant_is_asked_where_it_listens_by_its_own_name(
    run_cli: RunCli, root: Path
) -> None:
    """Asked for at the other's port or name they would answer 403."""
    plain = root.rename(root.parent / "site")
    text = (
        "user root; events {{}} http {{ server {{ listen {listen} default_server; return 403; }}"
        " server {{ listen {listen}; server_name {name}; root {root}; }} }}"
    )
    confs = []
    for name, listen in (("old.example", "18081"), ("new.example", "198.51.100.8:18082")):
        confs.append(root.parent / f"{name}.conf")
        confs[-1].write_text(text.format(listen=listen, name=name, root=plain))
    run = run_cli(
        "-q", "validate", confs[1], "--against", confs[0], *SHORT, "--accept-lost", "-f", "json"
    )
    assert run.returncode in {0, 4}, run.stderr
    assert run.stderr == ""
    said = json.loads(run.stdout)["environment"]["differences"]
    assert any("198.51.100.8" in line for line in said)


def manifest(root: Path, paths: str, requests: list[tuple[str, int]]) -> Path:
    lines = [{"schema": "nginx-tune/manifest/1", "requests": len(requests), "paths": paths}]
    lines += [
        {"offset_seconds": 0.005 * number, "path": path, "bytes": size}
        for number, (path, size) in enumerate(requests)
    ]
    file = root.parent / f"{paths}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture
def site(root: Path) -> Path:
    plain = root.rename(root.parent / "site")
    (plain / "a").write_bytes(bytes(700))
    conf = root.parent / "nginx.conf"
    conf.write_text(f"user root; events {{}} http {{ server {{ listen 18081; root {plain}; }} }}")
    return conf


def test_recorded_requests_are_replayed(run_cli: RunCli, site: Path) -> None:
    """The second one is not there: its replies are failures of the class."""
    wanted = manifest(site, "kept", [("/a", 700), ("/gone", 10)] * 30)
    run = run_cli(
        "-q", "validate", site, "--against", twin(site), *SHORT, "--manifest", wanted, "-f", "json",
        "--require", "site.errors.status > 0", "--require", "site.requests > 0",
    )  # fmt: skip
    verdict = json.loads(run.stdout)
    assert run.stderr == ""
    assert verdict["primary_metric"] == "site.mean"
    assert any("manifest" in line for line in verdict["environment"]["differences"])
    if verdict["outcome"] != "invalid":
        assert [gate["passed"] for gate in verdict["gates"]] == [True, True]


def test_a_workload_is_asked_for(run_cli: RunCli, site: Path) -> None:
    file = site.parent / "workload.json"
    file.write_text(
        json.dumps(
            {
                "schema": "nginx-tune/workload/1",
                "kind": "static",
                "rate": {"mean_per_second": 120.0},
                "popularity": {"exponent": 1.0},
            }
        )
    )
    run = run_cli(
        "-q", "validate", site, "--against", twin(site), *SHORT, "--workload", file, "-f", "json",
        "--require", "site.intended > 0",
    )  # fmt: skip
    verdict = json.loads(run.stdout)
    assert run.stderr == ""
    said = verdict["environment"]["differences"]
    assert any("120 requests per second, popularity exponent 1" in line for line in said)
    if verdict["outcome"] != "invalid":
        assert verdict["gates"][0]["passed"]


def test_what_cannot_be_asked_for_is_one_line(run_cli: RunCli, site: Path) -> None:
    hashed = manifest(site, "hashed", [("/0123456789abcdef", 10)])
    for arguments, said in (
        (("--manifest", hashed), "paths are hashed"),
        (("--manifest", site), "not a manifest"),
        (("--manifest", site.parent / "none"), "cannot read"),
        (("--workload", site), "not JSON"),
        (("--manifest", hashed, "--workload", hashed), "exclude each other"),
    ):
        run = run_cli("-q", "validate", site, "--against", twin(site), *arguments)
        assert (run.returncode, len(run.stderr.splitlines())) == (2, 1)
        assert said in run.stderr


def test_a_candidate_that_serves_less_is_worse(run_cli: RunCli, root: Path) -> None:
    site = root.rename(root.parent / "site")
    for name, listen, api, pay, shop in (
        ("old", "18081; listen 18082", "200 ok", "proxy_pass http://192.0.2.9:80", "200 shop"),
        ("new", "18081", "503", "return 500", "421"),
    ):
        (root.parent / f"{name}.conf").write_text(
            f"user root; events {{}} http {{ server {{ listen {listen};"
            f" location / {{ root {site}; }} location /api {{ return {api}; }}"
            f" location /pay {{ {pay}; }} }}"
            f" server {{ listen 18081; server_name shop.test; return {shop}; }} }}"
        )
    paths = (root.parent / "new.conf", "--against", root.parent / "old.conf")
    run = run_cli("-q", "validate", *paths, *SHORT, "-f", "json")
    verdict = json.loads(run.stdout)
    assert (verdict["outcome"], sorted(verdict["lost"])) == (
        "worse",
        [
            "*:18082: the candidate does not listen there",
            "/api: 200 with the baseline, 503 with the candidate",
            "/pay: 200 with the baseline, 500 with the candidate",
            "shop.test: 200 with the baseline, 421 with the candidate",
        ],
    )
    assert run.returncode == 1, run.stderr
    accepted = run_cli("-q", "validate", *paths, *SHORT, "-f", "json", "--accept-lost")
    verdict = json.loads(accepted.stdout)
    assert verdict["lost"] == []
    # On a busy machine the one pair may be discarded.
    assert verdict["outcome"] != "worse"
    assert accepted.returncode == (4 if verdict["outcome"] == "invalid" else 0), accepted.stderr
