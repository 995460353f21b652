"""Defaults that moved, on versions of both sides of the change."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from nginx_versions import Nginx, versions
from origin import run_origin
from scratch_nginx import Server
from test_proofs_mistakes import CONF, REQUESTS, ask

from nginx_tune.audit.engine import audit
from nginx_tune.audit.rule import linux
from nginx_tune.audit.upgrade import CHANGED
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("nginx", "root")

Serve = Callable[[str], Server]

BOTH_SIDES = versions("1.22", "1.26", "1.30")


def _told(server: Server, nginx: Nginx, until: str = "1.31.4") -> set[str]:
    """What moves for a configuration from this version to a newer one."""
    facts = linux()
    facts = replace(facts, nginx=replace(facts.nginx, nginx_version=until, version=until))
    found = audit(read_tree(str(server.conf), LiveHost()), facts, [], upgrade_from=nginx.version)
    return {one.message.split(" is not set")[0] for one in found.findings if one.rule == CHANGED.id}


@BOTH_SIDES
def test_vr_default_changed_http_version_to_servers(serve: Serve, nginx: Nginx) -> None:
    with run_origin() as origin:
        server = serve(CONF % ("", f"location / {{ proxy_pass http://127.0.0.1:{origin.port}; }}"))
        assert ask(server, "/")[0] == 200
    head = origin.requests[0].head
    is_new = nginx.number >= (1, 29, 7)
    assert head.startswith(f"GET / HTTP/{'1.1' if is_new else '1.0'}")
    assert ("Connection: close" in head) is not is_new
    assert ("proxy_http_version" in _told(server, nginx)) is not is_new


@BOTH_SIDES
def test_vr_default_changed_keepalive_of_an_upstream(serve: Serve, nginx: Nginx) -> None:
    with run_origin() as origin:
        server = serve(
            CONF % (f"upstream u {{ server 127.0.0.1:{origin.port}; }}",
                    "location / { proxy_pass http://u; }")
        )  # fmt: skip
        for _ in range(REQUESTS):
            assert ask(server, "/")[0] == 200
    is_new = nginx.number >= (1, 29, 7)
    assert origin.connections == (1 if is_new else REQUESTS)
    assert ("keepalive of an upstream" in _told(server, nginx)) is not is_new


@BOTH_SIDES
def test_vr_default_changed_tls_of_clients(
    serve: Serve, nginx: Nginx, certificate: tuple[Path, Path]
) -> None:
    lines = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
    conf = CONF.replace("127.0.0.1:PORT", "127.0.0.1:PORT ssl") % ("", f"{lines} return 204;")
    server = serve(conf)
    client = ssl.create_default_context(cafile=str(certificate[0]))
    client.check_hostname = False
    with server.connect() as peer, client.wrap_socket(peer) as secured:
        version = secured.version()
    is_new = nginx.number >= (1, 23, 4)
    assert version == ("TLSv1.3" if is_new else "TLSv1.2")
    assert ("ssl_protocols" in _told(server, nginx, "1.26.3")) is not is_new


@versions("1.18", "1.30")
def test_vr_default_changed_max_headers(serve: Serve, nginx: Nginx) -> None:
    """Debian's packages of 1.22 and 1.26 have taken the bound over."""
    server = serve(CONF % ("", "return 204;"))
    is_new = nginx.number >= (1, 29, 8)
    assert ask(server, "/", *["a: b"] * 900)[0] == 204
    assert ask(server, "/", *["a: b"] * 1100)[0] == (400 if is_new else 204)
    assert ("max_headers" in _told(server, nginx)) is not is_new
