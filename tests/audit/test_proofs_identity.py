"""Connections and TLS sessions that are made as one client and used for another."""

import subprocess
from pathlib import Path

import pytest
from nginx_versions import Nginx, every_version
from origin import ok, run_origin
from proving import fires
from rows import each_row
from scratch_nginx import Serve

from nginx_tune.audit.rule import linux

pytestmark = pytest.mark.needs("nginx", "root", "openssl")

REUSING = 'proxy_http_version 1.1; proxy_set_header Connection "";'
ALICE_TWICE_THEN_BOB = ["alice", "alice", "bob", "bob"]


def ask(server_port: int, path: str = "/", source: str = "127.0.0.1") -> str:
    """The body of an answer, asked for from an address of the loopback."""
    command = ["curl", "-sS", "-m", "20", "--interface", source]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{server_port}{path}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@every_version
@each_row("bind", ["proxy_bind $remote_addr;", ""])
@each_row("pool", ["keepalive 4;", "", "keepalive 0;"])
def test_up_identity_shared_by_a_kept_connection_is_its_source_address(
    serve: Serve, nginx: Nginx, pool: str, bind: str
) -> None:
    is_new = nginx.number >= (1, 29, 7)
    if pool == "keepalive 0;" and not is_new:
        return  # no number of nginx before 1.29.7
    answer = lambda _request, peer: ok(peer.getpeername()[0].encode())  # noqa: E731
    with run_origin(answer) as origin:
        server = serve(
            "worker_processes 1; events {} http { upstream app {"
            f" server 127.0.0.1:{origin.port}; {pool} }} server {{ listen 127.0.0.1:PORT;"
            f" location / {{ {bind} {REUSING} proxy_pass http://app; }} }} }}"
        )
        clients = ["127.0.0.2", "127.0.0.2", "127.0.0.3"]
        seen = [ask(server.port, source=client) for client in clients]
    is_kept = pool == "keepalive 4;" or (not pool and is_new)
    is_shared = is_kept and bool(bind)
    if bind:
        assert seen == ([clients[0]] * 3 if is_shared else clients)
    host = linux(version=nginx.version)
    assert fires("up-identity-shared", server.conf, host) is is_shared
    assert not bind or not fires("up-keepalive-missing", server.conf, host, profile="strict")


def certificates(directory: Path) -> None:
    for name in ("alice", "bob"):
        request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        files = ["-out", f"{directory}/{name}.pem", "-keyout", f"{directory}/{name}.key"]
        command = ["openssl", *request.split(), "-subj", f"/CN={name}", *files]
        subprocess.run(command, check=True, capture_output=True)


@every_version
@each_row("reuse", ["", "proxy_ssl_session_reuse off;"])
def test_up_identity_shared_by_a_resumed_session_is_its_certificate(
    serve: Serve, nginx: Nginx, tmp_path: Path, reuse: str
) -> None:
    if nginx.number < (1, 21, 0):
        return  # certificates by variables came with nginx 1.21.0
    certificates(tmp_path)
    server = serve(
        "worker_processes 1; events {} http { upstream app { server unix:DIR/origin; } server {"
        " listen unix:DIR/origin ssl; ssl_certificate DIR/alice.pem; ssl_certificate_key"
        " DIR/alice.key; ssl_protocols TLSv1.2; ssl_verify_client optional_no_ca;"
        " return 200 $ssl_client_s_dn; } server { listen 127.0.0.1:PORT; location / {"
        f" {reuse} proxy_ssl_certificate DIR/$arg_user.pem; proxy_set_header Connection close;"
        " proxy_ssl_certificate_key DIR/$arg_user.key; proxy_pass https://app; } } }",
        directory=tmp_path,
    )
    seen = [ask(server.port, f"/?user={name}") for name in ALICE_TWICE_THEN_BOB]
    names = ALICE_TWICE_THEN_BOB if reuse else ["alice"] * 4
    assert seen == [f"CN={name}" for name in names]
    host = linux(version=nginx.version)
    assert fires("up-identity-shared", server.conf, host) is not bool(reuse)
    assert not fires("up-tls-no-reuse", server.conf, host)


def of(tmp_path: Path, pool: str, locations: str, http: str = "") -> Path:
    path = tmp_path / "nginx.conf"
    path.write_text(
        f"events {{}} http {{ {http} upstream app {{ server 10.0.0.1:443; {pool} }}"
        f" server {{ listen 80; {REUSING} {locations} }} }}"
    )
    return path


OFF = "proxy_ssl_session_reuse off; "


@each_row(
    "location",
    [
        "proxy_ssl_certificate /c/$arg_u.pem; proxy_pass https://10.0.0.1;",
        "proxy_ssl_server_name on; proxy_ssl_name $host; proxy_pass https://app;",
        (
            "proxy_ssl_certificate /c/a.pem; proxy_pass https://app; } location /b { "
            "proxy_pass https://app;"
        ),
    ],
)
def test_sessions_that_are_off_for_a_reason_are_not_advised_on(
    tmp_path: Path, location: str
) -> None:
    path = of(tmp_path, "", f"{OFF} location / {{ {location} }}")
    assert not fires("up-tls-no-reuse", path)
    assert not fires("up-literal-no-keepalive", path)
    plain = of(tmp_path, "", f"{OFF} location / {{ proxy_pass https://10.0.0.1; }}")
    assert fires("up-tls-no-reuse", plain)
    assert fires("up-literal-no-keepalive", plain)


SPLIT = "split_clients $remote_addr $from { 50% 10.0.0.8; * 10.0.0.9; }"


@each_row(
    ("location", "http", "is_shared"),
    [
        ("proxy_bind $remote_addr transparent; proxy_pass http://app;", "", True),
        ("proxy_bind $remote_addr; proxy_http_version 1.0; proxy_pass http://app;", "", False),
        ("proxy_bind $from; proxy_pass http://app;", SPLIT, False),
        ("proxy_bind 10.0.0.9; proxy_pass http://app;", "", False),
        ("grpc_bind $remote_addr; grpc_pass grpc://app;", "", True),
        ("fastcgi_bind $remote_addr; fastcgi_pass app;", "", False),
        ("fastcgi_bind $remote_addr; fastcgi_keep_conn on; fastcgi_pass app;", "", True),
        ("proxy_ssl_server_name on; proxy_ssl_name $host; proxy_pass https://app;", "", True),
        ("proxy_ssl_name $host; proxy_pass https://app;", "", False),
        (
            "proxy_bind 10.0.0.8; proxy_pass http://app; } location /b { proxy_pass http://app;",
            "",
            True,
        ),
    ],
)
def test_what_kept_connections_share(
    tmp_path: Path, location: str, http: str, *, is_shared: bool
) -> None:
    host = linux(version="1.26.3")
    path = of(tmp_path, "keepalive 8;", f"{OFF} location / {{ {location} }}", http)
    assert fires("up-identity-shared", path, host) is is_shared
    path = of(tmp_path, "", f"{OFF} location / {{ {location} }}", http)
    assert not fires("up-identity-shared", path, host)
