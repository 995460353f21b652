"""What the emitter does with forced settings, hostile sites and its provenance."""

import re
import subprocess
from functools import cache
from pathlib import Path

import msgspec
import pytest
from generated_files import _site as site
from made_decisions import decide
from real_nginx import check
from rows import each_row
from situations import host, lab_host, lab_load, load, nginx

from nginx_tune.change.generate.nginx_conf import (
    emit_decided,
    emit_nginx_conf,
    emit_plain,
    write_variant,
)
from nginx_tune.change.generate.writing import FileProvenance, header
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Decisions, Setting
from nginx_tune.documents.scenario import VariantSpec
from nginx_tune.documents.site import Site, SiteTls, Upstream
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import UsageError


def forced(context: str, directive: str, *args: str, block: str = "") -> Setting:
    return msgspec.convert(
        {"context": context, "directive": directive, "args": list(args), "block": block}, Setting
    )


def lines_of(text: str, directive: str) -> list[str]:
    return [
        line.split("  #")[0].strip()
        for line in text.splitlines()
        if line.strip().startswith(directive)
    ]


def test_the_plain_variant_is_the_baseline_of_the_source() -> None:
    """A3."""
    text = emit_plain(site(access_log=None, error_log=None))
    for line in (
        "accept_mutex off;",
        "access_log off;",
        "sendfile on;",
        "sendfile_max_chunk 512k;",
    ):
        assert line in text
    assert "aio" not in text
    assert "thread_pool" not in text


def test_the_plain_variant_of_a_proxy_passes_requests_on() -> None:
    given = site(
        access_log=None,
        upstreams=[Upstream(name="origin", servers=["127.0.0.1:9"])],
        cache_dirs=["/c/1", "/c/2"],
    )
    cache = emit_plain(given, "cache")
    assert lines_of(cache, "proxy_pass") == ["proxy_pass http://origin;"]
    assert lines_of(cache, "proxy_cache_path") == [
        "proxy_cache_path /c/1 levels=1:2 keys_zone=plain:10m;"
    ]
    assert lines_of(cache, "proxy_cache ") == ["proxy_cache plain;"]
    proxy = emit_plain(given, "proxy")
    assert lines_of(proxy, "proxy_pass") == ["proxy_pass http://origin;"]
    assert "proxy_cache_path" not in proxy
    assert emit_plain(given) == emit_plain(given, "media"), "files are served as before"
    assert "proxy_pass" not in emit_plain(given)
    for text in (cache, proxy):
        assert "aio" not in text
        assert "sendfile_max_chunk 512k;" in text


def test_forced_settings_replace_the_same_directive_and_nothing_else() -> None:
    decisions = decide(host(), load(data_bytes=10**6, file_bytes=1000), site=site())
    before = emit_decided(decisions, site())
    after = emit_decided(
        decisions,
        site(),
        forced=[
            forced("location", "aio", "threads"),
            forced("http", "access_log", "off"),
            forced("main", "worker_processes", "1"),
            forced("main", "pid", "/run/x.pid"),
        ],
    )
    assert lines_of(before, "aio ") == []
    assert lines_of(after, "aio ") == ["aio threads;"]
    assert lines_of(after, "worker_processes") == ["worker_processes 1;"]
    assert lines_of(after, "pid") == ["pid /run/x.pid;"]
    assert "access_log off;" in lines_of(after, "access_log")
    assert lines_of(after, "sendfile ") == lines_of(before, "sendfile ")


def test_quic_is_a_listener_of_its_own_beside_each_address() -> None:
    given = site(
        listen=["443 default_server", "[::]:443 ipv6only=on backlog=99", "unix:/run/x.sock"],
        tls=SiteTls(certificate="/c", certificate_key="/k"),
    )
    quic = forced("server", "listen", "quic", "reuseport")
    text = emit_plain(given, forced=[quic, forced("server", "listen", "http2")])
    assert lines_of(text, "listen") == [
        "listen 443 default_server ssl http2;",
        "listen [::]:443 ipv6only=on backlog=99 ssl http2;",
        "listen unix:/run/x.sock ssl http2;",
        "listen 443 default_server quic reuseport;",
        "listen [::]:443 ipv6only=on quic reuseport;",
    ]
    assert "quic " not in emit_plain(given)


