"""A zone has room for its upstream's servers and a name of its own."""

import subprocess
from pathlib import Path

import pytest
from made_decisions import decide
from msgspec.structs import replace
from rows import each_row
from situations import host, load, nginx, site

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.upstreams import zone_size
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.site import Site, Upstream

SERVERS = [2, 60, 61, 100, 400]


def held(tree: ConfTree) -> Decisions:
    facts = host(nginx=nginx("1.22.1", ["--with-threads", "--with-http_ssl_module"]))
    own = complete_site(site_in(tree, Site(roots=[])), facts, "proxy")
    found = as_changes(decide(facts, load("proxy"), site=own), tree)
    return replace(found, decisions=[d for d in found.decisions if d.id == "upstream-keepalive"])


def zones(tree: ConfTree) -> list[list[str]]:
    [decision] = held(tree).decisions
    return [one.args for one in decision.settings if one.directive == "zone"]


def addresses(count: int) -> list[str]:
    return [f"10.0.{n // 250}.{n % 250 + 1}:8080 weight=3" for n in range(count)]


def text_of(folder: Path, count: int, zone: str = "") -> str:
    servers = "".join(f"server {one}; " for one in addresses(count))
    return (
        f"pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\nhttp {{\n"
        f"access_log off;\nupstream app {{ {zone}{servers}}}\nserver {{ listen 127.0.0.1:18976;\n"
        "location / { proxy_pass http://app; }\n} }\n"
    )


def nginx_says(path: Path) -> str:
    command = ["/usr/sbin/nginx", "-t", "-q", "-c", path]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.needs("nginx", "root")
@each_row("count", SERVERS)
def test_nginx_has_room_for_all_of_them(tmp_path: Path, count: int) -> None:
    tree = parse_text(text_of(tmp_path, count), file=str(tmp_path / "nginx.conf"))
    [file] = plan_changes(held(tree), tree, lambda _files: set()).files
    path = tmp_path / "nginx.conf"
    path.write_bytes(file.content)
    assert "zone upstream_app" in path.read_text()
    assert "no memory" not in nginx_says(path)


@pytest.mark.needs("nginx", "root")
def test_nginx_has_none_where_the_size_is_fixed(tmp_path: Path) -> None:
    """What the sizes are for: 64k is enough for 60 servers, not for 80."""
    path = tmp_path / "nginx.conf"
    for count, is_enough in ((60, True), (80, False)):
        path.write_text(text_of(tmp_path, count, "zone z 64k; "))
        assert ("no memory in upstream zone" not in nginx_says(path)) is is_enough


@pytest.mark.needs("nginx", "root")
@each_row("count", [1, 60, 61, 100, 256])
def test_a_generated_file_has_room_too(tmp_path: Path, count: int) -> None:
    logs = {"error_log": f"{tmp_path}/error.log", "access_log": "off"}
    own = site(upstreams=[Upstream(name="app", servers=addresses(count))], **logs)
    facts = host(nginx=nginx("1.22.1", ["--with-threads", "--with-http_ssl_module"]))
    path = tmp_path / "nginx.conf"
    workload = load("proxy")
    text = emit_decided(decide(facts, workload, site=own), own)
    path.write_text(f"pid {tmp_path}/pid;\n{text}")
    assert "zone upstream_app" in text
    assert "no memory" not in nginx_says(path)


@each_row(
    ("servers", "size"),
    [
        (["10.0.0.1:80 weight=2"], "64k"),
        (["10.0.0.1", "[2001:db8::1]:80 backup", "unix:/run/a"], "64k"),
        (["app.test:80"], "1m"),
        (["10.0.0.1:80", "app.test resolve"], "1m"),
        (["app.test:80"] * 60, "2m"),
        (addresses(17), "128k"),
        (addresses(256), "1m"),
        (addresses(400), "2m"),
    ],
)
def test_a_name_may_have_many_addresses(servers: list[str], size: str) -> None:
    assert zone_size(servers) == size


@each_row(
    "line",
    [
        "limit_req_zone $uri zone=upstream_app:1m rate=1r/s;",
        "limit_conn_zone $uri zone=upstream_app:1m;",
        "proxy_cache_path /c keys_zone=upstream_app:1m;",
        "ssl_session_cache shared:upstream_app:1m;",
        "lua_shared_dict upstream_app 1m;",
        "upstream other { zone upstream_app 64k; server 10.0.0.2; }",
        "} stream { upstream other { zone upstream_app 64k; server 10.0.0.2:80; }",
    ],
)
def test_a_name_that_other_memory_has_is_left_to_it(line: str) -> None:
    """nginx would say "already bound to another key", or for a different use."""
    text = (
        "events {} http { upstream app { server 10.0.0.1; server 10.0.0.4; }"
        " upstream app_2 { server 10.0.0.3; server 10.0.0.5; }"
        f" server {{ listen 80; location / {{ proxy_pass http://app; }} }} {line} }}"
    )
    names = [name for name, _size in zones(parse_text(text))]
    assert names == ["upstream_app_3", "upstream_app_2"]
    plain = zones(parse_text(text.replace(line, "")))
    assert plain == [["upstream_app", "64k"], ["upstream_app_2", "64k"]]
