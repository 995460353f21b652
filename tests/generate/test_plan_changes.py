"""Decisions written into a configuration that stands: the right lines, and no other byte."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import tiers
from made_decisions import decide
from msgspec.structs import replace
from recorded_hosts import facts_bytes
from rows import each_row

from nginx_tune.change.generate.changes import Changes, plan_changes
from nginx_tune.change.generate.reload_warnings import reload_warnings
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.cli.configurations import Overlaid
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.decide.answer import setting
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.workload.profiles import workload_for
from nginx_tune.documents.base import decode
from nginx_tune.documents.decisions import Decision, Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.plan import Plan
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.subject import ConfigurationFiles
from nginx_tune.report.plan import render_plan_diff, render_plan_markdown
from nginx_tune.report.text import markdown_text

HOSTS = ("raid10-4hdd", "three-disk-node", "kvm-guest", "sata-ssd")
SITES = {
    "one file": """\
worker_processes 2;  # as the box was bought
events {
    worker_connections 512;
    multi_accept on;
}

http {
    sendfile off;
    access_log /var/log/nginx/access.log;
    server {
        listen 8080;
        # the pictures
        location /img/ {
            root /srv/img;   # on the big disk
            aio threads=old;
        }
        location /api/ { proxy_pass http://127.0.0.1:9000; }
    }
}
thread_pool old threads=4;
""",
    "on one line": "events{}http{server{listen 8080;location /{root /srv;}}}",
    "crlf, no end": "events {\r\n}\r\nhttp {\r\n    server {\r\n        root /srv;\r\n    }\r\n}",
    "mark in a comment": "# caf\xe9 \u2603\nevents { }\nhttp { server { root /srv; } }\n",
    "http alone": "events { worker_connections 100; }\nhttp { }\n",
}


def facts_of(host: str) -> Facts:
    return decode(Facts, facts_bytes(host))


def write(folder: Path, files: Mapping[str, str]) -> ConfTree:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return read(folder / "nginx.conf", {})


def read(main: Path, files: Mapping[str, bytes]) -> ConfTree:
    reader = Overlaid(ConfigurationFiles(LiveHost()), files)
    return read_tree(str(main), reader, prefix=str(main.parent))


def decided(tree: ConfTree, facts: Facts, kind: Kind) -> Decisions:
    """As for a site of which somebody said how many requests are under way at once."""
    site = complete_site(site_in(tree, Site()), facts, kind)
    workload = workload_for(kind, facts, None)
    concurrency = replace(workload.concurrency, provenance="declared")
    return decide(facts, replace(workload, concurrency=concurrency), site=site)


def planned(
    tree: ConfTree, facts: Facts, kind: Kind = "static", *, annotates: bool = False
) -> Changes:
    decisions = decided(tree, facts, kind)

    def leaves(files: Mapping[str, bytes]) -> set[str]:
        again = as_changes(decisions, read(Path(tree.path), files))
        return {one.id for one in again.decisions if one.settings}

    return plan_changes(as_changes(decisions, tree), tree, leaves, annotates=annotates)


def contents(changes: Changes) -> dict[str, bytes]:
    return {one.path: one.content for one in changes.files}


def is_kept(old: bytes, new: bytes) -> bool:
    """Whether the old lines are all there, but for arguments of directives that changed."""
    comments = [line.partition(b"#")[2] for line in old.splitlines() if b"#" in line]
    return all(one in new for one in comments) and (b"\r\n" in old) == (b"\r\n" in new)


@each_row("host", HOSTS)
@each_row("name", SITES)
@each_row("annotates", [False, True])
def test_made_again_it_is_empty_and_comments_stay(
    name: str, host: str, tmp_path: Path, annotates: bool
) -> None:
    tree = write(tmp_path, {"nginx.conf": SITES[name]})
    facts = facts_of(host)
    changes = planned(tree, facts, annotates=annotates)
    new = contents(changes)
    for file in changes.files:
        old = Path(file.path).read_bytes()
        assert is_kept(old, file.content), file.content.decode()
        assert len(file.hunks) >= 1
        assert old.count(b"\n") <= file.content.count(b"\n") + (b"\n" not in old)
    again = read(tmp_path / "nginx.conf", new)
    assert again.complete
    left = as_changes(decided(tree, facts, "static"), again)
    chosen = {hunk.decision for file in changes.files for hunk in file.hunks}
    assert not [one.id for one in left.decisions if one.settings and one.id in chosen]


def test_each_line_has_its_place_and_its_reason(tmp_path: Path) -> None:
    tree = write(tmp_path, {"nginx.conf": SITES["one file"]})
    [file] = planned(tree, facts_of("raid10-4hdd")).files
    found = {(hunk.before, hunk.after): hunk for hunk in file.hunks}
    hunk = found["multi_accept on;", "multi_accept off;"]
    assert (hunk.line, hunk.decision) == (4, "accept")
    assert all(one.reason for one in file.hunks)
    text = file.content.decode()
    assert "    multi_accept off;\n" in text
    assert text.startswith("worker_processes"), "what changes keeps its place"
    assert "            root /srv/img;   # on the big disk\n" in text


def test_a_file_that_several_include_is_left_alone(tmp_path: Path) -> None:
    files = {
        "nginx.conf": "events { }\nhttp {\n    server { listen 81; include s.inc; }\n"
        "    server { listen 82; include s.inc; }\n}\n",
        "s.inc": "location / { root /srv; sendfile on; sendfile_max_chunk 0; }\n",
    }
    tree = write(tmp_path, files)
    changes = planned(tree, facts_of("raid10-4hdd"))
    assert str(tmp_path / "s.inc") not in contents(changes)
    assert any("included 2 times" in one.reason for one in changes.refusals)


def test_the_diff_is_for_patch_and_reads_in_markdown(tmp_path: Path) -> None:
    tree = write(tmp_path, {"nginx.conf": SITES["one file"]})
    changes = planned(tree, facts_of("raid10-4hdd"))
    plan = Plan(conf_path=tree.path, files=changes.files, refusals=changes.refusals)
    old = {one.source.file: one.source.data for one in tree.parsed}
    diff = render_plan_diff(plan, old)
    patched = subprocess.run(
        ["patch", f"-p{len(tmp_path.parts)}", "-d", tmp_path, "-o", "-"],
        input=diff,
        capture_output=True,
        check=True,
    )
    assert patched.stdout == changes.files[0].content
    for patch in (diff, render_plan_diff(plan, old, verbose=True)):
        taken = subprocess.run(
            ["git", "apply", "--numstat", "-"], input=patch, capture_output=True, check=True
        )
        assert taken.stdout.endswith(b"nginx.conf\n")
    page = render_plan_markdown(plan, old)
    assert "```diff" in page
    assert all(hunk.after.split()[0] in page for hunk in changes.files[0].hunks)


@each_row(
    ("before", "after", "effect", "said"),
    [
        ("limit_req_zone $a zone=z:1m rate=1r/s;", "limit_req_zone $b zone=z:1m rate=1r/s;",
         "refused", "a different key"),
        ("limit_req_zone $a zone=z:1m rate=1r/s;", "limit_req_zone $a zone=z:2m rate=1r/s;",
         "loses", "starts empty"),
        ("limit_req_zone $a zone=z:1m rate=1r/s;", "limit_req_zone $a zone=z:1m rate=9r/s;",
         "", ""),
        ("proxy_cache_path /a keys_zone=c:1m;", "proxy_cache_path /a keys_zone=c:9m;",
         "loses", "cache loader"),
        ("proxy_cache_path /a keys_zone=c:1m;", "proxy_cache_path /b keys_zone=c:1m;",
         "refused needs", "path"),
        ("", "proxy_cache_path /srv/cache keys_zone=c:1m;", "needs", "directory of /srv/cache"),
        ("server { listen 80 reuseport; }", "server { listen 80; }", "loses", "reset"),
        ("", "} thread_pool p threads=4; http {", "needs", "TasksMax"),
        ("server { listen 80 reuseport; } } worker_processes 4; events {",
         "server { listen 80 reuseport; } } worker_processes 2; events {", "loses", "4 workers"),
        ("server { listen 80; } } worker_processes 4; events {",
         "server { listen 80; } } worker_processes 2; events {", "", ""),
        ("server { listen 80 reuseport; } } worker_processes 2; events {",
         "server { listen 80 reuseport; } } worker_processes 4; events {", "", ""),
        ("server { listen 443 quic; } } quic_bpf on; events {", "server { listen 443 quic; }",
         "needs", "restart"),
        ("} quic_bpf on; events {", "", "", ""),
        ("} pid /run/a; events {", "} pid /run/b; events {", "needs", "PIDFile="),
    ],
)  # fmt: skip
def test_what_a_reload_does_is_said(
    tmp_path: Path, before: str, after: str, effect: str, said: str
) -> None:
    trees = [
        write(tmp_path / name, {"nginx.conf": f"events {{}} http {{ {text} }}"})
        for name, text in (("old", before), ("new", after))
    ]
    found = reload_warnings(*trees)
    assert [one.effect for one in found] == effect.split()
    assert all(said in one.text for one in found[:1])
    assert reload_warnings(trees[1], trees[1]) == []


def drawn(seed: int) -> dict[str, str]:
    """A configuration of random pieces."""
    dice = tiers.dice(f"configuration {seed}")

    def some(lines: list[str], most: int) -> str:
        return "\n".join(dice.sample(lines, dice.randint(0, most)))

    scalars = [
        "sendfile off;", "sendfile on;", "aio threads;", "aio off;", "sendfile_max_chunk 0;",
        "tcp_nopush on;", "output_buffers 1 32k;", "open_file_cache max=10;", "directio 4m;",
    ]  # fmt: skip

    def level(most: int) -> str:
        lines = some(scalars, most).split("\n")
        kept = [one for n, one in enumerate(lines) if one.split(" ")[0] not in
                [other.split(" ")[0] for other in lines[:n]]]  # fmt: skip
        return "\n".join(kept)

    servers = []
    for number in range(dice.randint(0, 3)):
        places = [
            f"location /{n}/ {{ {dice.choice(['root /srv;', 'proxy_pass http://127.0.0.1:9;'])} "
            f"{level(2)} }}"
            for n in range(dice.randint(0, 3))
        ]
        servers.append(
            f"server {{\n listen {18100 + number}{dice.choice(['', ' backlog=100'])};\n"
            f"{level(3)}\n" + "\n".join(places) + "\n}\n"
        )
    main = some(["worker_processes 1;", "worker_rlimit_nofile 100;", "pcre_jit on;"], 3)
    events = some(["worker_connections 64;", "multi_accept on;", "accept_mutex on;"], 3)
    return {
        "nginx.conf": f"{main}\nevents {{ {events} }}\n"
        f"http {{\n{level(4)}\ninclude conf.d/*;\n}}\n",
        **{f"conf.d/{n}": text for n, text in enumerate(servers)},
    }


@pytest.mark.long
@each_row("seed", range(tiers.draws(40, 400)))
def test_drawn_configurations(seed: int, tmp_path: Path) -> None:
    files = drawn(seed)
    tree = write(tmp_path, files)
    assert tree.complete
    facts = facts_of(HOSTS[seed % len(HOSTS)])
    kind: Kind = ("static", "media", "proxy", "cache")[seed // 4 % 4]  # type: ignore[assignment]
    changes = planned(tree, facts, kind)
    again = read(tmp_path / "nginx.conf", contents(changes))
    assert again.complete
    chosen = {hunk.decision for file in changes.files for hunk in file.hunks}
    left = as_changes(decided(tree, facts, kind), again)
    again_too = [one.id for one in left.decisions if one.settings and one.id in chosen]
    assert not again_too, tiers.REPEAT


@pytest.mark.needs("nginx", "root")  # it opens the log of the build
@each_row("seed", range(tiers.draws(12, 120)))
def test_nginx_accepts_what_it_accepted(seed: int, tmp_path: Path) -> None:
    files = drawn(seed)
    tree = write(tmp_path, files)
    facts = facts_of(HOSTS[seed % len(HOSTS)])
    facts = replace(facts, nginx=replace(facts.nginx, version="1.22.1"))
    changes = planned(tree, facts, ("static", "media")[seed % 2])  # type: ignore[arg-type]

    def accepted() -> bool:
        command = ["nginx", "-t", "-q", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path),
                   "-g", f"pid {tmp_path}/pid; error_log {tmp_path}/log;"]  # fmt: skip
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    before = accepted()
    for path, content in contents(changes).items():
        Path(path).write_bytes(content)
    assert accepted() == before, tiers.REPEAT


def test_what_needs_a_line_that_is_left_out_is_left_out_too(tmp_path: Path) -> None:
    text = "events { }\nhttp { server { location / { root /srv; } } }\n"
    tree = write(tmp_path, {"nginx.conf": text})
    pool = setting("thread-pool-size", "main", "thread_pool", "big", "threads=8", reason="r")
    aio = setting("thread-pools", "location", "aio", "threads=big", reason="r")
    both = [
        Decision(id="thread-pool-size", verdict="set", summary="s", settings=[pool]),
        Decision(id="thread-pools", verdict="enable", summary="s", settings=[aio]),
    ]
    for decisions, names in ((both, ["thread_pool big", "aio threads=big"]), (both[1:], [])):
        held = as_changes(Decisions(decisions=both), tree)
        ids = {one.id for one in decisions}
        held = replace(held, decisions=[one for one in held.decisions if one.id in ids])
        changes = plan_changes(held, tree, lambda _: set())
        new = b"".join(contents(changes).values()).decode()
        assert all(name in new for name in names)
        assert bool(new) == bool(names)
        assert [one.reason.partition(" (")[0] for one in changes.refusals] == (
            [] if names else ["it needs thread_pool big threads=8"]
        )


RISKY = """events { worker_connections 512; }
http {
    server { listen 8080; location / { proxy_pass http://app; } }
    upstream app { server 192.0.2.1:9000; }
}
"""


def test_each_change_carries_the_risks_of_its_decision(tmp_path: Path) -> None:
    tree = write(tmp_path, {"nginx.conf": RISKY})
    facts = facts_of("kvm-guest")
    risks = {one.id: one.risks for one in as_changes(decided(tree, facts, "proxy"), tree).decisions}
    changes = planned(tree, facts, "proxy")
    hunks = [hunk for file in changes.files for hunk in file.hunks]
    assert all(hunk.risks == risks[hunk.decision] for hunk in hunks)
    kept = [hunk for hunk in hunks if hunk.decision == "upstream-keepalive"]
    assert len(kept) > 1
    assert any("idle" in risk for risk in kept[0].risks)
    plan = Plan(conf_path=tree.path, files=changes.files)
    old = {tree.path: RISKY.encode()}
    diff, page = render_plan_diff(plan, old).decode(), render_plan_markdown(plan, old)
    for risk in dict.fromkeys(risk for hunk in hunks for risk in hunk.risks):
        assert diff.count(f"#   risk: {risk}\n") == 1, "once, beside the first of its lines"
        assert page.count(f"  - risk: {markdown_text(risk)}\n") == 1
    silent = replace(
        plan,
        files=[
            replace(file, hunks=[replace(hunk, risks=[]) for hunk in file.hunks])
            for file in plan.files
        ],
    )
    assert "risk:" not in render_plan_diff(silent, old).decode()
    assert "risk:" not in render_plan_markdown(silent, old)


def test_a_diff_with_risks_is_applied_by_patch(tmp_path: Path) -> None:
    tree = write(tmp_path, {"nginx.conf": RISKY})
    changes = planned(tree, facts_of("kvm-guest"), "proxy")
    diff = render_plan_diff(
        Plan(conf_path=tree.path, files=changes.files), {tree.path: RISKY.encode()}
    )
    assert diff.index(b"+++ ") < diff.index(b"#   risk: ")
    subprocess.run(
        ["patch", "-s", f"-p{len(tmp_path.parts)}", "-d", tmp_path], input=diff, check=True
    )
    assert Path(tree.path).read_bytes() == contents(changes)[tree.path]
