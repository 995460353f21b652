"""Caches that were generated or planned, on a real nginx: who gets what, and who waits."""

import gzip
import http.client
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import free_ports
import pytest
from generated_files import _site as site
from made_decisions import decide
from rows import each_row
from situations import host, nginx
from started import serving
from test_plan_changes import contents, write

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Decisions, Setting
from nginx_tune.documents.site import Site, Upstream
from nginx_tune.documents.workload import Kind, Workload

AT_ONCE = 4
"""Requests for one page; with a lock each but the first waits for half a second more."""


PACKED = gzip.compress(b"for nobody", mtime=0)


class Origin(BaseHTTPRequestHandler):
    """Answers when as many requests are there as are to come at once, or after a while."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        origin: TogetherOrigin = self.server  # type: ignore[assignment]
        user = self.headers.get("Authorization", "nobody")
        if self.path == "/check" and "alice" not in self.headers.get("Cookie", ""):
            self.send_response(401)
            self.send_header("Cache-Control", "max-age=600")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path.startswith("/private"):
            origin.arrive()
        place = f" at {self.headers['X-Place']}" if "X-Place" in self.headers else ""
        body = f"for {user}{place}".encode()
        if self.path == "/host":
            body = self.headers["Host"].encode()
        if self.path == "/forwarded":
            named = (self.headers.get(f"X-Forwarded-{one}", "-") for one in ("Proto", "Host"))
            body = " ".join(named).encode()
        self.send_response(200)
        if self.path == "/packed" and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = PACKED
            self.send_header("Content-Encoding", "gzip")
        kept = "private" if self.path.startswith("/private") else "max-age=600"
        self.send_header("Cache-Control", kept)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class TogetherOrigin(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Origin)
        self.most = 0
        self.patience_seconds = 0.1
        self._here = 0
        self._changed = threading.Condition()

    def arrive(self) -> None:
        with self._changed:
            self._here += 1
            self.most = max(self.most, self._here)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= AT_ONCE, timeout=self.patience_seconds)
            self._here -= 1


@pytest.fixture
def origin() -> Iterator[TogetherOrigin]:
    server = TogetherOrigin()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def fetch(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def generated(
    folder: Path, port: int, origin: TogetherOrigin, *, locks: bool = False, packs: bool = True,
    kind: Kind = "cache",
) -> list[str]:  # fmt: skip
    """nginx with a generated cache (or proxy) in front of the origin, in the foreground."""
    facts = host(nginx=nginx("1.22.1"))
    given = complete_site(
        site(
            listen=[f"127.0.0.1:{port}"],
            cache_dirs=[str(folder / "c")],
            upstreams=[Upstream(name="app", servers=[f"127.0.0.1:{origin.server_address[1]}"])],
            error_log=f"{folder}/error.log",
            access_log=f"{folder}/access.log",
            gzip=["gzip on"] if packs else [],
        ),
        facts,
        kind,
    )
    lock = Setting(context="location", directive="proxy_cache_lock", args=["on"])
    text = emit_decided(
        decide(facts, Workload(kind=kind), site=given),
        given,
        forced=[
            Setting(context="main", directive="daemon", args=["off"]),
            Setting(context="main", directive="pid", args=[f"{folder}/pid"]),
            Setting(context="main", directive="user", args=["root"]),
            Setting(context="main", directive="worker_processes", args=["1"]),
            Setting(context="main", directive="worker_rlimit_nofile", args=["4096"]),
            Setting(context="events", directive="worker_connections", args=["512"]),
            *([lock] if locks else []),
        ],
    )
    return command(folder, text)


def command(folder: Path, text: str) -> list[str]:
    """nginx with that text as its configuration, which names the foreground."""
    conf = folder / "nginx.conf"
    conf.write_text(text, encoding="utf-8")
    return ["nginx", "-c", str(conf)]


@pytest.mark.needs("nginx", "root")
@each_row("locks", [False, True])
def test_requests_at_once_for_a_page_that_may_not_be_kept_all_reach_its_server(
    tmp_path: Path, free_port: int, origin: TogetherOrigin, *, locks: bool
) -> None:
    """Not one after the other, each half a second after the one before, as a lock has it."""
    origin.most, origin.patience_seconds = 0, 0.1 if locks else 30
    with (
        serving(generated(tmp_path, free_port, origin, locks=locks), free_port),
        ThreadPoolExecutor(AT_ONCE) as clients,
    ):
        answers = list(clients.map(lambda _: fetch(free_port, "/private"), range(AT_ONCE)))
    assert answers == [(200, b"for nobody")] * AT_ONCE
    assert origin.most == (1 if locks else AT_ONCE)


@pytest.mark.needs("nginx", "root")
@each_row("packs", [False, True])
def test_nobody_gets_what_a_server_compressed_for_another(
    tmp_path: Path, free_port: int, origin: TogetherOrigin, *, packs: bool
) -> None:
    """The server says no Vary, as nginx does not without gzip_vary."""
    with serving(generated(tmp_path, free_port, origin, packs=packs), free_port):
        able = fetch(free_port, "/packed", **{"Accept-Encoding": "gzip"})
        plain = fetch(free_port, "/packed", **{"Accept-Encoding": "identity"})
    assert able == (200, b"for nobody" if packs else PACKED)
    assert plain == (200, b"for nobody")


CURRENT_SETTINGS = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root;
events {{}}
http {{
    access_log off;
    upstream app {{ server {origin}; }}
    server {{
        listen 127.0.0.1:{port};
        {server}
        location / {{ proxy_pass http://app; proxy_set_header Authorization $http_authorization; }}
    }}
}}
"""


