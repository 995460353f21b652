"""Following the advice makes the next run quiet: nothing is left to change, nothing is found."""

from functools import cache
from typing import Any

import msgspec
import pytest
from rows import each_row
from situations import (
    FLAGS,
    GIBIBYTE,
    MEBIBYTE,
    dataset,
    host,
    lab_host,
    lab_load,
    lines,
    load,
    nginx,
    one,
    site,
    source_host,
)
from situations import decide_without_break_evens as decide
from test_law import MOST_IN_A_CHAIN, drawn, forgetful
from tiers import REPEAT, dice, draws

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts, Kernel
from nginx_tune.documents.facts_storage import Curve, CurvePoint
from nginx_tune.documents.site import Site, SiteTls
from nginx_tune.documents.workload import Concurrency, HttpVersion, Rate, TlsUse, Workload

CHANGING = ("enable", "disable", "raise", "lower", "set")


def followed(facts: Facts, workload: Workload, given: Site) -> tuple[str, Decisions]:
    """The generated configuration, and what is said when one asks again with it."""
    complete = complete_site(given, facts, workload.kind)
    decisions = decide(facts, workload, site=complete)
    text = emit_decided(decisions, complete, status_page=True)
    return text, as_changes(decisions, parse_text(text))


def measured_disk() -> Facts:
    """A hard disk that was measured: its knee is below the peak of cold transfers."""
    curve = Curve(
        read_bytes=131_072,
        points=[
            CurvePoint(depth=1, reads_per_second=90.0),
            CurvePoint(depth=4, reads_per_second=150.0),
        ],
        knee_depth=4,
        sequential_bytes_per_second=150e6,
    )
    facts = host()
    disks = [msgspec.structs.replace(d, curve=curve) for d in facts.storage.disks]
    storage = msgspec.structs.replace(facts.storage, disks=disks)
    return msgspec.structs.replace(facts, storage=storage)


def cold(facts: Facts, **other: Any) -> Facts:
    data = [dataset(256 * GIBIBYTE, 4 * MEBIBYTE, **other)]
    return msgspec.structs.replace(facts, datasets=data)


LOGGED = site(access_log="/var/log/nginx/access.log", error_log="/var/log/nginx/error.log")
SECURE = msgspec.structs.replace(
    LOGGED, tls=SiteTls(certificate="/c.pem", certificate_key="/k.pem")
)
CASES: dict[str, tuple[Facts, Workload, Site]] = {
    "cold": (cold(host()), load(), LOGGED),
    "cold, many large files": (
        msgspec.structs.replace(
            host(disk_class="nvme", page_cache_bytes=128 * GIBIBYTE),
            datasets=[dataset(256 * GIBIBYTE, MEBIBYTE)],
        ),
        load(file_bytes=MEBIBYTE, exponent=0.8),
        LOGGED,
    ),
    "fits": (host(datasets=[dataset(GIBIBYTE, 4096)]), load(data_bytes=GIBIBYTE), LOGGED),
    "nothing known": (Facts(), Workload(), LOGGED),
    "lab": (lab_host(), lab_load(), LOGGED),
    "lab with 40 cold": (lab_host(), lab_load(40), LOGGED),
    "hot apart": (
        lab_host(),
        lab_load(150, 10),
        msgspec.structs.replace(LOGGED, hot_locations=["/hot/"]),
    ),
    "source": (source_host(), load("media", data_bytes=256 * 10**9, cold_peak=200), LOGGED),
    "measured disk": (cold(measured_disk()), load(cold_peak=20), LOGGED),
    "measured disk, many cold": (cold(measured_disk()), load(cold_peak=200), LOGGED),
    "tls": (
        cold(host()),
        msgspec.structs.replace(load("media"), tls=TlsUse(value=True, provenance="declared")),
        SECURE,
    ),
    "three cache disks": (host(disks=3, mount="/data"), Workload(kind="cache"), LOGGED),
    "one cache disk": (host(), Workload(kind="cache"), LOGGED),
    "two roots": (
        host(disks=2),
        load(),
        msgspec.structs.replace(LOGGED, roots=["/srv/1", "/srv/2"]),
    ),
    "two roots by prefix": (
        host(disks=2),
        load(),
        msgspec.structs.replace(LOGGED, roots=["/srv/1", "/srv/2"], root_prefixes=["/a/", "/b/"]),
    ),
    "two roots by prefix, FreeBSD": (
        host(
            disks=2, kernel=Kernel(system="FreeBSD"), nginx=nginx(flags=[*FLAGS, "--with-file-aio"])
        ),
        load(),
        msgspec.structs.replace(LOGGED, roots=["/srv/1", "/srv/2"], root_prefixes=["/a/", "/b/"]),
    ),
    "cleartext HTTP/2, pools on what is assumed": (
        host(disk_class="ssd", datasets=[dataset(256 * GIBIBYTE, MEBIBYTE)]),
        msgspec.structs.replace(
            load(file_bytes=MEBIBYTE, exponent=0.8),
            http_version=HttpVersion(value="2"),
            concurrency=Concurrency(),
        ),
        LOGGED,
    ),
    "busy proxy": (
        host(cpus=16, kernel=Kernel(system="Linux", sysctls={"net.core.somaxconn": "4096"})),
        msgspec.structs.replace(
            Workload(kind="proxy"), rate=Rate(peak_per_second=9000.0, provenance="learnt")
        ),
        LOGGED,
    ),
    "old nginx, many workers": (
        host(
            cpus=16,
            nginx=nginx("1.18.0"),
            kernel=Kernel(system="Linux", sysctls={"net.ipv4.tcp_migrate_req": "1"}),
        ),
        load(data_bytes=GIBIBYTE),
        LOGGED,
    ),
    "new nginx": (host(nginx=nginx("1.29.7")), Workload(kind="cache"), LOGGED),
    "no thread pools built": (host(nginx=nginx(flags=FLAGS[1:])), load(data_bytes=10**9), LOGGED),
}


