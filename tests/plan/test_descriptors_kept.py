"""The limit of descriptors: room for logs and listeners, and never fewer than workers have."""

from functools import cache
from typing import Any

import pytest
from made_decisions import decide
from msgspec.structs import replace
from rows import each_row
from situations import host, load, nginx, one, site

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.conf.workers import kept_open
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts, Limits, Running, Worker

USUAL = 28672
"""Of 4096 connections and 20000 open files."""
NGINX = {"nr_open": 1 << 20, "nofile_of": "nginx"}
READER = {"nr_open": 1 << 20, "nofile_of": "reader"}


def conf(vhosts: int, main: str = "", events: str = "", http: str = "") -> str:
    """Two logs for each host, of which ten share a server."""
    servers = "".join(
        f"server {{ listen 80; server_name v{first}; root /srv/1; "
        + "".join(
            f"access_log /l/{n}.log; error_log /l/{n}.err; "
            for n in range(first, min(first + 10, vhosts))
        )
        + "}"
        for first in range(0, vhosts, 10)
    )
    return f"{main} events {{ {events} }} http {{ {http} {servers} }}"


@cache
def tree_of(text: str) -> ConfTree:
    return parse_text(text, file="/n/nginx.conf")


def limited(text: str, limits: dict[str, Any], **other: Any) -> Decision:
    tree = tree_of(text)
    facts: Facts = host(limits=Limits(**limits), **other)
    given = site_in(tree, site(roots=["/srv/1"]))
    return one(as_changes(decide(facts, load(), site=given), tree), "file-limits")


def number(decision: Decision) -> int:
    [line] = decision.settings
    assert line.directive == "worker_rlimit_nofile"
    return int(line.args[0])


def test_every_log_and_listener_of_a_configuration_is_counted_once() -> None:
    """As nginx names them: another spelling of a file is another descriptor."""
    text = """
    error_log /l/error.log;
    events {}
    http {
        access_log /l/a.log; error_log /l//error.log warn;
        open_log_file_cache max=50;
        server { listen 80; listen 10.0.0.5:80; listen [::]:80; access_log /l/a.log combined; }
        server { listen 8080-8089; access_log l/own.log; access_log off;
                 location / { error_log stderr; access_log /l/$host.log; error_log memory:1m; }
                 location /s { access_log syslog:server=::1; error_log syslog:server=::1; } }
    }
    stream { access_log /l/stream.log; server { listen 53 udp; } server { listen 53; } }
    mail { server { listen 25; } }
    """
    tree = parse_text(text, file="/n/nginx.conf")
    assert kept_open(tree) == (5 + 2 + 50, 2 + 10 + 3)


@each_row("vhosts", [1, 4700])
def test_logs_of_virtual_hosts_have_room(vhosts: int) -> None:
    found = limited(conf(vhosts), NGINX | {"nofile_soft": 1024, "nofile_hard": 524288})
    bare = limited(conf(0), NGINX | {"nofile_soft": 1024, "nofile_hard": 524288})
    more = number(found) - number(bare)
    assert more == 0 if vhosts == 1 else abs(more - 2 * vhosts) <= 1024
    assert ("logs, listeners" in found.summary) is (vhosts > 1)


def test_listeners_have_room_for_each_workers_own() -> None:
    limits = NGINX | {"nofile_soft": 1024, "nofile_hard": 524288}
    text = "events {} http { server { listen 10000-11999; root /srv/1; } }"
    assert number(limited(text, limits)) >= 8192 + 8 * 2000


def test_connections_and_open_files_leave_that_room() -> None:
    limits = NGINX | {"nofile_soft": 1024, "nofile_hard": 12000}
    tree = tree_of(conf(4700))
    given = site_in(tree, site(roots=["/srv/1"]))
    facts = host(limits=Limits(**limits))
    made = decide(facts, load(file_bytes=1 << 20), site=given)
    [connections] = one(made, "connections").settings
    held = [s for d in made.decisions for s in d.settings if s.directive == "open_file_cache"]
    assert 2 * int(connections.args[0]) + 9400 <= 12000
    assert sum(int(s.args[0][4:]) for s in held) <= 12000 - 9400 - 2 * int(connections.args[0])


def test_a_generated_file_counts_what_the_site_says() -> None:
    facts = host(limits=Limits(nofile_soft=1024, nofile_hard=524288, nr_open=1 << 20))
    few = one(decide(facts, load(), site=site()), "file-limits")
    many = one(decide(facts, load(), site=site(log_files=9400)), "file-limits")
    wide = one(
        decide(facts, load(), site=site(listen=[str(n) for n in range(8000, 8400)])), "file-limits"
    )
    assert number(many) - number(few) >= 9400 - 1024
    assert number(wide) - number(few) >= 400 * 8 - 1024