def adopted(folder: Path, text: str) -> tuple[ConfTree, Decisions]:
    """A cache of its own for a site that has none."""
    tree = write(folder, {"nginx.conf": text})
    facts = host(nginx=nginx("1.22.1"))
    given = complete_site(site_in(tree, Site(cache_dirs=[str(folder / "c")])), facts, "cache")
    made = decide(facts, Workload(kind="cache", kind_provenance="declared"), site=given)
    kept = ("cache-layout", "cache-key", "cache-updates")
    few = type(made)(kind="cache", decisions=[one for one in made.decisions if one.id in kept])
    return tree, as_changes(few, tree)


def with_cache(folder: Path, text: str) -> str:
    tree, held = adopted(folder, text)
    changes = plan_changes(held, tree, lambda _: set(), annotates=False)
    return contents(changes)[tree.path].decode()


@pytest.mark.needs("nginx", "root")
def test_a_planned_cache_keeps_no_answer_to_who_shows_credentials(
    tmp_path: Path, free_port: int, origin: TogetherOrigin
) -> None:
    """nginx would keep it by its max-age for all."""
    address = f"127.0.0.1:{origin.server_address[1]}"
    text = with_cache(
        tmp_path,
        CURRENT_SETTINGS.format(folder=tmp_path, origin=address, port=free_port, server=""),
    )
    with serving(command(tmp_path, text), free_port):
        for user in ("alice", "bob"):
            assert fetch(free_port, "/me", Authorization=user) == (200, f"for {user}".encode())
        assert fetch(free_port, "/me") == (200, b"for nobody")
        assert fetch(free_port, "/me", Authorization="bob") == (200, b"for bob")
        # Of one $host, with a port that a redirect would name: an entry of its own.
        poisoned = fetch(free_port, "/you", Host="127.0.0.1:1337")
        assert poisoned == fetch(free_port, "/you") == (200, b"for nobody")
    assert len([one for one in (tmp_path / "c").rglob("*") if one.is_file()]) == 3


@pytest.mark.needs("nginx", "root")
@each_row("planned", [True, False])
def test_no_page_is_kept_for_all_by_what_one_client_says_of_host_and_scheme(
    tmp_path: Path, free_port: int, origin: TogetherOrigin, *, planned: bool
) -> None:
    """nginx passes such headers on as they come, and servers make redirects and links of them."""
    address = f"127.0.0.1:{origin.server_address[1]}"
    if planned:
        current = CURRENT_SETTINGS.format(
            folder=tmp_path, origin=address, port=free_port, server=""
        )
        started = command(tmp_path, with_cache(tmp_path, current))
    else:
        started = generated(tmp_path, free_port, origin)
    with serving(started, free_port):
        evil = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.test"}
        first = fetch(free_port, "/forwarded", **evil)[1].decode()
        assert first == ("https evil.test" if planned else f"http 127.0.0.1:{free_port}")
        for _ in range(2):
            assert b"evil.test" not in fetch(free_port, "/forwarded")[1]
        plain = fetch(free_port, "/forwarded", **{"X-Forwarded-Proto": "http"})[1]
        assert b"https" not in plain


