"""Numbers and words of a plan are for what is there once it is made, whatever of it is left out."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import tiers
from made_decisions import decide
from msgspec.structs import replace
from rows import each_row
from situations import host, load, nginx, site

from nginx_tune.change.plan.current import CurrentTree
from nginx_tune.change.plan.solver import BRINGS, BY_THREADS, GOES_WITH, RESTS_ON, Solver, site_in
from nginx_tune.cli.deciding import Held, Inputs
from nginx_tune.cli.plan import Made, settle_choice, tree_with
from nginx_tune.conf.tree import ConfTree, parse_text, read_tree
from nginx_tune.conf.workers import (
    asked_pool,
    connections_in,
    declared_pools,
    descriptors_in,
    workers_in,
)
from nginx_tune.decide.answer import ALL_AS_DECIDED, Pinned
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions
from nginx_tune.documents.facts import Facts, Limits
from nginx_tune.documents.plan import Hunk
from nginx_tune.documents.site import SiteTls, Upstream
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.subject import ConfigurationFiles

CPUS = 24
FLAGS = ["--with-http_v2_module", "--with-threads", "--with-http_ssl_module"]
LUA = "lua_shared_dict d 1m; init_worker_by_lua_block { a() }"
FILES = "%s\nevents { }\nhttp { %s\nserver { listen 80; root /srv/1; } }\n"


def large(*, disks: int = 1) -> Facts:
    return host(cpus=CPUS, disks=disks, nginx=nginx("1.22.1", FLAGS))


def held_for(tree: ConfTree, facts: Facts, workload: Workload) -> Held:
    roots = [place.path for place in facts.storage.paths]
    given = site_in(tree, site(roots=roots))

    def made(stays: Pinned) -> Decisions:
        return decide(facts, workload, site=given, stays=stays)

    first = made(ALL_AS_DECIDED)
    settled = Solver(made, tree, facts).begin(first)
    inputs = Inputs(workload.kind, facts, workload, given, given, settled.decided, made)
    return Held(inputs, tree, settled.held, settled.stays)


def held(text: str, workload: Workload | None = None, *, disks: int = 1) -> Held:
    tree = parse_text(text, file="/n.conf")
    return held_for(tree, large(disks=disks), workload or load(cold_peak=200))


def lines(decisions: Sequence[Decision]) -> list[str]:
    return [" ".join([s.directive, *s.args]) for d in decisions for s in d.settings]


def by_id(one: Held) -> dict[str, Decision]:
    return {d.id: d for d in one.decisions.decisions}


@each_row(
    ("main", "http", "workers"),
    [
        ("", LUA, 1),
        ("worker_processes 3; worker_cpu_affinity 001 010 100;", "", 3),
        ("worker_processes 2; rtmp { }", "", 2),
        ("master_process off; worker_processes 8;", "", 1),
        ("", "", CPUS),
        ("worker_processes auto;", LUA, CPUS),
    ],
)
def test_numbers_are_for_the_workers_that_there_will_be(main: str, http: str, workers: int) -> None:
    found = by_id(held(FILES % (main, http)))
    each = 512 if "master_process off" in main else 4096  # with the descriptors of the start
    assert f"({each * workers} in all)" in found["connections"].summary
    pool = found["thread-pool-size"]
    evidence = [e.value for d in found.values() for e in d.evidence if e.fact == "workers"]
    assert set(evidence) == {workers}
    assert bool(pool.settings) is (workers < CPUS)
    if pool.settings:
        threads = int(pool.settings[0].args[1].removeprefix("threads="))
        assert f"{threads * workers} threads in all" in " ".join(pool.risks)
    assert bool(found["workers"].blocked_by) is (workers < CPUS)
    assert not found["workers"].blocked_by or not found["workers"].settings


def test_one_process_is_told_of_and_takes_no_limit_of_descriptors() -> None:
    found = by_id(held(FILES % ("master_process off;", "")))
    said = "with /n.conf:1 master_process off "
    assert found["workers"].blocked_by.startswith(f"{said}a single process serves")
    assert found["file-limits"].blocked_by.startswith(f"{said}there is no worker")
    on = by_id(held(FILES % ("master_process on;", "")))
    assert on["workers"].settings
    assert on["file-limits"].settings


def test_a_line_above_the_hard_limit_stays_unless_nginx_cannot_set_it() -> None:
    proxied = "worker_connections 10000; } http { server { location / { proxy_pass http://[::1]; }"
    tree = parse_text(f"worker_rlimit_nofile 8192; events {{ {proxied} }} }}", file="/n.conf")
    written = {}
    for can_raise in (True, None, False):
        limits = Limits(nofile_of="unit", nofile_soft=1024, nofile_hard=4096, can_raise=can_raise)
        found = by_id(held_for(tree, replace(large(), limits=limits), load("proxy")))
        written[can_raise] = [line.args for line in found["file-limits"].settings]
    assert written == {True: [], None: [], False: [["4096"]]}


@each_row(
    ("http", "said"),
    [
        ("include gone;", "sendfile may be off (gone was not read and may have the line)"),
        ("include gone; sendfile on;", ""),
        ("server { listen 81; location / { root /srv/1; sendfile off; include gone; } }", ""),
    ],
)
def test_sendfile_is_off_only_where_all_that_may_turn_it_on_is_read(http: str, said: str) -> None:
    chunk = by_id(held(FILES % ("", http)))["sendfile-max-chunk"]
    assert (chunk.summary == f"{said}.") is (said != ""), chunk.summary


@each_row(
    ("server", "writes"),
    [
        ("listen 80; root /srv/1;", True),
        ("listen 443 ssl; root /srv/1;", False),
        ("listen 443 ssl; listen 80; root /srv/1;", True),
        ("listen 80; return 301 https://a/; } server { listen 443 ssl; root /srv/1;", False),
        ("listen 443 ssl; root /srv/1; ssl_conf_command Options KTLS;", True),
        ("root /srv/1;", True),  # it listens on port 80
        ("root /srv/1; } server { listen 443 ssl; root /srv/1;", True),
        ("listen 80; location /x { } } server { listen 443 ssl; root /srv/1;", True),
        ("listen 80; root $x; } server { listen 443 ssl; root /srv/1;", True),
        ("listen 80; location / { proxy_pass http://a; } } server { listen 443 ssl;", False),
    ],
)
def test_a_chunk_for_bodies_without_tls_is_for_servers_without_tls(
    server: str, *, writes: bool
) -> None:
    text = f"events {{ }} http {{ sendfile on; server {{ {server} }} }}"
    chunk = by_id(held(text))["sendfile-max-chunk"]
    assert bool(chunk.settings) is writes, chunk.summary
    assert ("TLS only" in chunk.summary) is not writes


FILTERS = ("sub_filter a b;", "ssi on;", "image_filter resize 10 10;")


@each_row("line", FILTERS)
def test_no_pool_is_written_where_every_body_is_filtered(line: str) -> None:
    found = by_id(held(FILES % (LUA, line), load(peak=3000, cold_peak=2500)))
    written = lines([*found.values()])
    assert not [one for one in written if one.startswith(("thread_pool", "aio threads"))]
    assert (
        found["thread-pools"].blocked_by == f"/n.conf:3 {line[:-1]} splits every body into pieces"
    )
    size = found["thread-pool-size"].blocked_by
    assert size.startswith("it depends on thread-pools, which is left out (/n.conf:3 ")
    words = [s.reason for d in found.values() for s in d.settings]
    assert not [one for one in words if re.search(r"thread|in the pool", one)]
    assert "blocks the loop" in " ".join(words)


def test_a_pool_that_one_location_uses_is_written_and_its_operators_stays() -> None:
    one = "location /a { root /srv/1; } location /b { root /srv/1; sub_filter a b; }"
    text = f"events {{}}\nhttp {{ {LUA} server {{ {one} }} }}"
    found = by_id(held(text))
    assert found["thread-pool-size"].settings
    own = "thread_pool own threads=4;\n" + FILES % ("", f"{LUA} sub_filter a b; aio threads=own;")
    found = by_id(held(own))
    assert not [one for one in lines([*found.values()]) if one.startswith("thread_pool")]
    assert "blocks a thread" in " ".join(s.reason for d in found.values() for s in d.settings)


@each_row(
    ("places", "pools"),
    [
        ("location /1/ { root /srv; } location /2/ { root /srv; }", ["pool_1", "pool_2"]),
        ("location /1/ { root /srv; } location /2/ { root /srv; ssi on; }", ["pool_1"]),
        ("location /1/ { root /srv; ssi on; } location /2/ { root /srv; ssi on; }", []),
        ("location /a/ { root /srv; }", []),
    ],
)
def test_a_pool_of_a_disk_is_written_where_its_location_uses_it(
    places: str, pools: list[str]
) -> None:
    tree = parse_text(f"events {{}}\nhttp {{ server {{ {places} }} }}", file="/n.conf")
    facts, workload = large(disks=2), load(cold_peak=200)
    given = site_in(tree, site(roots=["/srv/1", "/srv/2"], root_prefixes=["/1/", "/2/"]))

    def made(stays: Pinned) -> Decisions:
        return decide(facts, workload, site=given, stays=stays)

    settled = Solver(made, tree, facts).begin(made(ALL_AS_DECIDED))
    [one] = [d for d in settled.held.decisions if d.id == "per-disk-pools"]
    assert [s.args[0] for s in one.settings if s.directive == "thread_pool"] == pools
    assert bool(one.blocked_by) is (len(pools) < 2)


def settled_but(text: str, *names: str, only: bool = False) -> Made:
    one = held(text)
    return settle_choice(one, names if only else (), () if only else names, annotates=False)


def hunks(made: Made) -> list[Hunk]:
    return [hunk for file in made.changes.files for hunk in file.hunks]


def test_the_limit_is_for_the_connections_and_files_that_there_will_be() -> None:
    after = {h.decision: h.after.strip() for h in hunks(settled_but(FILES % ("", "")))}
    assert after["file-limits"] == "worker_rlimit_nofile 28672;"
    less = {h.decision: h for h in hunks(settled_but(FILES % ("", ""), "open-file-cache"))}
    assert less["file-limits"].after.strip() == "worker_rlimit_nofile 9216;"
    assert "open files" not in less["file-limits"].reason
    alone = {h.decision: h for h in hunks(settled_but(FILES % ("", ""), "file-limits", only=True))}
    assert "file-limits" not in alone, "512 connections have room in 1024 descriptors"


def test_connections_bring_their_descriptors_or_stay_within_those_that_are() -> None:
    brought = {h.decision for h in hunks(settled_but(FILES % ("", ""), "connections", only=True))}
    assert brought == {"connections", "file-limits"}
    made = settled_but(FILES % ("", ""), "file-limits")
    assert not {h.decision for h in hunks(made)} & {"connections", "file-limits", "open-file-cache"}
    said = {one.id: one.blocked_by for one in made.chosen.decisions.decisions if one.blocked_by}
    assert said["connections"] == "a worker has 1024 descriptors"
    few = FILES.replace("events { }", "events { worker_connections 64; }") % ("", "")
    after = {h.decision: h.after.strip() for h in hunks(settled_but(few, "file-limits"))}
    assert after["connections"] == "worker_connections 512;"


CASES: tuple[tuple[Kind, bool, int, str], ...] = (
    ("static", False, 1, "1.1"),
    ("media", False, 3, "1.1"),
    ("static", False, 1, "2"),
    ("cache", False, 1, "1.1"),
    ("proxy", True, 1, "1.1"),
    ("cache", True, 1, "1.1"),
)
STAYS = (
    Pinned(workers=1),
    Pinned(no_pools="a"),
    Pinned(connections=100),
    Pinned(descriptors=1024),
    Pinned(open_files=7),
    Pinned(no_sendfile="sendfile is off here"),
)


@pytest.mark.thorough
@pytest.mark.long
@each_row(("kind", "tls", "disks", "version"), CASES)
def test_every_decision_that_differs_by_what_stays_is_in_the_table(
    kind: Kind, tls: bool, disks: int, version: str
) -> None:
    paths = [f"/srv/{n}" for n in range(1, disks + 1)]
    given = site(
        roots=paths,
        cache_dirs=paths,
        http3=tls,
        tls=SiteTls(certificate="/c", certificate_key="/k") if tls else None,
        upstreams=[Upstream(name="a", servers=["10.0.0.1", "10.0.0.2"])],
    )
    workload = load(kind, peak=4000, cold_peak=200 if disks == 1 else None)
    workload = replace(workload, http_version=replace(workload.http_version, value=version))
    facts = large(disks=disks)

    def shown(stays: Pinned) -> dict[DecisionId, tuple[object, ...]]:
        made = decide(facts, workload, site=given, stays=stays).decisions
        return {d.id: (d.settings, d.summary, d.verdict, d.risks) for d in made}

    usual = shown(ALL_AS_DECIDED)
    for stays in STAYS:
        [name] = [one for one in RESTS_ON if getattr(stays, one) != getattr(ALL_AS_DECIDED, one)]
        others = {one for one, said in shown(stays).items() if said != usual[one]}
        assert others <= RESTS_ON[name], f"{name}: {sorted(others - RESTS_ON[name])}"


def test_the_tables_name_decisions_and_all_that_may_stay() -> None:
    known = set(DecisionId.__args__)  # type: ignore[attr-defined]  # of a Literal
    assert set(RESTS_ON) == set(Pinned.__dataclass_fields__)
    assert known >= set().union(*RESTS_ON.values())
    assert known >= {*BRINGS, *(name for names in BRINGS.values() for name in names)}
    assert set(GOES_WITH) >= BY_THREADS


def drawn(dice: Random, folder: Path) -> str:
    """An operator's tree; nginx without Lua takes it."""

    def some(*choices: str) -> str:
        return "\n".join(one for one in choices if dice.random() < 0.35)

    def any_of(*choices: str) -> str:
        return dice.choice(choices)

    filters = ("", "", "sub_filter a b;", "ssi on;")
    places = "\n".join(
        f"location /{n}/ {{ {any_of(f'root {folder};', 'proxy_pass http://app;')} "
        f"{any_of(*filters)} {any_of('', '', 'aio threads;', 'aio off;', 'aio threads=own;')} "
        f"{any_of('', 'sendfile off;', 'sendfile on;')} }}"
        for n in range(dice.randint(0, 3))
    )
    main = any_of(
        "", "worker_processes 1;", "worker_processes auto;", "worker_processes 3;",
        "worker_processes 2; worker_cpu_affinity 01 10;", "master_process off;",
        "worker_processes 4; master_process off;",
    )  # fmt: skip
    main += some("worker_rlimit_nofile 3000;", "thread_pool default threads=8;")
    own = "thread_pool own threads=4;"
    http = f"{any_of(*filters)} {some('sendfile off;', 'open_file_cache max=50;', 'aio threads;')}"
    events = any_of("", "worker_connections 64;", "worker_connections 9000;", "use select;")
    return (
        f"{main} {own}\nevents {{ {events} }}\nhttp {{ access_log off;\n{http}\n"
        f"upstream app {{ server 192.0.2.1; server 192.0.2.2; {any_of('', 'keepalive 3;')} }}\n"
        f"server {{ listen 18970; root {folder}; {any_of(*filters)}\n{places} }} }}\n"
    )


