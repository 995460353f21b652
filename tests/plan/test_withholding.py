"""What stands in a tree that a decision would break keeps it from being written."""

from made_decisions import decide
from msgspec.structs import replace
from rows import each_row
from situations import host, load, nginx, site

from nginx_tune.audit.engine import audit
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import roots_in, site_in
from nginx_tune.conf.http2 import http2_fault
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.storage import on_shared_folder
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Workload

TLS = """events { }
http {
    %s
    server {
        listen 443 ssl; ssl_certificate c.pem; ssl_certificate_key k.pem; root /srv/1;
        %s
    }
}
"""
OLD = "ssl_ciphers AES256-GCM-SHA384:AES128-SHA;"
BOTH = "ssl_ciphers AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256;"
ZONE = "limit_conn_zone $binary_remote_addr zone=perip:10m;"


def held(conf: str, name: str, version: str = "1.26.3") -> Decision:
    tree = parse_text(conf, file="/n.conf")
    facts = host(nginx=nginx(version, ["--with-http_v2_module", "--with-threads"]))
    given = site_in(tree, site(roots=["/srv/1"]))
    decisions = decide(facts, load(cold_peak=200), site=given)
    return {d.id: d for d in as_changes(decisions, tree).decisions}[name]


@each_row("version", ["1.22.1", "1.26.3"])
@each_row(
    ("http", "server", "reason"),
    [
        ("", f"ssl_protocols TLSv1.2; {OLD}", "only ciphers over TLS 1.2 that HTTP/2 forbids"),
        ("", f"ssl_prefer_server_ciphers on; {BOTH}", "prefers a cipher that HTTP/2 forbids"),
        (OLD, "", "/n.conf:3 ssl_ciphers"),
        (ZONE, "limit_conn perip 4;", "/n.conf:6 limit_conn perip 4"),
        (ZONE, "location /dl/ { limit_conn perip 2; }", "lim-conn-h2"),
    ],
)
def test_http2_stays_off_where_browsers_would_be_refused(
    http: str, server: str, reason: str, version: str
) -> None:
    d = held(TLS % (http, server), "http2", version)
    assert (d.verdict, d.settings) == ("keep", [])
    assert reason in d.summary


@each_row(
    ("http", "server"),
    [
        ("", ""),
        ("", BOTH),
        ("", f"ssl_protocols TLSv1.3; {OLD}"),
        ("", "ssl_prefer_server_ciphers on; ssl_ciphers HIGH:!aNULL:!MD5;"),
        (ZONE, "limit_conn perip 100;"),
        (ZONE, "limit_conn perip 4; limit_conn_dry_run on;"),
    ],
)
def test_http2_is_written_where_nothing_speaks_against_it(http: str, server: str) -> None:
    d = held(TLS % (http, server), "http2")
    assert [s.directive for s in d.settings] == ["http2"]
    assert not any("RFC 9113" in risk for risk in d.risks)


def test_beside_tls_13_old_ciphers_are_a_risk() -> None:
    d = held(TLS % ("", f"ssl_protocols TLSv1.2 TLSv1.3; {OLD}"), "http2")
    assert [s.directive for s in d.settings] == ["http2"]
    assert any("browsers with TLS 1.2 close the connection" in risk for risk in d.risks)


@each_row(
    ("ciphers", "chosen", "offered"),
    [
        ("HIGH:!aNULL:!MD5", None, None),
        ("EECDH+AESGCM:EDH+AESGCM", None, None),
        ("ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA", None, None),
        ("ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305", None, None),
        ("ECDHE-RSA-AES256-SHA384:ECDHE-RSA-AES128-GCM-SHA256", "first", None),
        ("ECDHE-ECDSA-AES128-GCM-SHA256:AES256-SHA:ECDHE-RSA-AES128-GCM-SHA256", "first", None),
        ("DES-CBC3-SHA:ECDHE-RSA-AES128-GCM-SHA256", None, None),
        ("kRSA+AESGCM", "only", "only"),
        ("AES128-GCM-SHA256 AES256-SHA", "only", "only"),
        ("HIGH:!ECDHE", "only", "only"),
        ("PROFILE=SYSTEM", None, None),
    ],
)
def test_ciphers_of_http2(ciphers: str, chosen: str | None, offered: str | None) -> None:
    assert http2_fault(ciphers, server_chooses=True) == chosen
    assert http2_fault(ciphers, server_chooses=False) == offered