@cache
def followed_case(name: str) -> tuple[str, Decisions]:
    return followed(*CASES[name])


@pytest.mark.long
@each_row("name", CASES)
def test_asked_again_nothing_is_left_to_change(name: str) -> None:
    _, again = followed_case(name)
    left = [(d.id, d.verdict, d.summary) for d in again.decisions if d.settings]
    assert left == []
    known = {d.id for d in again.decisions if d.verdict in CHANGING}
    # Verdicts without a line of nginx.conf: pools left off, the device's read-ahead.
    assert known <= {"thread-pools", "reuseport", "open-file-cache", "ktls", "per-disk-pools"}


@each_row("name", CASES)
def test_the_audit_finds_nothing_in_what_was_generated(name: str) -> None:
    """A proposal that needs evidence first is an info; nothing else is found."""
    facts, workload, given = CASES[name]
    text, _ = followed_case(name)
    decisions = decide(facts, workload, site=complete_site(given, facts, workload.kind))
    found = audit(parse_text(text), facts, ALL, decide=lambda: decisions)
    unsettled = [d.next_command for d in decisions.decisions if d.verdict == "not_enough_evidence"]
    left = [
        f
        for f in found.findings
        if f.severity != "info" or not any(command in f.fix for command in unsettled if command)
    ]
    assert [(f.rule, f.message, text.splitlines()[f.line - 1]) for f in left] == []


def test_any_advice_that_is_followed_stands() -> None:
    rng = dice("followed advice")
    for number in range(draws(25, 400)):
        facts, workload, given = drawn(rng)
        if number % 2:
            facts, workload = forgetful(rng, facts), forgetful(rng, workload)
        if len(given.roots) > MOST_IN_A_CHAIN and not given.root_prefixes:
            continue
        _, again = followed(facts, workload, given)
        left = [(d.id, d.settings) for d in again.decisions if d.settings]
        assert left == [], f"{REPEAT}: situation {number}"


# what stands against a decision

ALWAYS_ON = """
worker_processes auto;
worker_rlimit_nofile 200000;
events { worker_connections 512; multi_accept on; accept_mutex on; }
http {
    sendfile on;
    sendfile_max_chunk 0;
    open_file_cache max=100;
    server {
        listen 80 reuseport;
        root /srv/1;
        aio threads;
        location /img/ { aio threads=other; }
    }
}
"""


def asked(workload: Workload, text: str = ALWAYS_ON, **other: Any) -> Decisions:
    facts = host(**other)
    given = complete_site(site(), facts, workload.kind)
    return as_changes(decide(facts, workload, site=given), parse_text(text))


