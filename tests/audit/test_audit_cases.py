"""What the rules say about whole configurations on whole hosts: right findings, no false ones."""

from typing import Any

import pytest
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.engine import audit, commands_for, reaching
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import GIB, linux
from nginx_tune.conf.tree import parse_text, read_tree
from nginx_tune.documents.facts import Cpu, Dataset, Facts, Kernel, Memory, Nginx, Residency
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


CASES: dict[str, tuple[str, Facts | None, list[str]]] = {
    "FreeBSD reads asynchronously": (
        PLAIN % "", replace(COLD, kernel=Kernel(system="FreeBSD")), [],
    ),
    "large files go through a location with a pool": (
        (
            "events {} http { server { root /srv/media; location / { }"
            " location ~ \\.mp4$ { aio threads; } } }"
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
        PLAIN % "", _dataset("/srv/media", 200, complete=False), ["io-no-pool-cold-dataset"],
    ),
    "datasets share one page cache": (
        (
            "events {} http { server { location /a/ { alias /a/; } location /b/ { alias /b/; }"
            " location /c/ { alias /c/; } } }"
        ),
        linux(datasets={"/a": (50, 0.3), "/b": (50, 0.3), "/c": (1, 1.0)}),
        ["io-no-pool-cold-dataset"] * 2,
    ),
    "an explicit zero is unlimited in any version": (
        (PLAIN % "").replace("server {", "sendfile_max_chunk 0; server {"), WARM,
        ["io-chunk-unlimited"],
    ),
    "a limited chunk in an old version": (
        (PLAIN % "").replace("server {", "sendfile_max_chunk 512k; server {"),
        replace(WARM, nginx=Nginx(version="1.18.0", nginx_version="1.18.0")), [],
    ),
    "reuseport over a cold dataset": (
        (PLAIN % "").replace("80;", "80 reuseport;"), COLD,
        ["ls-reuseport-blocking", "io-no-pool-cold-dataset"],
    ),
    "shared listeners take turns since 1.21.6": (
        "worker_processes auto; " + PLAIN % "aio threads;",
        replace(COLD, cpu=Cpu(effective=64.0)), [],
    ),
}  # fmt: skip


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
        PLAIN % "", replace(COLD, kernel=Kernel()), "io-no-pool-cold-dataset", "kernel.system",
    ),
    "no memory": (
        PLAIN % "", replace(COLD, memory=Memory()), "io-no-pool-cold-dataset",
        "memory.page_cache_limit_bytes",
    ),
    "a scan that was not finished": (
        PLAIN % "", _dataset("/srv/media", 70, complete=False), "io-no-pool-cold-dataset",
        "datasets[/srv/media].bytes",
    ),
    "a large tree around a location": (
        "events {} http { server { location /m/ { root /srv; } } }", _dataset("/srv", 200),
        "io-no-pool-cold-dataset", "datasets[/srv/m].bytes",
    ),
    "residency that is not to be trusted": (
        PLAIN % "aio threads;",
        _dataset("/srv/media", 3, residency=Residency(ratio=1.0, method="mincore")),
        "io-pool-cached-dataset", "datasets[/srv/media].residency",
    ),
    "a build that is not known": (
        PLAIN % "aio threads;", replace(COLD, nginx=Nginx()), "io-threads-not-built",
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
        "error_log /main.log; " + PLAIN % "aio threads;", COLD, "io-pool-overflow-seen",
        "error_logs[/main.log]",
    ),
    "a version that is not known": (
        PLAIN % "", replace(WARM, nginx=Nginx()), "io-chunk-unlimited", "nginx.nginx_version",
    ),
}  # fmt: skip


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
    assert reaching(found, "info")
    assert reaching(found, "error")
    assert not reaching(_audit(PLAIN % "aio threads;", WARM), "warning")


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


def test_places_that_are_only_written_to_are_not_scanned() -> None:
    places = ("datasets[/srv/www]", "storage.paths[/srv/www/a]", "storage.paths[/var/log/nginx]")
    ((_, _, how),) = commands_for({"a rule": places}, "nginx.conf", None)
    assert how.startswith("nginx-tune inspect --dataset /srv/www --path /var/log/nginx -f json")


def test_what_the_facts_file_has_is_asked_for_again() -> None:
    """The command may write over it."""
    found = _audit("events {} http { server { root /srv/other; } }", COLD)
    kept = {dataset.path for dataset in COLD.datasets}
    commands = [one.how for one in found.needs_facts if "inspect" in one.how]
    assert kept
    assert commands
    assert all(f"--dataset {path}" in one for one in commands for path in {*kept, "/srv/other"})


@pytest.mark.needs("packaged-nginx")
@each_row("facts", [None, WARM, COLD, linux(version="1.22.1", cpus=64)])
def test_debians_own_configuration_has_no_faults(facts: Facts | None) -> None:
    found = audit(read_tree("/etc/nginx/nginx.conf", LiveHost()), facts)
    assert not reaching(found, "error")
    assert not {rule.id for rule in THESE} & set(_rules(found))