RTMP = "worker_processes 1; %s events { } http { server { root /srv/1; } }"


def test_workers_beside_live_streams_are_left_alone() -> None:
    d = held(RTMP % "rtmp { server { listen 1935; } }", "workers")
    assert (d.verdict, d.settings) == ("keep", [])
    assert "rtmp_auto_push" in d.summary
    for other in ("", "rtmp_auto_push on; rtmp { server { listen 1935; } }"):
        assert [s.args for s in held(RTMP % other, "workers").settings] == [["auto"]]


def test_the_audit_asks_for_no_more_workers_beside_streams_of_one() -> None:
    def found(more: str) -> bool:
        tree = parse_text(RTMP % more, file="/n.conf")
        return any(one.rule == "lim-workers-one" for one in audit(tree, host()).findings)

    udp = "stream { server { listen 53 udp%s; proxy_pass 10.0.0.1:53; } }"
    assert not found("rtmp { server { listen 1935; } }")
    assert not found(udp % "")
    assert found(udp % " reuseport")
    assert found("rtmp_auto_push on; rtmp { server { listen 1935; } }")
    assert found("")


COPIED = """events { }
http {
    sendfile off;
    server { location / { root /srv/1; } location /n { sendfile off; root /srv/1; } }
}
"""


def test_a_locations_own_sendfile_off_stays() -> None:
    d = held(COPIED, "sendfile")
    (wanted,) = d.settings
    assert [(place.line, place.text) for place in wanted.places] == [(3, "sendfile off")]
    assert any("/n.conf:4 sendfile off stays" in risk for risk in d.risks)
    alone = COPIED.replace("location / { root /srv/1; }", "").replace("sendfile off;\n", "\n")
    alone = alone.replace("server { ", "server { location / { sendfile off; root /srv/1; } ")
    assert (held(alone, "sendfile").verdict, held(alone, "sendfile").settings) == ("keep", [])


SERVED = """events { }
http {
    %s
    server { root /srv/1; location / { } }
    server { root %s; %s location /b/ { } }
}
"""


def sendfile(text: str, *filesystems: str | None) -> Decision:
    """The decision where ``/srv/1`` and on lie on these."""
    tree = parse_text(text, file="/n.conf")
    facts = host(disks=len(filesystems))
    paths = [
        replace(path, filesystem=name)
        for path, name in zip(facts.storage.paths, filesystems, strict=True)
    ]
    facts = replace(facts, storage=replace(facts.storage, paths=paths))
    decisions = decide(facts, load(), site=site_in(tree, Site(roots=roots_in(tree))))
    return {d.id: d for d in as_changes(decisions, tree).decisions}["sendfile"]


OFF = "sendfile off;"


@each_row(
    ("second", "filesystems"),
    [
        ("/srv/2", (None, None)),
        ("/srv/2", ("ext4", None)),
        ("/srv/2", ("ext4", "fuse.sshfs")),
        ("/srv/2", ("nfs4", "ext4")),
        ("/elsewhere", ("ext4",)),
        ("/srv/1/$arg_a", ("ext4",)),
    ],
)
def test_a_written_sendfile_off_stays_where_the_file_system_may_need_it(
    second: str, filesystems: tuple[str | None, ...]
) -> None:
    d = sendfile(SERVED % (OFF, second, ""), *filesystems)
    assert (d.verdict, d.settings) == ("keep", [])
    assert "/n.conf:3 sendfile off stays: the file" in d.summary
    if "$" in second:
        return
    d = sendfile(SERVED % ("", second, OFF), *filesystems)
    assert [[p.text for p in s.places] for s in d.settings] == [["http"]]
    assert any("/n.conf:5 sendfile off stays: the file" in risk for risk in d.risks)


