"""Locations chosen from the text are those that a real nginx chooses."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from started import serving

from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.tree import parse_text, read_tree

LOCATIONS = r"""
location = / { return 200 "root"; }
location / { return 200 "any"; }
location = /exact { return 200 "exact"; }
location /docs/ { return 200 "docs";
  location ~ \.html$ { return 200 "docs-html"; }
  location /docs/deep/ { return 200 "deep"; }
  location = /docs/one.html { return 200 "one"; }
}
location ^~ /static/ { return 200 "static"; location ~ \.css$ { return 200 "static-css"; } }
location ~* \.(jpg|PNG)$ { return 200 "image"; }
location ~ ^/user/(?<name>[a-z]+)$ { return 200 "user"; }
location ~ \.html$ { return 200 "html"; }
location /a%20b/ { return 200 "literal"; }
location "/a b/" { return 200 "space"; }
location /static/big { return 200 "big"; }
location @named { return 200 "named"; }
"""
PATHS = [
    "/", "//", "/index", "/exact", "/exact/", "/docs/", "/docs/x.html", "/docs/deep/x.html",
    "/docs/deep/x", "/docs/one.html", "/static/a.css", "/static/a.jpg", "/static/a.html",
    "/static/big", "/static/big/x.html", "/pic.JPG", "/docs/pic.png", "/user/anna", "/user/Anna",
    "/x.html", "/a%20b/c", "/a%2520b/c", "/docs/../x.html", "/docs//deep/./x", "/%64ocs/a",
    "/docs/..", "/docs/deep/..", "/docs/.", "/x/%2e%2e/exact", "/doc", "/static",
]  # fmt: skip
SERVERS = {
    "one.example": "one", "a.two.example": "two", "a.b.two.example": "two", "two.example": "one",
    "three.org": "three", "three.a.b": "three", "x9.example": "pattern", "unknown": "one",
    "dot.example": "dot", "deep.dot.example": "dot", "a.long.dot.example": "longer",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    root = tmp_path_factory.mktemp("locations")
    port = free_port()
    listen = f"listen 127.0.0.1:{port};"
    body = f"""
daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; default_type text/plain;
  server {{ {listen} server_name one.example; {LOCATIONS} }}
  server {{ {listen} server_name *.two.example; location / {{ return 200 two; }} }}
  server {{ {listen} server_name three.*; location / {{ return 200 three; }} }}
  server {{ {listen} server_name ~^x\\d; location / {{ return 200 pattern; }} }}
  server {{ {listen} server_name .dot.example; location / {{ return 200 dot; }} }}
  server {{ {listen} server_name *.long.dot.example; location / {{ return 200 longer; }} }}
}}
"""
    conf = root / "nginx.conf"
    conf.write_text(body)
    with serving(["/usr/sbin/nginx", "-p", root, "-c", conf], port):
        yield conf, port


class Files:
    def read_bytes(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def list_dir(self, path: str) -> list[str]:
        return [entry.name for entry in Path(path).iterdir()]


def ask(port: int, host: str, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


@pytest.mark.needs("nginx")
def test_nginx_chooses_the_same(server) -> None:
    conf, port = server
    matcher = LocationMatcher(read_tree(str(conf), Files()))
    asked = [("one.example", path) for path in PATHS] + [(host, "/x") for host in SERVERS]
    for host, path in asked:
        chosen = matcher.server_of(host)
        assert chosen is not None
        location = matcher.location_of(chosen, path)
        assert location is not None, path
        assert location.block is not None
        answer = location.block.all("return")[0].args[-1]
        assert answer == ask(port, host, path), (host, path)
    assert not matcher.unreadable


def test_a_host_that_nobody_names_comes_to_the_named_default() -> None:
    conf = (
        "events {} http { server { listen 80; server_name a; } "
        "server { listen 80%s; server_name b; } }"
    )
    for word, wanted in (("", "a"), (" default_server", "b"), (" default", "b")):
        chosen = LocationMatcher(parse_text(conf % word)).server_of("nobody.example")
        assert chosen is not None
        assert chosen.block is not None
        assert chosen.block.all("server_name")[0].value == wanted