@each_row(
    ("listen", "lines"),
    [
        (
            ["80", "443 ssl", "[::]:443 default_server ssl http2", "unix:/run/x.sock"],
            [
                "listen 80 backlog=99;",
                "listen 443 ssl http2 backlog=99;",
                "listen [::]:443 default_server ssl http2 backlog=99;",
                "listen unix:/run/x.sock backlog=99;",
                "listen 443 quic reuseport;",
                "listen [::]:443 default_server quic reuseport;",
            ],
        ),
        (
            ["80", "127.0.0.1:81 http2"],
            [
                "listen 80 ssl http2 backlog=99;",
                "listen 127.0.0.1:81 http2 ssl backlog=99;",
                "listen 80 quic reuseport;",
                "listen 127.0.0.1:81 quic reuseport;",
            ],
        ),
        (["80"], ["listen 443 ssl http2 backlog=99;", "listen 443 quic reuseport;"]),
    ],
)
def test_where_some_addresses_say_that_they_are_for_tls_the_others_stay_plain(
    listen: list[str], lines: list[str]
) -> None:
    given = site(listen=listen, tls=SiteTls(certificate="/c", certificate_key="/k"))
    options = [
        forced("server", "listen", "http2"),
        forced("server", "listen", "backlog=99"),
        forced("server", "listen", "quic", "reuseport"),
    ]
    found = lines_of(emit_plain(given, forced=options), "listen")
    assert [sorted(line[:-1].split()) for line in found] == [
        sorted(line[:-1].split()) for line in lines
    ]


def test_a_forced_setting_without_a_block_holds_in_every_block() -> None:
    decisions = decide(host(disks=2), load(), site=site(roots=["/srv/1", "/srv/2"]))
    text = emit_decided(
        decisions, site(roots=["/srv/1", "/srv/2"]), forced=[forced("location", "aio", "off")]
    )
    assert lines_of(text, "aio ") == ["aio off;", "aio off;"]


def test_both_variants_of_an_experiment_differ_in_what_is_compared_alone() -> None:
    decisions = decide(lab_host(), lab_load(), site=site())
    variants = {
        name: write_variant(
            VariantSpec(decisions=which),
            decisions,
            site=site(),
            kind="media",
            error_log="/run/e.log",
        )
        for name, which in (("baseline", "none"), ("candidate", "recommended"))
    }
    assert "aio threads;" not in variants["baseline"]
    assert "aio threads;" in variants["candidate"]
    for text in variants.values():
        assert lines_of(text, "error_log") == ["error_log /run/e.log warn;"]
        assert lines_of(text, "worker_processes") == ["worker_processes auto;"]
        assert "access_log off;" in text
        assert "location = /healthz {" in text


@each_row(
    ("version", "openssl", "line"),
    [
        ("1.22.1", "OpenSSL 3.0.15", "ssl_protocols TLSv1.2 TLSv1.3;"),
        ("1.30.6", "OpenSSL 3.5.1", "ssl_protocols TLSv1.2 TLSv1.3;"),
        ("1.18.0", None, "ssl_protocols TLSv1.2 TLSv1.3;"),
        ("1.12.2", "OpenSSL 1.0.2k", "ssl_protocols TLSv1.2;"),
    ],
)
def test_tls_protocols_by_what_there_is(version: str, openssl: str | None, line: str) -> None:
    """nginx's own default has TLS 1.0 and no 1.3 until 1.23.4."""
    program = msgspec.structs.replace(nginx(version), openssl=openssl)
    facts = host(nginx=program)
    tls = SiteTls(certificate="/c.pem", certificate_key="/k.pem")
    complete = complete_site(site(tls=tls), facts, "static")
    text = emit_decided(decide(facts, Workload(), site=complete), complete)
    assert lines_of(text, "ssl_protocols") == [line]
    chosen = msgspec.structs.replace(tls, protocols=["TLSv1.3"])
    complete = complete_site(site(tls=chosen), facts, "static")
    text = emit_decided(decide(facts, Workload(), site=complete), complete)
    assert lines_of(text, "ssl_protocols") == ["ssl_protocols TLSv1.3;"]


def test_the_user_of_the_installed_configuration_stays() -> None:
    """A build's own is often nobody, who may not read the files nor the temporary directories."""
    facts = msgspec.structs.replace(host(), nginx=msgspec.structs.replace(nginx(), user="www-data"))
    for given, line in ((Site(), "user www-data;"), (Site(user="web staff"), "user web staff;")):
        complete = complete_site(given, facts, "static")
        text = emit_decided(decide(facts, Workload(), site=complete), complete)
        assert lines_of(text, "user ") == [line]
        assert "a compromised worker is root" not in text
    complete = complete_site(Site(user="root"), facts, "static")
    text = emit_decided(decide(facts, Workload(), site=complete), complete)
    assert "user root;  # workers run as root: a compromised worker is root" in re.sub(
        " {2,}", "  ", text
    )