def chosen_ids(dice: Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    known = sorted({*RESTS_ON["workers"], *RESTS_ON["no_pools"], "workers", "cache-key"})
    some = tuple(dice.sample(known, dice.randint(1, 6)))
    return (some, ()) if dice.random() < 0.4 else ((), some)


def faults(made: Made, after: ConfTree, cpus: int) -> Iterator[str]:
    """What is sized for, or said of, what is not there."""
    before = made.held.tree
    written = hunks(made)
    asked = {asked_pool(scope.effective("aio")) for scope in CurrentTree(after).answering} - {None}
    pools = declared_pools(after)
    yield from (f"idle pool {name}" for name in pools.keys() - declared_pools(before) - asked)
    yield from (f"no pool {one}" for one in asked if one not in {*pools, "default"})
    workers = workers_in(after, cpus)
    for one in written:
        counted = [e.value for e in one.evidence if e.fact == "workers"]
        if counted and counted != [workers]:
            yield f"{one.decision}: for {counted} workers of {workers}"
        if not asked and re.search(r"a thread|in the pool|a pool|pool task", one.reason):
            yield f"{one.decision}: {one.reason} where no file is read by threads"
        threads = re.search(r"threads=([0-9]+)", one.after)
        in_all = re.search(r"([0-9]+) threads in all", " ".join(one.risks))
        if threads and in_all and int(threads[1]) * (workers or 0) != int(in_all[1]):
            yield f"{one.decision}: {in_all[0]}"
    after_of = {one.decision: one for one in written}
    connections, descriptors = connections_in(after, 512) or 0, descriptors_in(after)
    if limit := after_of.get("file-limits"):
        said = re.match(r"([0-9]+) connections", limit.reason)
        if said and int(said[1]) != connections:
            yield f"a limit for {said[0]} of {connections}"
        if descriptors is None or descriptors < 2 * connections:
            yield f"{descriptors} descriptors for {connections} connections"
        is_kept = any(s.effective("open_file_cache") for s in CurrentTree(after).answering)
        if "open files" in limit.reason and not is_kept:
            yield "a limit for open files that nothing keeps"
    grown = connections > (connections_in(before, 512) or 0)
    if grown and connections > max(512, (descriptors or 1024) // 2):
        yield f"{connections} connections with {descriptors or 1024} descriptors"


def tables() -> Iterator[Random]:
    """The last one found a fault."""
    yield from (tiers.dice(f"left out {number}") for number in range(tiers.draws(10, 300)))
    yield Random(277)


@pytest.mark.needs("nginx")
@each_row("dice", tables)
def test_what_is_left_out_leaves_nothing_that_rests_on_it(dice: Random, tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    text = drawn(dice, tmp_path)
    conf.write_text(text)
    only, but = chosen_ids(dice)
    said = f"{tiers.REPEAT}: --only {only} --except {but}\n{text}"
    facts = large()
    kind: Kind = dice.choice(("static", "media"))
    workload = load(kind, cold_peak=dice.choice((None, 30, 200)), peak=dice.choice((250, 4000)))
    tree = read_tree(str(conf), ConfigurationFiles(LiveHost()), prefix=str(tmp_path))
    made = settle_choice(held_for(tree, facts, workload), only, but, annotates=False)
    files = {one.path: one.content for one in made.changes.files}
    after = tree_with(tree, files)
    assert not [*faults(made, after, CPUS)], said
    accepted = _accepts(conf, tmp_path)
    for path, content in files.items():
        Path(path).write_bytes(content)
    assert _accepts(conf, tmp_path) == accepted, said
    again = settle_choice(held_for(after, facts, workload), only, but, annotates=False)
    assert not again.changes.files, (said, [h.after for h in hunks(again)])


def _accepts(conf: Path, folder: Path) -> bool:
    given = f"pid {folder}/pid; error_log {folder}/log; user root;"
    command = ["/usr/sbin/nginx", "-t", "-q", "-c", str(conf), "-p", str(folder), "-g", given]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