@each_row(
    ("http", "server", "changed"),
    [(OFF, "", ["sendfile off"]), ("", OFF, ["http", "sendfile off"]), ("", "", ["http"])],
)
def test_a_written_sendfile_off_goes_where_all_files_are_known_to_be_on_disks(
    http: str, server: str, changed: list[str]
) -> None:
    d = sendfile(SERVED % (http, "/srv/2", server), "ext4", "xfs")
    assert [p.text for s in d.settings for p in s.places] == changed
    assert not any("stays" in risk for risk in d.risks)


def test_a_shared_folder_turns_sendfile_off_where_its_files_are_sent_alone() -> None:
    sent = "server { location / { root /srv/1; %s } location /a { proxy_pass http://10.0.0.1; } }"
    text = f"events {{ }} http {{ sendfile on; {sent} }}"
    assert sendfile(text % "", "vboxsf").settings
    assert not sendfile(text % OFF, "vboxsf").settings


BEHIND = "events { } http { server { listen 80; root /srv/1; } } worker_processes 8;"


@each_row("version", ["1.14.2", "1.15.2"])
@each_row("is_first", [True, False])
def test_reuseport_is_not_written_where_old_nginx_ignores_it(
    version: str, *, is_first: bool
) -> None:
    text = BEHIND
    if is_first:
        text = f"worker_processes 8; {text.partition(' worker')[0]}"
    tree = parse_text(text, file="/n.conf")
    facts = host(cpus=16, nginx=nginx(version))
    workload = load(data_bytes=1 << 20, file_bytes=1 << 10, rate=160_000)
    decisions = decide(facts, workload, site=site_in(tree, site(roots=["/srv/1"])))
    d = {d.id: d for d in as_changes(decisions, tree).decisions}["reuseport"]
    is_written = is_first or version == "1.15.2"
    assert bool(d.settings) is is_written
    assert ("comes after http" in d.summary) is not is_written


SENT = "events { } http { sendfile on; server { root /srv/1; } }"


@each_row("name", ["virtiofs", "osxfs", "fuse.grpcfuse", "hgfs", "fuse.vmhgfs-fuse"])
def test_decision_and_audit_know_the_same_shared_folders(name: str) -> None:
    def on(filesystem: str) -> Facts:
        facts = host()
        paths = [replace(one, filesystem=filesystem) for one in facts.storage.paths]
        return replace(facts, storage=replace(facts.storage, paths=paths))

    tree = parse_text(COPIED.replace("/srv/1", host().storage.paths[0].path), file="/n.conf")
    for filesystem, is_shared in ((name, True), ("ext4", False)):
        facts = on(filesystem)
        assert (on_shared_folder(["/srv/1"], facts.storage) is not None) == is_shared
        found = {one.rule for one in audit(tree, facts).findings}
        assert ("io-sendfile-off-static" in found) != is_shared
        sent = parse_text(SENT, file="/n.conf")
        found = {one.rule for one in audit(sent, facts).findings}
        assert ("io-sendfile-shared-folder" in found) == is_shared


FILTERED = """events { }
http { server {
    root /srv/1;
    location /a/ { %s }
    location /b/ { }
    %s
} }
"""


@each_row("line", ["ssi on;", "sub_filter a b;", "image_filter test;"])
def test_no_threads_are_inherited_where_a_filter_reads_bodies(line: str) -> None:
    settings = held(FILTERED % (line, ""), "thread-pools").settings
    off = [s for s in settings if s.args == ["off"]]
    assert [(s.block, [p.line for p in s.places]) for s in off] == [("/a/", [4])]
    on = [place.line for s in settings if s.args[0].startswith("threads") for place in s.places]
    assert on == [2]


def test_without_a_filter_no_aio_off_is_written() -> None:
    for line in ("", "ssi off;"):
        settings = held(FILTERED % (line, ""), "thread-pools").settings
        assert settings
        assert all(s.args[0].startswith("threads") for s in settings if s.directive == "aio")


def test_pools_are_left_where_every_body_is_filtered() -> None:
    d = held(FILTERED % ("", "ssi on;"), "thread-pools")
    assert (d.verdict, d.settings) == ("keep", [])
    assert "ssi on" in d.summary