@pytest.mark.needs("nginx")
def test_the_types_are_no_fewer_than_nginxs_own() -> None:
    given = Path("/etc/nginx/mime.types").read_text()
    found = {
        word
        for line in re.findall(r"^ +[^ ]+/[^ ]+ +([^;]+);", given, re.MULTILINE)
        for word in line.split()
    }
    text = emit_plain(site(access_log=None, error_log=None))
    assert len(found) > 50
    assert not found - set(re.findall(r"[\w.+-]+", text))


HOSTILE = ["/a;b", "/a b", '/a"b', "/a'b", "/a{b}", "/a#b", "/a\\b", "/日本", "/a|b", "/-"]
REFUSED = ["/a\nb", "/a$b", "/a\x1b[0m", "relative", "", "/a\udcff", "/" + "x" * 2000]


@pytest.mark.needs("nginx", "root")
@each_row("name", HOSTILE)
@each_row("kind", ["static", "cache"])
def test_hostile_paths_are_quoted_so_that_nginx_takes_them(
    name: str, kind: str, tmp_path: Path
) -> None:
    path = f"{tmp_path}{name}"
    hostile = site(
        roots=[path],
        cache_dirs=[path],
        error_log=f"{tmp_path}/error.log",
        access_log=f"{tmp_path}/access.log",
        upstreams=[Upstream(name="app", servers=["127.0.0.1:9000"])],
    )
    workload = msgspec.structs.replace(load(), kind=kind)
    conf = tmp_path / "nginx.conf"
    text = emit_decided(decide(host(), workload, site=hostile), hostile)
    conf.write_text(f"pid {tmp_path}/pid;\n{text}", encoding="utf-8")
    run = check(str(conf))
    assert run.returncode == 0, run.stderr
    if kind == "cache":
        assert Path(path).is_dir(), "nginx read another path"


@cache
def decided_once() -> Decisions:
    return decide(host(), load(), site=site())


def decided_for(field: str, hostile: Site) -> Decisions:
    """Decisions write the directories of caches and access logs; the rest they leave alone."""
    if field not in ("cache_dirs", "access_log"):
        return decided_once()
    kind: Kind = "cache" if field == "cache_dirs" else "static"
    return decide(host(), msgspec.structs.replace(load(), kind=kind), site=hostile)


@pytest.mark.long
@each_row("value", REFUSED)
@each_row("field", ["roots", "cache_dirs", "error_log", "access_log", "tls"])
def test_hostile_paths_that_cannot_be_quoted_are_refused(field: str, value: str) -> None:
    parts: dict[str, object] = {
        "roots": {"roots": [value]},
        "cache_dirs": {"cache_dirs": [value]},
        "error_log": {"error_log": value},
        "access_log": {"access_log": value},
        "tls": {"tls": SiteTls(certificate=value, certificate_key="/k")},
    }[field]  # type: ignore[assignment]
    upstreams = [Upstream(name="app", servers=["127.0.0.1:9000"])]
    hostile = site(**parts, upstreams=upstreams)
    with pytest.raises(UsageError) as caught:
        emit_decided(decided_for(field, hostile), hostile)
    assert caught.value.message.isprintable()


