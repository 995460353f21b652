"""What a site does beside its kind: written where it is asked for or seen, and for no other."""

import contextlib
import http.client
import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command_line
import msgspec
import pytest
from made_decisions import decide
from nginx_versions import Nginx, every_version, find_nginx
from real_nginx import check
from rows import each_row
from situations import GIBIBYTE, host, load, nginx, site
from started import serving

from nginx_tune.change.generate.features import beside
from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site, SiteTls, Upstream
from nginx_tune.documents.workload import (
    Concurrency,
    ConnectionReuse,
    Kind,
    ObjectSizes,
    Rate,
    Traffic,
    Workload,
)
from nginx_tune.errors import UsageError

ADDRESSES = [Upstream(name="app", servers=["10.0.0.1:80", "10.0.0.2:80", "unix:/run/app.sock"])]


def written(
    given: Site, kind: Kind = "proxy", facts: Facts | None = None, workload: Workload | None = None
) -> str:
    facts, workload = facts or host(), workload or Workload(kind=kind)
    complete = complete_site(given, facts, kind, workload)
    return emit_decided(
        decide(facts, workload, site=complete),
        complete,
        beside=beside(complete, kind, facts, workload),
    )


def lines(text: str) -> list[str]:
    return [line.partition("  #")[0].strip() for line in text.splitlines()]


def asked(*features: str, **parts: Any) -> Site:
    return site(**{"upstreams": ADDRESSES, "features": list(features), **parts})


@each_row(
    ("features", "kind", "wanted"),
    [
        (["uploads=2G"], "proxy", ["client_max_body_size 2g;"]),
        (["uploads=64m:/data/tmp"], "static", ["client_body_temp_path /data/tmp 1 2;"]),
        (
            ["websocket=/ws/"],
            "proxy",
            [
                "map $http_upgrade $connection_upgrade {",
                "location /ws/ {",
                "proxy_set_header Upgrade $http_upgrade;",
                "proxy_set_header Connection $connection_upgrade;",
                "proxy_read_timeout 3600s;",
                "worker_shutdown_timeout 10m;",
            ],
        ),
        (
            ["tls-origin=app.example.com", "origin-ca=/etc/ca.pem"],
            "cache",
            [
                "proxy_pass https://app;",
                "proxy_ssl_server_name on;",
                "proxy_ssl_name app.example.com;",
                "proxy_ssl_verify on;",
                "proxy_ssl_trusted_certificate /etc/ca.pem;",
            ],
        ),
        (
            ["php=127.0.0.1:9000"],
            "static",
            [
                "try_files $uri =404;",
                "fastcgi_pass 127.0.0.1:9000;",
                "try_files $uri $uri/ /index.php$is_args$args;",
                "location ~* /(?:uploads?|files|storage)/.*\\.ph(?:p\\d?|t|tml|ar)(?:/|$) {",
            ],
        ),
    ],
)
def test_a_feature_is_its_lines_and_only_where_it_is_asked_for(
    features: list[str], kind: Kind, wanted: list[str]
) -> None:
    with_it, without = written(asked(*features), kind), written(asked(), kind)
    assert not set(wanted) - set(lines(with_it)), with_it
    assert not set(wanted) & set(lines(without)), without


