"""Upstreams of a plan on a real nginx: no request goes over a connection that is not for it."""

import http.client
import subprocess
from pathlib import Path

import pytest
from free_ports import free_port
from made_decisions import decide
from rows import each_row
from situations import host, load, nginx
from started import serving
from test_plan_changes import contents, write

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.site import Site

REUSING = 'proxy_http_version 1.1; proxy_set_header Connection "";'
# To 0.0.0.0 nginx connects on the loopback, which no decision takes it for.
CONF = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root; worker_processes 1;
events {{}}
http {{
    access_log off;
    upstream app {{ server 0.0.0.0:{origin}; {pool} }}
    server {{
        listen 127.0.0.1:{origin} ssl http2;
        ssl_certificate {folder}/c.pem; ssl_certificate_key {folder}/c.key;
        location / {{ return 200 "$scheme $server_protocol"; }}
    }}
    server {{
        listen 127.0.0.1:{port};
        {server}
        {locations}
    }}
}}
"""
ANY = "location /any/ { proxy_pass https://app; }"
VERIFIED = (
    "location /verified/ { proxy_ssl_verify on; proxy_ssl_name origin.test;"
    " proxy_ssl_trusted_certificate %s/other.pem; proxy_pass https://app; }"
)
PLAIN = "location /plain/ { proxy_pass http://app; }"
CALLS = "location /calls/ { grpc_pass grpcs://app; }"


def certificate(folder: Path, name: str) -> None:
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    files = ["-out", f"{folder}/{name}.pem", "-keyout", f"{folder}/{name}.key"]
    command = ["openssl", *request.split(), "-subj", "/CN=origin.test", *files]
    subprocess.run(command, check=True, capture_output=True)


def planned(folder: Path, text: str) -> str:
    """What ``plan`` makes of the connections to upstreams."""
    tree = write(folder, {"nginx.conf": text})
    facts = host(nginx=nginx("1.22.1"))
    given = complete_site(site_in(tree, Site(roots=[])), facts, "proxy")
    made = decide(facts, load("proxy", rate=500), site=given)
    few = [one for one in made.decisions if one.id == "upstream-keepalive"]
    held = as_changes(type(made)(kind="proxy", decisions=few), tree)
    changes = plan_changes(held, tree, lambda _: set(), annotates=False)
    return contents(changes).get(tree.path, text.encode()).decode()


def ask(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST" if path == "/calls/" else "GET", path)  # as gRPC has it
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body if response.status == 200 else ""


@pytest.fixture
def origin_port() -> int:
    return free_port()


POOL = "keepalive 4;"
VERIFIED_OVER_ANY = (VERIFIED, "/verified/", (502, ""), (200, "https HTTP/1.1"))
PLAIN_OVER_TLS = (PLAIN, "/plain/", (400, ""), (200, "https HTTP/1.1"))
CALLS_OVER_1 = (CALLS, "/calls/", (200, "https HTTP/2.0"), (502, ""))


@pytest.mark.needs("nginx", "root", "openssl")
@each_row(
    ("case", "pool"),
    [
        (VERIFIED_OVER_ANY, ""),
        (VERIFIED_OVER_ANY, POOL),
        (PLAIN_OVER_TLS, ""),
        (PLAIN_OVER_TLS, POOL),
        (CALLS_OVER_1, ""),
    ],
)
def test_a_planned_upstream_gives_no_connection_to_who_asks_otherwise(
    tmp_path: Path,
    free_port: int,
    origin_port: int,
    case: tuple[str, str, tuple[int, str], tuple[int, str]],
    pool: str,
) -> None:
    """The plan writes no keepalive there, nor what wakes one that stands."""
    second, path, right, wrong = case
    for name in ("c", "other"):
        certificate(tmp_path, name)
    given = {"folder": tmp_path, "port": free_port, "origin": origin_port}
    locations = f"{ANY}\n{second.replace('%s', str(tmp_path))}"
    text = CONF.format(**given, pool=pool, server="", locations=locations)
    conf = tmp_path / "nginx.conf"
    conf.write_text(planned(tmp_path, text), encoding="utf-8")
    with serving(["nginx", "-c", str(conf)], free_port):
        assert ask(free_port, path) == right
        for _ in range(2):
            assert ask(free_port, "/any/") == (200, "https HTTP/1.0")
        assert ask(free_port, path) == right
    text = CONF.format(**given, pool=POOL, server=REUSING, locations=locations)
    conf.write_text(text, encoding="utf-8")
    with serving(["nginx", "-c", str(conf)], free_port):
        assert ask(free_port, "/any/") == (200, "https HTTP/1.1")
        assert ask(free_port, path) == wrong, "what the plan is kept from"


@pytest.mark.needs("nginx", "root", "openssl")
def test_a_planned_upstream_that_all_ask_alike_keeps_its_connections(
    tmp_path: Path, free_port: int, origin_port: int
) -> None:
    certificate(tmp_path, "c")
    given = {"folder": tmp_path, "port": free_port, "origin": origin_port}
    text = CONF.format(**given, pool="", server="", locations=f"{ANY}\n{ANY.replace('any', 'b')}")
    conf = tmp_path / "nginx.conf"
    text = planned(tmp_path, text.replace("$scheme $server_protocol", "$connection"))
    conf.write_text(text, encoding="utf-8")
    with serving(["nginx", "-c", str(conf)], free_port):
        seen = {ask(free_port, path) for path in ("/any/", "/b/", "/any/")}
    assert len(seen) == 1


COMPRESSING = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root; worker_processes 1;
events {{}}
http {{
    access_log off;
    proxy_cache_path {folder}/cache keys_zone=kept:1m;
    charset_map koi8-r utf-8 {{ C1 D0B0; }}
    upstream app {{ server 0.0.0.0:{origin}; server 0.0.0.0:{origin} backup; }}
    server {{
        listen 127.0.0.1:{origin}; root {folder};
        default_type text/html; gzip on; gzip_min_length 0;
    }}
    server {{
        listen 127.0.0.1:{port};
        location = /plain {{ proxy_pass http://app/page; }}
        location = /filter {{ sub_filter word WORD; proxy_pass http://app/page; }}
        location = /own {{ sub_filter word WORD; proxy_set_header Accept-Encoding "";
            proxy_pass http://app/page; }}
        location = /charset {{ charset utf-8; source_charset koi8-r;
            proxy_pass http://app/koi8; }}
        location = /cache {{ proxy_cache kept; proxy_cache_valid 1h; proxy_pass http://app/page; }}
    }}
}}
"""