@each_row(
    "parts",
    [
        {"cache_dirs": ["/"]},
        {"cache_dirs": ["/srv/a", "/var/../var//log/"]},
        {"cache_dirs": ["/srv/a"], "error_log": "/srv/a/logs/error.log"},
        {"listen": []},
        {"listen": ["80; }"]},
        {"listen": ["80 bogus"]},
        {"listen": ["127.0.0.1:80\nuser root"]},
        {"server_names": ["a;b"]},
        {"server_names": ["$host"]},
        {"user": "root; daemon off"},
        {"user": ""},
        {"upstreams": [Upstream(name="a b", servers=["x:1"])]},
        {"upstreams": [Upstream(name="a", servers=[])]},
        {"upstreams": [Upstream(name="a", servers=["x:1;"])]},
        {"upstreams": [Upstream(name="a", servers=["x:1 weight=$w"])]},
        {"upstreams": [Upstream(name="a", servers=["x:1"])] * 2},
        {"listen": ["0"]},
        {"listen": ["99999"]},
        {"listen": ["999.1.1.1:80"]},
        {"listen": ["[:::::]:80"]},
        {"listen": ["80", "*:80"]},
        {"listen": ["0.0.0.0:80", "80 reuseport"]},
        {"listen": ["443 ssl"]},
        {"listen": ["80 backlog=many"]},
        {"listen": ["80 so_keepalive=zz"]},
        {"server_names": ["*"]},
        {"server_names": ["."]},
        {"server_names": ["~("]},
        {"upstreams": [Upstream(name="a", servers=["x:99999"])]},
        {"upstreams": [Upstream(name="a", servers=[":::"])]},
        {"upstreams": [Upstream(name="a", servers=["x:1 weight=0"])]},
        {"upstreams": [Upstream(name="a", servers=["x:1 backup"])]},
        {"upstreams": [Upstream(name=name, servers=["x:1"]) for name in ("app", "APP")]},
        {"hot_locations": ["/"]},
        {"hot_locations": ["hot"]},
        {"roots": ["/a", "/a"]},
        {"tls": SiteTls(certificate="engine:x", certificate_key="/k")},
        {"tls": SiteTls(certificate="/c", certificate_key="engine:x:y")},
    ],
    ids=str,
)
def test_words_that_nginx_would_take_for_something_else_are_refused(
    parts: dict[str, object],
) -> None:
    with pytest.raises(UsageError) as caught:
        emit_plain(site(**parts))
    assert caught.value.message.isprintable()


@pytest.mark.needs("nginx", "root")
@each_row(
    "listen",
    [
        ["127.0.0.1:18080", "[::1]:18080"],
        ["127.0.0.1:18080 default_server"],
        ["unix:{}/a.sock"],
        ["localhost:18080"],
        ["*:18080"],
        ["18080 backlog=64 rcvbuf=16k", "[::1]:18080 ipv6only=on so_keepalive=30m::10"],
    ],
)
def test_every_form_of_address_is_taken(listen: list[str], tmp_path: Path) -> None:
    given = site(
        listen=[item.format(tmp_path) for item in listen],
        server_names=["example.com", "*.example.com", ".example.org", "_"],
        user="root",
        access_log=None,
        error_log=f"{tmp_path}/error.log",
    )
    conf = tmp_path / "nginx.conf"
    conf.write_text(f"pid {tmp_path}/pid;\n{emit_plain(given)}", encoding="utf-8")
    run = check(str(conf))
    assert run.returncode == 0, run.stderr


def test_hostile_reasons_stay_in_their_comment() -> None:
    evil = msgspec.structs.replace(forced("http", "sendfile", "on"), reason="a\n} evil;\x1b[31m")
    text = emit_nginx_conf([], Site(), "static", forced=[evil], left_alone=["x\n} evil;"])
    assert "\x1b" not in text
    assert all(
        line.lstrip().startswith("#") or "#" in line for line in text.splitlines() if "evil" in line
    )


def test_the_header_names_the_inputs_and_nothing_of_the_reader() -> None:
    facts, workload = host(), load()
    text = header(
        FileProvenance("cache", facts, workload, site(), cache_dirs=["/data/a b", "/data/2"])
    )
    assert "--facts FACTS.json --workload WORKLOAD.json --site SITE.json --kind cache" in text
    assert "--cache-dir '/data/a b' --cache-dir /data/2" in text
    assert text.count("sha256:") == 3
    assert "SITE" not in header(FileProvenance("static", facts))
    assert header(FileProvenance("static", facts)) != header(FileProvenance("static", host(cpus=2)))


@each_row(
    "path", ["/a  b", "/a\u00a0b", "/a\u200bb'c", "/\u202e\\x", "/ä ö", "/a\u3000'"], ids=ascii
)
def test_the_header_names_every_directory_so_that_a_shell_finds_it(path: str) -> None:
    text = header(FileProvenance("cache", host(), cache_dirs=[path]))
    assert all(line.isprintable() for line in text.splitlines())
    command = next(line for line in text.splitlines() if "--cache-dir" in line)
    word = command.partition("--cache-dir ")[2]
    shell = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert shell.stdout.decode() == path


def test_a_hostile_directory_does_not_leave_the_header() -> None:
    text = header(FileProvenance("cache", host(), cache_dirs=["/a\nuser root;"]))
    assert all(line.startswith("#") for line in text.splitlines())