@each_row(
    ("features", "kind", "said"),
    [
        (["upload=1G"], "proxy", "is unknown"),
        (["uploads"], "proxy", "uploads=SIZE"),
        (["uploads=1T"], "proxy", "not a size"),
        (["uploads=1G:../etc"], "proxy", "not a size"),
        (["websocket=/a;b"], "proxy", "not a prefix"),
        (["tls-origin=a b"], "proxy", "not a host name"),
        (["tls-origin"], "proxy", "needs the name"),
        (["php"], "proxy", "needs kind static"),
        (["websocket"], "static", "needs kind proxy or cache"),
        (["gzip-static=1"], "static", "write it as gzip-static"),
        (["php", "php"], "static", "given twice"),
        (["resolver=$host"], "proxy", "not an address"),
    ],
)
def test_a_feature_that_cannot_be_is_refused(features: list[str], kind: Kind, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        beside(asked(*features), kind, host(), None)


def long_held(**other: Any) -> Workload:
    return msgspec.structs.replace(
        Workload(kind="proxy", kind_provenance="declared"),
        **{
            "rate": Rate(peak_per_second=100, provenance="learnt"),
            "sizes": ObjectSizes(mean_bytes=2048, provenance="learnt"),
            "concurrency": Concurrency(peak=9000, provenance="learnt"),
            "connection_reuse": ConnectionReuse(requests_per_connection=1, provenance="learnt"),
            **other,
        },
    )


@each_row(
    ("workload", "given", "is_seen"),
    [
        (long_held(), asked(), True),
        (Workload(kind="proxy", traffic=Traffic(statuses={"101": 0.4})), asked(), True),
        (long_held(concurrency=Concurrency(peak=900, provenance="learnt")), asked(), False),
        (long_held(concurrency=Concurrency(peak=9000)), asked(), False),
        (long_held(sizes=ObjectSizes(mean_bytes=1 << 20, provenance="learnt")), asked(), False),
        (long_held(), asked(streams=["/events/"]), False),
    ],
)
def test_websockets_are_seen_by_how_long_requests_last(
    workload: Workload, given: Site, *, is_seen: bool
) -> None:
    assert ("$connection_upgrade" in written(given, workload=workload)) is is_seen


def test_prompts_of_a_language_model_have_room() -> None:
    text = written(asked(streams=["/v1/chat/completions", "/events/"]), workload=long_held())
    model, events = text.partition("location /v1/chat/completions {")[2].split("location /events/")
    assert "client_max_body_size 32m;" in model
    assert "client_max_body_size" not in events


@each_row(
    ("servers", "version", "features", "resolves"),
    [
        (["a.default.svc.cluster.local:80"], "1.27.5", [], True),
        (["a.example.com:80"], "1.27.5", ["resolver=10.0.0.53"], True),
        (["a.example.com:80"], "1.27.5", [], False),
        (["a.example.com:80"], "1.27.2", ["resolver=10.0.0.53"], False),
        (["10.0.0.1:80"], "1.27.5", ["resolver=10.0.0.53"], False),
    ],
)
def test_names_are_looked_up_again_where_the_version_can(
    servers: list[str], version: str, features: list[str], *, resolves: bool
) -> None:
    given = asked(*features, upstreams=[Upstream(name="app", servers=servers)])
    text = written(given, facts=host(nginx=nginx(version), cpus=1))
    assert (f"server {servers[0]} resolve;" in text) is resolves
    assert ("\n    resolver " in text) is resolves
    assert not resolves or "zone upstream_app" in text


def test_retries_and_timeouts_are_bounded_for_every_proxy() -> None:
    many = [Upstream(name=f"g{n}", servers=[f"10.0.{n}.{m}" for m in range(20)]) for n in range(3)]
    text = written(asked(upstreams=many))
    for line in ("proxy_next_upstream_tries 2;", "proxy_next_upstream_timeout 10s;"):
        assert line in text
    assert text.count("keepalive 16;") == len(many)
    assert "proxy_connect_timeout 5s;" in written(
        asked(upstreams=[Upstream(name="a", servers=["10.0.0.1"])])
    )
    assert "proxy_next_upstream" not in written(asked(), "static")


def traffic(rate: float, size: int = 4096) -> Workload:
    return Workload(
        kind="proxy",
        kind_provenance="declared",
        rate=Rate(peak_per_second=rate, provenance="learnt"),
        sizes=ObjectSizes(mean_bytes=size, provenance="learnt"),
    )


@each_row(("rate", "is_on"), [(10_000.0, True), (400_000.0, False)])
def test_compression_keeps_to_a_tenth_of_the_cpus(rate: float, *, is_on: bool) -> None:
    text = written(asked(), facts=host(cpus=128), workload=traffic(rate))
    assert ("gzip on;" in text) is is_on
    assert ("of the CPUs at the peak" in text) is is_on
    site = complete_site(asked(), host(cpus=128), "proxy", traffic(rate))
    decisions = decide(host(cpus=128), traffic(rate), site=site).decisions
    summary = next(one.summary for one in decisions if one.id == "gzip")
    assert ("at the peak it would take 27.3 of 128 CPUs" in summary) is not is_on


def test_a_configuration_that_stands_gets_no_guessed_lines() -> None:
    tree = parse_text(
        "http { upstream a { server b; } server { location / { proxy_pass http://a; } } }"
    )
    complete = complete_site(asked(), host(), "proxy")
    decisions = decide(host(), Workload(kind="proxy"), site=complete)
    held = {one.id: one.settings for one in as_changes(decisions, tree).decisions}
    assert (held["gzip"], held["upstream-keepalive"]) == ([], [])
    own = {one.id: one.settings for one in decisions.decisions}
    assert own["gzip"]
    assert own["upstream-keepalive"]


def test_what_an_origin_has_compressed_comes_through() -> None:
    text = written(asked("compressed-origin"), "cache")
    assert "gzip on;" not in text
    assert "$http_accept_encoding;" not in text, "each spelling would be an entry of its own"
    assert "proxy_set_header Accept-Encoding $encoding;" in text
    assert '"zstd, br, gzip";' in text
    dear = traffic(400_000)
    gzip = written(asked(), "cache", host(cpus=8), msgspec.structs.replace(dear, kind="cache"))
    assert "proxy_set_header Accept-Encoding $encoding;" in gzip
    assert "zstd" not in gzip, "one entry of a page for next to all clients"
    assert 'proxy_set_header Accept-Encoding "";' in written(asked(), "cache")


@each_row("log", ["syslog:server=10.0.0.5:514,facility=local7,tag=nginx", "/dev/stdout"])
def test_a_log_that_is_no_file_is_kept_as_it_is(log: str) -> None:
    text = written(asked(access_log=log))
    assert f"access_log {log} nginx_tune;" in text


def test_a_log_cannot_say_more_than_its_words() -> None:
    with pytest.raises(UsageError):
        written(asked(access_log="syslog:server=a;daemon off"))


def test_the_command_line_and_the_site_say_the_same(
    tmp_path: Path, run_cli: Callable[..., command_line.Run]
) -> None:
    (tmp_path / "facts.json").write_bytes(encode(host()))
    common = ["generate", "--kind", "proxy", "--facts", str(tmp_path / "facts.json")]
    (tmp_path / "with.toml").write_text('[site]\nfeatures = ["uploads=1G", "websocket"]\n')
    named = run_cli(*common, "--with", "uploads=1G", "--with", "websocket")
    listed = run_cli(*common, "--site", str(tmp_path / "with.toml"))
    assert "--with uploads=1G --with websocket" in named.stdout
    bodies = [one.stdout.partition("\nworker_")[2] for one in (named, listed)]
    assert bodies[0] == bodies[1] != ""
    assert "client_max_body_size 1g;" in bodies[0]


def startable(folder: Path, given: Site, kind: Kind) -> str:
    """A generated configuration that runs in the foreground, one worker of root's."""
    facts, workload = host(), load(kind, peak=10)
    complete = complete_site(given, facts, kind, workload)
    forced = [
        Setting(context=where, directive=name, args=[value])
        for where, name, value in (
            ("main", "daemon", "off"), ("main", "pid", f"{folder}/pid"), ("main", "user", "root"),
            ("main", "worker_processes", "1"), ("main", "worker_rlimit_nofile", "4096"),
            ("main", "error_log", f"{folder}/error.log"), ("events", "worker_connections", "512"),
        )
    ]  # fmt: skip
    decisions = decide(facts, workload, site=complete)
    added = beside(complete, kind, facts, workload)
    return emit_decided(decisions, complete, forced=forced, beside=added)


def answer(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(client):
        client.request("GET", path, headers=headers)
        with client.getresponse() as response:
            return response.status, response.read()


@pytest.mark.needs("nginx", "root")
def test_php_runs_scripts_and_nothing_that_visitors_brought(tmp_path: Path, free_port: int) -> None:
    """502 is what would go to PHP-FPM, which is not there."""
    for name in ("index.php", "photo.jpg", "wp-content/uploads/shell.php", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("<?php")
    given = site(
        listen=[f"127.0.0.1:{free_port}"], roots=[str(tmp_path)], access_log="off",
        features=["php=unix:/nowhere.sock"],
    )  # fmt: skip
    conf = tmp_path / "nginx.conf"
    conf.write_text(startable(tmp_path, given, "static"))
    wanted = {
        "/index.php": 502,
        "/a-page-of-the-blog": 502,
        "/photo.jpg": 200,
        "/photo.jpg/x.php": 404,
        "/none.php": 404,
        "/wp-content/uploads/shell.php": 403,
        "/wp-content/uploads/shell.php/x": 403,
        "/.git/config": 403,
    }
    with serving(["nginx", "-c", str(conf)], free_port):
        assert {path: answer(free_port, path)[0] for path in wanted} == wanted


@pytest.mark.needs("nginx", "root")
def test_clients_are_told_apart_by_what_they_read(tmp_path: Path, free_port: int) -> None:
    """The server gets one spelling for each kind of client; an upgrade is passed on as one."""
    given = site(
        listen=[f"127.0.0.1:{free_port}"], access_log="off", cache_dirs=[f"{tmp_path}/cache"],
        upstreams=[Upstream(name="app", servers=[f"unix:{tmp_path}/app"])],
        features=["compressed-origin", "websocket"],
    )  # fmt: skip
    text = startable(tmp_path, given, "cache")
    stub = f"""server {{ listen unix:{tmp_path}/app; location / {{
        add_header Cache-Control no-store;
        return 200 "$http_accept_encoding|$http_connection|$http_upgrade"; }} }}"""
    conf = tmp_path / "nginx.conf"
    conf.write_text(text.replace("\n    server {", f"\n    {stub}\n    server {{", 1))
    asked_for = {
        "gzip, deflate, br, zstd": b"zstd, br, gzip||",
        "gzip, deflate, br": b"br, gzip||",
        "br;q=0, GZIP": b"gzip||",
        "identity": b"||",
    }
    with serving(["nginx", "-c", str(conf)], free_port):
        for said, wanted in asked_for.items():
            assert answer(free_port, "/", **{"Accept-Encoding": said}) == (200, wanted), said
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Accept-Encoding": "br"}
        assert answer(free_port, "/ws", **upgrade) == (200, b"|upgrade|websocket")


EVERY = {
    "proxy": ["uploads=1G:{}/tmp", "websocket=/ws/", "tls-origin=app.example.com",
              "resolver=127.0.0.1", "gzip-static"],
    "cache": ["compressed-origin", "websocket", "tls-origin=app.example.com"],
    "static": ["php", "uploads=64m", "gzip-static"],
    "media": ["php=unix:/run/php.sock", "uploads=1g:{}/tmp"],
}  # fmt: skip
"""Features by kind; every combination of them is tried."""


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Nginx:
    return find_nginx(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("features")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=www.example.com", "-days", "2",
         "-keyout", path / "key.pem", "-out", path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


@pytest.mark.long
@pytest.mark.needs("nginx", "root")
@pytest.mark.parametrize("program", every_version.mark.args[1], indirect=True)
def test_every_combination_is_accepted_and_faultless(
    program: Nginx, folder: Path, run_cli: Callable[..., command_line.Run]
) -> None:
    """By the ``nginx -t`` of each version, and by our own audit."""
    flags = [one for one in program.build.split() if one.startswith("--")]
    facts = host(nginx=nginx(program.version, flags), memory_bytes=4 * GIBIBYTE)
    (folder / "facts.json").write_bytes(encode(facts))
    tls = SiteTls(certificate=f"{folder}/cert.pem", certificate_key=f"{folder}/key.pem")
    conf = folder / "nginx.conf"
    for kind, features in EVERY.items():
        picks = itertools.product((False, True), repeat=len(features))
        for number, pick in enumerate(picks):
            chosen = [
                one.format(folder) for one, is_in in zip(features, pick, strict=True) if is_in
            ]
            if any(one.startswith("tls-origin") for one in chosen):
                chosen.append(f"origin-ca={folder}/cert.pem")
            given = site(
                listen=["127.0.0.1:18443"],
                roots=[str(folder)],
                cache_dirs=[f"{folder}/cache"],
                upstreams=[Upstream(name="app", servers=["127.0.0.1:81", "127.0.0.2"])],
                tls=tls if number % 2 else None,
                streams=["/v1/messages"] if kind == "proxy" else [],
                error_log=f"{folder}/error.log",
                access_log=f"{folder}/access.log",
                features=chosen,
            )  # fmt: skip
            text = written(given, kind, facts, load(kind, peak=50))  # type: ignore[arg-type]
            conf.write_text(f"pid {folder}/pid;\n{text}", encoding="utf-8")
            said = check(str(conf), program.program)
            assert said.returncode == 0, (kind, chosen, said.stderr)
            assert "[warn]" not in said.stderr, (kind, chosen, said.stderr)
            if number in (0, 2 ** len(features) - 1):
                found = run_cli(
                    "audit", str(conf), "--facts", str(folder / "facts.json"),
                    "--fail-on", "advice",
                    "--ignore", "vr-known-vulnerability,ls-reuseport-candidate",
                )  # fmt: skip
                assert found.returncode == 0, (kind, chosen, found.stdout)