ASKING = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root;
events {{}}
http {{
    access_log off;
    upstream app {{ server {origin}; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://app; }}
        location /staff/ {{ auth_request /check; proxy_pass http://app; }}
        location = /check {{ proxy_pass http://app; }}
    }}
}}
"""


@pytest.mark.needs("nginx", "root")
def test_a_planned_cache_lets_nobody_in_whom_nginx_would_ask_first(
    tmp_path: Path, free_port: int, origin: TogetherOrigin
) -> None:
    """The server lets its yes and no be kept; a cache would have them by the page's address."""
    address = f"127.0.0.1:{origin.server_address[1]}"
    text = with_cache(tmp_path, ASKING.format(folder=tmp_path, origin=address, port=free_port))
    assert text.count("proxy_cache cache_1;") == 1
    with serving(command(tmp_path, text), free_port):
        for _ in range(2):
            assert fetch(free_port, "/staff/page", Cookie="user=alice")[0] == 200
            assert fetch(free_port, "/staff/page", Cookie="user=mallory")[0] == 401
        assert fetch(free_port, "/page") == (200, b"for nobody")
    assert len([one for one in (tmp_path / "c").rglob("*") if one.is_file()]) == 1


SEVERAL = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root;
events {{}}
http {{
    access_log off;
    upstream one {{ server {origin}; }}
    upstream two {{ server {origin}; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://one; proxy_set_header X-Place $server_port; }}
        location /sorry/ {{ proxy_pass http://two; proxy_set_header X-Place sorry; }}
        location /gone/ {{ error_page 403 =200 /sorry/page; return 403; }}
    }}
    server {{
        listen 127.0.0.1:{other};
        location / {{ proxy_pass http://one; proxy_set_header X-Place $server_port; }}
        location /gone/ {{ proxy_pass http://two; proxy_set_header X-Place gone; }}
    }}
}}
"""


@pytest.mark.needs("nginx", "root")
def test_one_address_of_several_servers_and_places_is_several_pages(
    tmp_path: Path, free_port: int, origin: TogetherOrigin
) -> None:
    """The name of a host has no port, and an error page has the address of what failed."""
    address = f"127.0.0.1:{origin.server_address[1]}"
    other = free_ports.free_port()
    text = with_cache(
        tmp_path, SEVERAL.format(folder=tmp_path, origin=address, port=free_port, other=other)
    )
    assert text.count("proxy_cache cache_1;") == 4
    with serving(command(tmp_path, text), free_port):
        for _ in range(2):
            assert fetch(free_port, "/a") == (200, f"for nobody at {free_port}".encode())
            assert fetch(other, "/a") == (200, f"for nobody at {other}".encode())
            assert fetch(free_port, "/gone/a") == (200, b"for nobody at sorry")
            assert fetch(other, "/gone/a") == (200, b"for nobody at gone")
    assert len([one for one in (tmp_path / "c").rglob("*") if one.is_file()]) == 4


def test_a_cache_that_stands_keeps_its_key_and_its_ways(tmp_path: Path) -> None:
    own = "proxy_cache_path /srv/c keys_zone=z:10m max_size=1g;"
    text = CURRENT_SETTINGS.format(
        folder=tmp_path, origin="127.0.0.1:9", port=80, server="proxy_cache z;"
    )
    _, held = adopted(tmp_path, text.replace("access_log off;", own))
    for one in held.decisions:
        assert {s.directive for s in one.settings} <= {"proxy_cache_path"}, one
        if one.id != "cache-layout":
            assert one.verdict == "keep"
            assert "existing caches keep their settings" in one.summary


def test_a_site_that_passes_nothing_on_is_told_why_it_gets_no_cache(tmp_path: Path) -> None:
    _, held = adopted(tmp_path, "events {} http { server { listen 80; root /srv; } }")
    key = next(one for one in held.decisions if one.id == "cache-key")
    assert key.settings == []
    assert "nothing is proxied by proxy_pass" in key.summary


@pytest.mark.needs("nginx", "root")
@each_row("kind", ["proxy", "cache"])
def test_a_server_is_told_the_port_that_its_client_named(
    tmp_path: Path, free_port: int, origin: TogetherOrigin, kind: Kind
) -> None:
    """Else the links and redirects that it makes lead to port 80."""
    with serving(generated(tmp_path, free_port, origin, kind=kind), free_port):
        asked = [f"a.example:{free_port}", "a.example:81", "a.example", "[::1]:82", "[::1]"]
        for host in [*asked, *asked]:
            _, body = fetch(free_port, "/host", Host=host)
            assert body.decode() == host, "and no cached page of another"
        # As over HTTP/3, where there is no header of that name.
        with socket.create_connection(("127.0.0.1", free_port), timeout=20) as one:
            one.sendall(b"GET /host HTTP/1.0\r\n\r\n")
            assert one.makefile("rb").read().endswith(f":{free_port}".encode())