POOLS = """thread_pool disk1 threads=16; thread_pool disk2 threads=16; events { }
http { server { listen 80; location / { root /srv/1; %s } location /b/ { root /srv/1; %s } } }
"""


@each_row(
    ("lines", "places"),
    [
        (("aio threads=disk1;", "aio threads=disk2;"), []),
        (("aio threads=$pool;", "aio threads=$pool;"), []),
        (("aio threads=disk1;", "aio threads=$pool;"), []),
        (("aio threads=$pool;", ""), ["location /b/"]),
        (("aio threads=disk1;", ""), ["aio threads=disk1", "location /b/"]),
    ],
)
def test_pools_of_their_own_are_not_taken_from_disks(
    lines: tuple[str, str], places: list[str]
) -> None:
    """In one pool the reads of one slow disk would hold up all others."""
    d = held(POOLS % lines, "thread-pools")
    assert [place.text for s in d.settings for place in s.places] == places


@each_row(("own", "stays"), [("2 1m", True), ("4 1m", True), ("2 4k", False)])
def test_larger_buffers_stay(own: str, *, stays: bool) -> None:
    d = held(TLS % (f"output_buffers {own};", ""), "output-buffers")
    assert (d.settings == []) is stays


@each_row(
    ("caches", "more"),
    [
        ("", 0),
        ("open_file_cache off;", 0),
        ("open_file_cache max=50000 inactive=5m;", 50000),
        ("open_file_cache max=900; location /a { open_file_cache max=100; }", 1000),
    ],
)
def test_open_files_that_stand_count_among_the_descriptors(caches: str, more: int) -> None:
    text = f"events {{}} http {{ upstream app {{ server 10.0.0.1; }} server {{ {caches} }} }}"
    tree = parse_text(text, file="/n.conf")
    facts = host(nginx=nginx("1.26.3", ["--with-threads"]))
    decisions = decide(facts, Workload(kind="proxy"), site=site_in(tree, Site(roots=[])))
    plain, own = (
        next(s for d in some.decisions for s in d.settings if s.directive == "worker_rlimit_nofile")
        for some in (decisions, as_changes(decisions, tree))
    )
    assert abs(int(own.args[0]) - int(plain.args[0]) - more) < 1024


UNREAD = {
    "%s events { } http { server { listen 80; root /srv/1; } }": ["workers", "file-limits"],
    "events { %s } http { server { listen 80; root /srv/1; } }": ["workers", "connections"],
    "http { %s server { listen 80; root /srv/1; } } events { }": ["workers", "sendfile"],
    "events { } http { server { listen 80; root /srv/1; %s } }": ["workers", "sendfile"],
    "events { } http { sendfile off; server { listen 80; root /srv/1; %s } }": ["workers"],
    "worker_processes 2; events { } http { server { listen 80; root /srv/1; %s } }": ["sendfile"],
}


@each_row("text", UNREAD)
def test_a_line_that_an_unread_file_may_have_is_not_added(text: str) -> None:
    facts, watched = host(), ("workers", "connections", "file-limits", "sendfile")
    for include, lost in (("", []), ("include mime.types;", []), ("include gone;", UNREAD[text])):
        tree = parse_text(text % include, file="n.conf")
        decisions = decide(facts, load(), site=site_in(tree, site(roots=["/srv/1"])))
        held = {one.id: one for one in as_changes(decisions, tree).decisions}
        blocked = [name for name in watched if held[name].blocked_by]
        assert (include, blocked) == (include, lost)
        assert not any(held[name].settings for name in blocked)
        assert all(held[name].blocked_by.startswith("gone was not read") for name in blocked)


@each_row(("method", "written"), [("select", False), ("epoll", True)])
def test_no_more_connections_than_select_takes(method: str, written: bool) -> None:
    """ngx_select_init_conf(): nginx does not start with more than FD_SETSIZE."""
    conf = f"events {{ use {method}; }}\nhttp {{ server {{ listen 80; root /srv/1; }} }}\n"
    d = held(conf, "connections")
    assert bool(d.settings) is written
    assert (
        "with /n.conf:1 use select nginx does not start with more than 1024" in d.summary
    ) is not written
