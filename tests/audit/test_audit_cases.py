"""What the rules say about whole configurations on whole hosts: right findings, no false ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.engine import audit, reaches
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import GIB, linux
from nginx_tune.conf.tree import parse_text, read_tree
from nginx_tune.documents.facts import (
    Cpu,
    Dataset,
    ErrorLog,
    Facts,
    Kernel,
    Memory,
    Nginx,
    PathStorage,
    Residency,
    Storage,
)
from nginx_tune.documents.findings import Findings
from nginx_tune.host.live import LiveHost

PLAIN = "events {} http { sendfile on; server { listen 80; location / { root /srv/media; %s } } }"
COLD = linux(datasets={"/srv/media": (256, 0.1)})
WARM = linux(datasets={"/srv/media": (3, 1.0)})


THESE = tuple(
    rule
    for rule in ALL
    if rule.id
    in {
        "io-chunk-unlimited",
        "io-no-pool-cold-dataset",
        "io-pool-cached-dataset",
        "io-pool-literal-unknown",
        "io-pool-overflow-seen",
        "io-pool-single-many-disks",
        "io-pool-var-unresolved",
        "io-threads-not-built",
        "ls-reuseport-blocking",
        "ls-reuseport-candidate",
    }
)
"""What the cases are about: thread pools and the queues of blocked workers."""


def _audit(conf: str, facts: Facts | None) -> Findings:
    return audit(parse_text(conf), facts, THESE)


def _rules(found: Findings) -> list[str]:
    return [one.rule for one in found.findings]


def _dataset(path: str, gib: int, **more: Any) -> Facts:
    return replace(linux(), datasets=[Dataset(path=path, files=9, bytes=gib * GIB, **more)])


THREE_DISKS = """
error_log /var/log/nginx/error.log;
thread_pool pool_1 threads=16;
thread_pool pool_2 threads=16;
thread_pool pool_3 threads=16;
events {}
http {
    proxy_cache_path /mnt/disk1 levels=1:2 keys_zone=cache_1:256m max_size=1024G use_temp_path=off;
    proxy_cache_path /mnt/disk2 levels=1:2 keys_zone=cache_2:256m max_size=1024G use_temp_path=off;
    proxy_cache_path /mnt/disk3 levels=1:2 keys_zone=cache_3:256m max_size=1024G use_temp_path=off;
    split_clients $request_uri $disk { 33.3% 1; 33.3% 2; * 3; }
    sendfile on;
    server {
        listen 80;
        location / {
            proxy_pass http://127.0.0.1:9000;
            proxy_cache_key $request_uri;
            proxy_cache cache_$disk;
            aio threads=pool_$disk;
        }
    }
}
"""
THREE_DISKS_HOST = replace(
    linux(
        datasets={f"/mnt/disk{n}": (900, 0.02) for n in (1, 2, 3)},
        disks={f"/mnt/disk{n}": (f"sd{n}", "hdd") for n in (1, 2, 3)},
    ),
    error_logs=[ErrorLog(path="/var/log/nginx/error.log")],
)

CASES: dict[str, tuple[str, Facts | None, list[str]]] = {
    "a plain configuration over a cold dataset": (PLAIN % "", COLD, ["io-no-pool-cold-dataset"]),
    "the same over one that fits": (PLAIN % "", WARM, []),
    "pools over a cold dataset": (PLAIN % "aio threads;", COLD, []),
    "pools over a cached one": (PLAIN % "aio threads;", WARM, ["io-pool-cached-dataset"]),
    "the source's caching proxy on three disks": (THREE_DISKS, THREE_DISKS_HOST, []),
    "the same without aio": (
        THREE_DISKS.replace("aio threads=pool_$disk;", ""),
        THREE_DISKS_HOST,
        ["io-no-pool-cold-dataset"] * 3,
    ),
    "the same with one pool for all": (
        THREE_DISKS.replace("pool_$disk", "pool_1"),
        THREE_DISKS_HOST,
        ["io-pool-single-many-disks"],
    ),
    "the same with a pool missing": (
        THREE_DISKS.replace("thread_pool pool_3 threads=16;", ""),
        THREE_DISKS_HOST,
        ["io-pool-var-unresolved"],
    ),
    "FreeBSD reads asynchronously": (
        PLAIN % "",
        replace(COLD, kernel=Kernel(system="FreeBSD")),
        [],
    ),
    "large files go through a location with a pool": (
        (
            "events {} http { server { root /srv/media; location / { }"
            " location ~ \\.mp4$ { aio threads; } } }"
        ),
        COLD,
        [],
    ),
    "the default pool needs no declaration": (PLAIN % "aio threads=default;", COLD, []),
    "a variable does not declare the default pool": (
        (
            "events {} http { map $uri $p { default default; } server { location / {"
            " root /srv/media; aio threads=$p; } } }"
        ),
        COLD,
        ["io-pool-var-unresolved"],
    ),
    "a constant line elsewhere declares it": (
        (
            "events {} http { map $uri $p { default default; } server { location / {"
            " root /srv/media; aio threads=$p; } location /x { aio threads; return 204; } } }"
        ),
        COLD,
        [],
    ),
    "a map that names every value needs no default": (
        (
            "thread_pool a threads=1; thread_pool b threads=1; events {} http {"
            " split_clients $uri $d { 50% 1; * 2; } map $d $p { 1 a; 2 b; }"
            " server { location / { root /srv/media; aio threads=$p; } } }"
        ),
        COLD,
        [],
    ),
    "a map without default gives an empty name": (
        (
            "thread_pool a threads=1; events {} http { map $host $p { x a; }"
            " server { location / { root /srv/media; aio threads=$p; } } }"
        ),
        COLD,
        ["io-pool-var-unresolved"],
    ),
    "a pool that a request chooses is not judged": (
        (
            "thread_pool a threads=1; events {} http { server { location / {"
            " root /srv/media; aio threads=$arg_pool; } } }"
        ),
        COLD,
        [],
    ),
    "aio in another server's set is not ours": (
        (
            "thread_pool a threads=1; events {} http { server { set $p a; location / {"
            " root /srv/media; aio threads=$p; } } server { set $p b; return 204; } }"
        ),
        COLD,
        [],
    ),
    "the pool also takes writes": (PLAIN % "aio threads; aio_write on;", WARM, []),
    "native aio is another matter": (PLAIN % "aio on; directio 4m;", COLD, []),
    "a lower bound is enough for cold": (
        PLAIN % "",
        _dataset("/srv/media", 200, complete=False),
        ["io-no-pool-cold-dataset"],
    ),
    "a part of the root is enough for cold": (
        PLAIN % "",
        _dataset("/srv/media/films", 200),
        ["io-no-pool-cold-dataset"],
    ),
    "a small tree around the root is enough for not cold": (PLAIN % "", _dataset("/srv", 30), []),
    "datasets share one page cache": (
        (
            "events {} http { server { location /a/ { alias /a/; } location /b/ { alias /b/; }"
            " location /c/ { alias /c/; } } }"
        ),
        linux(datasets={"/a": (50, 0.3), "/b": (50, 0.3), "/c": (1, 1.0)}),
        ["io-no-pool-cold-dataset"] * 2,
    ),
    "memory is no disk": (
        PLAIN % "",
        replace(
            COLD,
            storage=Storage(paths=[PathStorage(path="/srv/media", filesystem="tmpfs")]),
        ),
        [],
    ),
    "a proxy reads no files": (
        "events {} http { server { root /srv/media; location / { proxy_pass http://b; } } }",
        COLD,
        [],
    ),
    "an explicit zero is unlimited in any version": (
        (PLAIN % "").replace("server {", "sendfile_max_chunk 0; server {"),
        WARM,
        ["io-chunk-unlimited"],
    ),
    "a limited chunk in an old version": (
        (PLAIN % "").replace("server {", "sendfile_max_chunk 512k; server {"),
        replace(WARM, nginx=Nginx(version="1.18.0", nginx_version="1.18.0")),
        [],
    ),
    "reuseport over a cold dataset": (
        (PLAIN % "").replace("80;", "80 reuseport;"),
        COLD,
        ["ls-reuseport-blocking", "io-no-pool-cold-dataset"],
    ),
    "reuseport set by another server of the address": (
        (PLAIN % "").replace("server {", "server { listen 80 reuseport; return 204; } server {"),
        COLD,
        ["ls-reuseport-blocking", "io-no-pool-cold-dataset"],
    ),
    "QUIC needs reuseport": (
        (PLAIN % "").replace("80;", "443 quic reuseport;"),
        COLD,
        ["io-no-pool-cold-dataset"],
    ),
    "shared listeners take turns since 1.21.6": (
        "worker_processes auto; " + PLAIN % "aio threads;",
        replace(COLD, cpu=Cpu(effective=64.0)),
        [],
    ),
    "few CPUs need no queue each": (
        "worker_processes auto; " + PLAIN % "aio threads;",
        linux(datasets={"/srv/media": (256, 0.1)}, cpus=4, version="1.21.5"),
        [],
    ),
    "overflow of another log than the main one": (
        "error_log /main.log; " + PLAIN % "aio threads;",
        replace(
            COLD,
            error_logs=[
                ErrorLog(path="/main.log"),
                ErrorLog(path="/other.log", pool_overflow={"default": 9}),
            ],
        ),
        [],
    ),
}


@each_row("name", CASES)
def test_findings(name: str) -> None:
    conf, facts, expected = CASES[name]
    assert _rules(_audit(conf, facts)) == expected


def test_following_the_advice_ends_it_and_does_not_turn_it_round() -> None:
    """Both ways between aio off and aio threads, over sizes around the thresholds."""
    for gib in (1, 20, 39, 40, 41, 60, 79, 80, 81, 200):
        for resident in (0.0, 0.5, 0.985, 0.995, 1.0):
            facts = linux(datasets={"/srv/media": (gib, resident)})
            off, on = (
                _rules(_audit(PLAIN % "", facts)),
                _rules(_audit(PLAIN % "aio threads;", facts)),
            )
            assert not (off and on), (gib, resident)


NEEDS: dict[str, tuple[str, Facts | None, str, str]] = {
    "no facts at all": (PLAIN % "", None, "io-no-pool-cold-dataset", "datasets[/srv/media].bytes"),
    "no dataset": (PLAIN % "", linux(), "io-no-pool-cold-dataset", "datasets[/srv/media].bytes"),
    "no system": (
        PLAIN % "",
        replace(COLD, kernel=Kernel()),
        "io-no-pool-cold-dataset",
        "kernel.system",
    ),
    "no memory": (
        PLAIN % "",
        replace(COLD, memory=Memory()),
        "io-no-pool-cold-dataset",
        "memory.page_cache_limit_bytes",
    ),
    "a scan that was not finished": (
        PLAIN % "",
        _dataset("/srv/media", 70, complete=False),
        "io-no-pool-cold-dataset",
        "datasets[/srv/media].bytes",
    ),
    "a large tree around a location": (
        "events {} http { server { location /m/ { root /srv; } } }",
        _dataset("/srv", 200),
        "io-no-pool-cold-dataset",
        "datasets[/srv/m].bytes",
    ),
    "residency that is not to be trusted": (
        PLAIN % "aio threads;",
        _dataset("/srv/media", 3, residency=Residency(ratio=1.0, method="mincore")),
        "io-pool-cached-dataset",
        "datasets[/srv/media].residency",
    ),
    "a build that is not known": (
        PLAIN % "aio threads;",
        replace(COLD, nginx=Nginx()),
        "io-threads-not-built",
        "nginx.flags",
    ),
    "disks that are not known": (
        (
            "events {} http { aio threads; server { location /a/ { alias /a/; }"
            " location /b/ { alias /b/; } } }"
        ),
        COLD,
        "io-pool-single-many-disks",
        "storage.paths[/a]",
    ),
    "a log that was not read": (
        "error_log /main.log; " + PLAIN % "aio threads;",
        COLD,
        "io-pool-overflow-seen",
        "error_logs[/main.log]",
    ),
    "a version that is not known": (
        PLAIN % "",
        replace(WARM, nginx=Nginx()),
        "io-chunk-unlimited",
        "nginx.nginx_version",
    ),
}


@each_row("name", NEEDS)
def test_missing_facts_are_named_with_a_way_to_get_them(name: str) -> None:
    conf, facts, rule, fact = NEEDS[name]
    found = _audit(conf, facts)
    assert rule not in _rules(found)
    needs = {one.rule: one for one in found.needs_facts}
    assert fact in needs[rule].facts
    assert needs[rule].how.startswith("nginx-tune ")


def test_what_is_absent_is_not_claimed_of_a_broken_tree() -> None:
    found = _audit("include pools.conf;\n" + PLAIN % "aio threads=media;", COLD)
    assert "io-pool-literal-unknown" not in _rules(found)
    (needs,) = (one for one in found.needs_facts if one.rule == "io-pool-literal-unknown")
    assert needs.facts == ["the whole configuration"]
    assert [one.line for one in found.files_unparsed] == [1]


@each_row(
    "part",
    [
        "sendfile on; sendfile_max_chunk 0; server { location / { root /w; aio threads=x; } }",
        "listen 80; root /w; sendfile on; sendfile_max_chunk 0; location / { aio threads=x; }",
        "location / { root /w; sendfile on; sendfile_max_chunk 0; aio threads=x; }",
    ],
)
def test_a_part_of_a_configuration_is_audited_as_one(part: str) -> None:
    found = _audit(part, None)
    assert _rules(found) == ["io-chunk-unlimited"]
    assert "io-pool-literal-unknown" in {one.rule for one in found.needs_facts}, (
        "the pool may be declared in the main file"
    )


def test_worst_first_and_thresholds() -> None:
    conf = (
        "events {} http { sendfile on; sendfile_max_chunk 0; aio threads=x; server { root /w; } }"
    )
    found = _audit(conf, None)
    assert [one.severity for one in found.findings] == ["error", "warning"]
    assert reaches(found, "info")
    assert reaches(found, "error")
    assert not reaches(_audit(PLAIN % "aio threads;", WARM), "warning")


def test_paths_in_commands_are_quoted_for_a_shell() -> None:
    found = _audit('events {} http { server { root "/srv/a b;rm -rf $HOME/"; } }', None)
    hows = {one.how for one in found.needs_facts}
    assert not any("rm" in how for how in hows), "a root with variables is not known"
    found = _audit("events {} http { server { root '/srv/a b;`x`'; } }", None)
    assert "--dataset '/srv/a b;`x`'" in found.needs_facts[0].how


def test_many_directories_are_asked_for_by_the_ones_around_them() -> None:
    servers = "".join(f"server {{ listen 80; root /srv/www/{n}; }}" for n in range(100))
    found = _audit(f"events {{}} http {{ {servers} }}", None)
    assert "inspect --dataset /srv/www -f json" in found.needs_facts[0].how


@pytest.mark.needs("packaged-nginx")
@each_row("facts", [None, WARM, COLD, linux(version="1.22.1", cpus=64)])
def test_debians_own_configuration_has_no_faults(facts: Facts | None) -> None:
    found = audit(read_tree("/etc/nginx/nginx.conf", LiveHost()), facts)
    assert not reaches(found, "error")
    assert not {rule.id for rule in THESE} & set(_rules(found))