def body(port: int, path: str, *, takes_gzip: bool) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"} if takes_gzip else {})
    read = connection.getresponse().read()
    connection.close()
    return read


@pytest.mark.needs("nginx", "root")
def test_a_planned_place_with_a_filter_or_a_cache_gets_nothing_compressed(
    tmp_path: Path, free_port: int, origin_port: int
) -> None:
    """An origin of nginx compresses for HTTP/1.1 alone, which the plan writes for what is kept."""
    given = {"folder": tmp_path, "port": free_port, "origin": origin_port}
    (tmp_path / "page").write_text("a word " * 50, encoding="utf-8")
    (tmp_path / "koi8").write_bytes(b"\xc1" * 50)
    conf = tmp_path / "nginx.conf"
    text = planned(tmp_path, COMPRESSING.format(**given))
    conf.write_text(text, encoding="utf-8")
    with serving(["nginx", "-c", str(conf)], free_port):
        assert body(free_port, "/plain", takes_gzip=True)[:2] == b"\x1f\x8b", "it is changed"
        assert b"a WORD" in body(free_port, "/filter", takes_gzip=True)
        assert b"a WORD" in body(free_port, "/own", takes_gzip=True)
        assert body(free_port, "/charset", takes_gzip=True) == b"\xd0\xb0" * 50
        assert b"a word" in body(free_port, "/cache", takes_gzip=True)
        assert b"a word" in body(free_port, "/cache", takes_gzip=False)
    assert text.count("proxy_http_version 1.1") == len(["/plain", "/own"])
    everywhere = COMPRESSING.format(**given).replace(
        "access_log off;", f"access_log off; {REUSING}"
    )
    conf.write_text(everywhere.replace("/cache keys", "/second keys"), encoding="utf-8")
    with serving(["nginx", "-c", str(conf)], free_port):
        for path in ("/filter", "/charset", "/cache"):
            assert body(free_port, path, takes_gzip=True)[:2] == b"\x1f\x8b"
        assert body(free_port, "/cache", takes_gzip=False)[:2] == b"\x1f\x8b", "not asked for"