def test_threads_for_data_that_fits_are_to_be_turned_off() -> None:
    """A8."""
    d = one(asked(load(data_bytes=GIBIBYTE)), "thread-pools")
    assert (d.verdict, lines(d)) == ("disable", ["aio off"])
    assert "aio threads; aio threads=other" in d.summary
    places = [e.fact for e in d.evidence if e.provenance == "declared" and ":" in e.fact]
    assert places == ["nginx.conf:12", "nginx.conf:13"]


def test_threads_that_read_past_the_page_cache_stay() -> None:
    """With directio the disk is waited for each time, whatever fits in memory."""
    text = ALWAYS_ON.replace("aio threads;", "aio threads; directio 4m;")
    d = one(asked(load(data_bytes=GIBIBYTE), text), "thread-pools")
    assert (d.verdict, lines(d)) == ("disable", [])
    text = text.replace("threads=other;", "threads=other; directio off;")
    d = one(asked(load(data_bytes=GIBIBYTE), text), "thread-pools")
    assert "threads=other" in d.summary
    assert "aio threads;" not in d.summary


def test_the_mutex_is_to_be_turned_off_and_multi_accept_stays_beside_own_queues() -> None:
    """B7; as ``ls-multi-accept`` has it."""
    d = one(asked(load()), "accept")
    assert (d.verdict, lines(d)) == ("disable", ["accept_mutex off"])


def test_queues_of_their_own_behind_blocked_loops_are_to_go() -> None:
    """B4."""
    flags = ["--with-http_ssl_module"]
    d = one(asked(load(), nginx=nginx(flags=flags)), "reuseport")
    assert d.verdict == "disable"
    assert "Remove listen 80 reuseport" in d.summary


def test_numbers_are_raised_or_enough() -> None:
    decisions = asked(load())
    assert one(decisions, "connections").verdict == "raise"
    assert one(decisions, "file-limits").verdict == "keep"
    many = ALWAYS_ON.replace("512", "65000")
    enough = one(asked(load(), many), "connections")
    assert (enough.verdict, enough.settings) == ("keep", [])
    assert enough.summary.startswith("Already so, with more: worker_connections 65000 stays. ")
    assert one(asked(load()), "sendfile-max-chunk").verdict == "raise"


def test_an_unbounded_chunk_gets_the_default_where_that_is_right() -> None:
    d = one(asked(load(), disk_class="nvme"), "sendfile-max-chunk")
    assert lines(d) == ["sendfile_max_chunk 2m"]


@each_row(
    ("name", "text", "more"),
    [
        ("sendfile-max-chunk", ALWAYS_ON.replace("chunk 0", "chunk 512k"), {"disk_class": "nvme"}),
        ("workers", ALWAYS_ON.replace("worker_processes auto;", ""), {"cpus": 1}),
        ("workers", ALWAYS_ON.replace("processes auto", "processes 2"), {"cpus": 1}),
        ("sendfile", ALWAYS_ON.replace("sendfile on;", ""), {"filesystem": "vboxsf"}),
    ],
)
def test_a_line_that_would_change_nothing_is_not_written(
    name: str, text: str, more: dict[str, Any]
) -> None:
    other = {**more}
    filesystem = other.pop("filesystem", "ext4")
    paths = [msgspec.structs.replace(p, filesystem=filesystem) for p in host().storage.paths]
    facts = host(**other)
    storage = msgspec.structs.replace(facts.storage, paths=paths)
    d = one(asked(load(), text, **other, storage=storage), name)
    assert (lines(d), d.verdict) == ([], "keep")


def test_an_open_file_cache_that_only_churns_is_to_go() -> None:
    d = one(asked(load(data_bytes=10**13, file_bytes=10**5)), "open-file-cache")
    assert (d.verdict, lines(d)) == ("disable", ["open_file_cache off"])


def test_kernel_tls_beside_pools_is_to_go() -> None:
    """ngx_ssl_sendfile()."""
    text = ALWAYS_ON.replace("sendfile on;", "sendfile on; ssl_conf_command Options KTLS;")
    workload = msgspec.structs.replace(load(), tls=TlsUse(value=True))
    d = one(asked(workload, text), "ktls")
    assert (d.verdict, lines(d)) == ("disable", ["ssl_conf_command Options -KTLS"])
