"""Generated configurations that serve: pools are found, keys spread, roots searched in order."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from generated_files import _site as site
from made_decisions import decide
from situations import host, load, nginx
from started import serving

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site, Upstream
from nginx_tune.documents.workload import Workload

pytestmark = pytest.mark.needs("nginx", "root")


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host = self.headers["Host"]
        named = f"{host} {self.path}" if host.endswith((".com", ".test")) else self.path
        named += self.headers.get("Authorization", "")
        body = named.encode() * 1000
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=600")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def run(
    folder: Path, facts: Facts, workload: Workload, given: Site, port: int
) -> AbstractContextManager[None]:
    """nginx with the decided configuration in the foreground."""
    complete = complete_site(given, facts, workload.kind)
    text = emit_decided(
        decide(facts, workload, site=complete),
        complete,
        forced=[
            Setting(context="main", directive="daemon", args=["off"]),
            Setting(context="main", directive="pid", args=[f"{folder}/pid"]),
            Setting(context="main", directive="user", args=["root"]),
            Setting(context="main", directive="worker_processes", args=["2"]),
            Setting(context="main", directive="worker_rlimit_nofile", args=["4096"]),
            Setting(context="events", directive="worker_connections", args=["512"]),
        ],
    )
    conf = folder / "nginx.conf"
    conf.write_text(text, encoding="utf-8")
    return serving(["nginx", "-c", str(conf)], port)


def fetch(
    port: int, path: str, host: str = "127.0.0.1", user: str = ""
) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    shown = {"Authorization": f"Bearer {user}"} if user else {}
    connection.request("GET", path, headers={"Host": host, **shown})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, response.getheader("X-Cache-Status"), body


def fetch_kept(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str | None, bytes]:
    """Asked again: a worker keeps a page just after it has sent it, and another may be asked."""
    deadline = time.monotonic() + 30
    while (found := fetch(port, path, host))[1] == "MISS" and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def served(folder: Path, port: int, **parts: object) -> Site:
    return site(
        listen=[f"127.0.0.1:{port}"],
        error_log=f"{folder}/error.log",
        access_log=f"{folder}/access.log",
        **parts,
    )


def test_three_disks_share_the_keys_and_each_pool_reads(
    tmp_path: Path, free_port: int, origin: str
) -> None:
    """A16."""
    places = [tmp_path / str(number) for number in (1, 2, 3)]
    given = served(
        tmp_path,
        free_port,
        cache_dirs=[str(place) for place in places],
        upstreams=[Upstream(name="app", servers=[origin])],
    )
    facts = host(nginx=nginx("1.22.1"))
    with run(tmp_path, facts, Workload(kind="cache"), given, free_port):
        paths = [f"/object-{number}" for number in range(60)]
        for expected, ask in (("MISS", fetch), ("HIT", fetch_kept)):
            for path in paths:
                status, cached, body = ask(free_port, path)
                assert (status, cached, body) == (200, expected, path.encode() * 1000)
    filled = [len([f for f in place.rglob("*") if f.is_file()]) for place in places]
    assert sum(filled) == 60
    assert min(filled) > 5
    assert "thread pool" not in (tmp_path / "error.log").read_text()


def test_roots_are_searched_in_order(tmp_path: Path, free_port: int) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
        (root / "both").write_text(root.name)
        (root / f"only-{root.name}").write_text(root.name)
    given = served(tmp_path, free_port, roots=[str(root) for root in roots])
    with run(tmp_path, host(nginx=nginx("1.22.1")), load(), given, free_port):
        answers = [fetch(free_port, path) for path in ("/both", "/only-one", "/only-two", "/none")]
    assert [(status, body) for status, _, body in answers[:3]] == [
        (200, b"one"), (200, b"one"), (200, b"two"),
    ]  # fmt: skip
    assert answers[3][0] == 404
    assert "thread pool" not in (tmp_path / "error.log").read_text()


def test_a_directory_of_any_root_redirects(tmp_path: Path, free_port: int) -> None:
    """And its index is found where it is, though others have the directory too."""
    roots = [tmp_path / name for name in ("one", "two", "three")]
    for root in roots:
        (root / "common").mkdir(parents=True)
        (root / f"only-{root.name}").mkdir()
        (root / f"only-{root.name}" / "index.html").write_text(root.name)
    (roots[1] / "common" / "index.html").write_text("index")
    (roots[1] / "commonindex.html").write_text("a file of a similar name")
    (roots[0] / "file").write_text("file")
    given = served(tmp_path, free_port, roots=[str(root) for root in roots])
    with run(tmp_path, host(nginx=nginx("1.22.1")), load(), given, free_port):
        for root in roots:
            assert fetch(free_port, f"/only-{root.name}")[0] == 301
            assert fetch(free_port, f"/only-{root.name}/")[::2] == (200, root.name.encode())
        assert fetch(free_port, "/common")[0] == 301
        assert fetch(free_port, "/common/")[::2] == (200, b"index")
        assert fetch(free_port, "/file")[::2] == (200, b"file")
        assert fetch(free_port, "/file/")[0] == 404
        assert fetch(free_port, "/")[0] in {403, 404}  # no root has an index there


def test_a_prefix_for_each_root(tmp_path: Path, free_port: int) -> None:
    """No request looks on another disk, a missing file is 404, and a directory redirects."""
    roots = [tmp_path / str(number) for number in range(12)]
    for number, root in enumerate(roots):
        (root / f"d{number}" / "sub").mkdir(parents=True)
        (root / f"d{number}" / "file").write_text(str(number))
    (roots[0] / "d3").mkdir()
    (roots[0] / "d3" / "elsewhere").write_text("not here")
    given = served(
        tmp_path,
        free_port,
        roots=[str(root) for root in roots],
        root_prefixes=[f"/d{number}/" for number in range(12)],
    )
    with run(tmp_path, host(nginx=nginx("1.22.1")), load(), given, free_port):
        for number in range(12):
            assert fetch(free_port, f"/d{number}/file")[::2] == (200, str(number).encode())
            assert fetch(free_port, f"/d{number}/none")[0] == 404
            assert fetch(free_port, f"/d{number}/sub")[0] == 301
            assert fetch(free_port, f"/d{number}")[0] == 301
        assert fetch(free_port, "/d3/elsewhere")[0] == 404
        assert fetch(free_port, "/none")[0] == 404
        assert fetch(free_port, "/")[0] == 404
    assert "redirection cycle" not in (tmp_path / "error.log").read_text()


def test_hosts_have_pages_of_their_own(tmp_path: Path, free_port: int, origin: str) -> None:
    """One host's cached page must not be served to another, nor to a name that nobody has."""
    upstreams = [Upstream(name="app", servers=[origin])]
    names = ["a.example.com", "b.example.com"]
    for number, places in enumerate((["one"], ["one", "two", "three"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        given = served(
            folder,
            free_port,
            cache_dirs=[str(folder / place) for place in places],
            upstreams=upstreams,
            server_names=names,
        )
        with run(folder, host(nginx=nginx("1.22.1")), Workload(kind="cache"), given, free_port):
            for expected, ask in (("MISS", fetch), ("HIT", fetch_kept)):
                for name in (*names, "evil.test"):
                    for path in ("/x", "/y?z=1"):
                        status, cached, body = ask(free_port, path, host=name)
                        assert (status, cached) == (200, expected)
                        assert body == f"{name} {path}".encode() * 1000


def test_what_a_user_is_answered_is_for_nobody_else(
    tmp_path: Path, free_port: int, origin: str
) -> None:
    """Though the origin lets it be cached: RFC 9111, 3.5."""
    upstreams = [Upstream(name="app", servers=[origin])]
    given = served(tmp_path, free_port, cache_dirs=[str(tmp_path / "c")], upstreams=upstreams)
    with run(tmp_path, host(nginx=nginx("1.22.1")), Workload(kind="cache"), given, free_port):
        for user in ("alice", "bob"):
            body = fetch(free_port, "/me", user=user)[2]
            assert body == f"/meBearer {user}".encode() * 1000
        assert fetch(free_port, "/me")[1:] == ("MISS", b"/me" * 1000)
        assert fetch_kept(free_port, "/me")[1:] == ("HIT", b"/me" * 1000)
        assert fetch(free_port, "/me", user="bob")[2] == b"/meBearer bob" * 1000