@pytest.mark.long
@each_row(
    ("soft", "hard", "vhosts", "expected"),
    [
        (20000, 20000, 4700, 18432),
        (1024, 524288, 1, USUAL),
        (20000, 20000, 1, 9216),
        (20000, 20000, 8000, None),
        (1024, 1024, 1, None),
    ],
)
def test_by_a_shells_limits_the_need_is_written_or_nothing(
    soft: int, hard: int, vhosts: int, expected: int | None
) -> None:
    found = limited(conf(vhosts), READER | {"nofile_soft": soft, "nofile_hard": hard})
    assert [int(s.args[0]) for s in found.settings] == ([] if expected is None else [expected])
    if expected is None:
        assert found.verdict == "not_enough_evidence"
        assert found.host_settings == [], "a unit may have more than a shell"
        assert "Unchanged" in found.summary


def test_a_line_that_stands_says_what_workers_have() -> None:
    limits = READER | {"nofile_soft": 1024, "nofile_hard": 524288}
    assert limited(conf(1, "worker_rlimit_nofile 30720;"), limits).verdict == "keep"
    assert number(limited(conf(1, "worker_rlimit_nofile 2048;"), limits)) == USUAL
    assert limited(conf(4700, "worker_rlimit_nofile 30720;"), limits).settings != []
    nearly = f"worker_rlimit_nofile {USUAL - 2048};"
    assert limited(conf(1, nearly), limits).settings == [], "that little changes nothing"
    assert number(limited(conf(1), limits)) == USUAL, "the need, not all that it may have"


MORE_THAN_ALL = "worker_connections 600000;"


@each_row(
    ("soft", "line", "events", "can_raise", "expected"),
    [
        (1024, 1 << 20, "", None, []),
        (1024, 1 << 20, "", True, []),
        (1024, 524288, "", False, []),
        (1024, 524289, "", False, [USUAL]),
        (1024, 1 << 20, MORE_THAN_ALL, False, [524288]),
        (1024, (1 << 20) + 1, "", None, [USUAL]),
        (65536, 2_000_000, "", None, [USUAL]),
        (1024, 2_000_000, MORE_THAN_ALL, None, [524288]),
    ],
)
def test_a_line_above_what_nginx_may_set_does_not_stay(
    soft: int, line: int, events: str, can_raise: bool | None, expected: list[int]
) -> None:
    """setrlimit(2): EPERM; the worker keeps the limit that nginx starts with."""
    limits = NGINX | {"nofile_soft": soft, "nofile_hard": 524288, "can_raise": can_raise}
    found = limited(conf(1, f"worker_rlimit_nofile {line};", events), limits)
    assert [int(s.args[0]) for s in found.settings] == expected
    assert all(f"nginx cannot set {line}, " in s.reason for s in found.settings)
    of_shell = limits | {"nofile_of": "reader", "nofile_hard": 4096, "can_raise": False}
    if line == 1 << 20 and not events:
        assert limited(conf(1, f"worker_rlimit_nofile {line};"), of_shell).settings == []


def test_more_connections_that_stand_have_room_beside_a_shells_limit() -> None:
    limits = READER | {"nofile_soft": 1024, "nofile_hard": 40000}
    assert number(limited(conf(1, events="worker_connections 8192;"), limits)) == 36864
    found = limited(conf(1, events="worker_connections 65535;"), limits)
    assert found.settings == []
    assert any("is left out" in risk for risk in found.risks)


def test_nothing_is_written_where_no_limit_is_known() -> None:
    found = limited(conf(1), {})
    assert found.settings == []
    assert any("is not known" in risk for risk in found.risks)
    assert number(limited(conf(1, "worker_rlimit_nofile 2048;"), {})) == USUAL


@each_row("has", [512, 100_000])
def test_workers_that_run_get_what_they_need(has: int) -> None:
    running = Running(pid=1, workers=[Worker(pid=2, nofile_soft=has, nofile_hard=has)])
    found = limited(
        conf(1),
        NGINX | {"nofile_soft": 1024, "nofile_hard": 524288},
        nginx=replace(nginx(), running=running),
    )
    assert number(found) == USUAL


@each_row(("vhosts", "fires"), [(4700, True), (10, False)])
def test_the_audit_counts_logs_too(vhosts: int, fires: bool) -> None:
    text = conf(vhosts, "worker_rlimit_nofile 9216;", "worker_connections 4096;")
    tree = tree_of(text)
    found = [f for f in audit(tree, linux(), ALL).findings if f.rule == "lim-nofile-lt-2x"]
    assert bool(found) is fires
    if fires:
        assert "and 9401 logs and listeners need about 17611" in found[0].message
        assert "worker_rlimit_nofile 18432" in found[0].fix
