"""What a client is believed or let through, though the configuration reads as if it were not."""

from __future__ import annotations

import socket

import pytest
from nginx_versions import every_version
from proving import fires, severity
from rows import each_row
from scratch_nginx import Serve
from test_proofs_mistakes import CONF, ask
from tiers import REPEAT, dice, draws

from nginx_tune.audit.engine import audit
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("nginx", "root")

SAID = "location @said { return 200 $remote_addr; }"
"""Asked by ``try_files``: a ``return`` of the location itself comes before its limits and rules."""
LIMITED = f"location / {{ limit_req zone=one; try_files /none @said; }} {SAID}"
SOURCES = {
    "header": "limit_req_zone $http_x_forwarded_for zone=one:1m rate=1r/m;",
    "added to": "limit_req_zone $proxy_add_x_forwarded_for zone=one:1m rate=1r/m;",
    "map": (
        'map $http_x_forwarded_for $key { default $binary_remote_addr; ~^10[.] ""; }'
        " limit_req_zone $key zone=one:1m rate=1r/m;"
    ),
    "geo": (
        "geo $http_x_forwarded_for $key { default one; 10.0.0.0/8 ''; }"
        " limit_req_zone $key zone=one:1m rate=1r/m;"
    ),
    "end of the list": (
        'map $http_x_forwarded_for $key { default $binary_remote_addr; "~(?<last>[^, .]+)$" a; }'
        " limit_req_zone $key zone=one:1m rate=1r/m;"
    ),
    "address": "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;",
}


@every_version
@each_row("source", SOURCES)
def test_lim_key_forged_lets_who_says_another_address_through(serve: Serve, source: str) -> None:
    server = serve(CONF % (SOURCES[source], LIMITED))
    answers = [ask(server, "/", f"X-Forwarded-For: 10.0.0.{n}")[0] for n in range(1, 6)]
    is_forged = source not in {"address", "end of the list"}
    assert answers == ([200] * 5 if is_forged else [200] + [503] * 4)
    assert fires("lim-key-forged", server.conf) is is_forged


ADDED = "X-Forwarded-For: 10.6.6.6, 192.0.2.7"
"""What comes from a proxy that added the address of who wrote the first."""
ADMIN = "allow 10.0.0.0/8; deny all;"


@every_version
@each_row(
    ("believed", "recursive", "said", "expected"),
    [
        ("0.0.0.0/0", "on", ADDED, ("warning", 200)),
        ("10.0.0.0/0", "on", ADDED, ("warning", 200)),
        ("0.0.0.0/0", "off", ADDED, ("advice", 403)),
        ("0.0.0.0/0", "off", "X-Forwarded-For: 10.6.6.6", ("advice", 200)),
        ("127.0.0.1", "on", ADDED, (None, 403)),
        ("192.0.2.0/24", "on", ADDED, (None, 403)),
    ],
)
def test_lim_real_ip_any_opens_what_an_address_guards(
    serve: Serve, believed: str, recursive: str, said: str, expected: tuple[str | None, int]
) -> None:
    """To who comes by a proxy, or past it."""
    lines = (
        f"set_real_ip_from {believed}; real_ip_header X-Forwarded-For;"
        f" real_ip_recursive {recursive};"
    )
    server = serve(CONF % (lines, f"location / {{ {ADMIN} try_files /none @said; }} {SAID}"))
    status, _, _ = ask(server, "/", said)
    assert (severity("lim-real-ip-any", server.conf), status) == expected


GUARDS = {
    "deny all;": 403,
    "auth_basic secret; auth_basic_user_file DIR/none;": 401,
    "auth_request /no;": 403,
    "limit_req zone=all;": 503,
}


@every_version
@each_row("guard", GUARDS)
@each_row(
    "answer",
    ["return 200 in;", "break; return 200 in; try_files /none @said;", "try_files /none @said;"],
)
def test_lim_return_first_is_past_all_guards(serve: Serve, guard: str, answer: str) -> None:
    server = serve(
        CONF % ("limit_req_zone all zone=all:1m rate=1r/m;",
                f"location / {{ {guard} {answer} }} location = /no {{ return 403; }} {SAID}")
    )  # fmt: skip
    statuses = {ask(server, "/")[0] for _ in range(3)}
    is_past = answer.startswith("return")  # a break lets all go on to where they are asked
    assert statuses - {200} == (set() if is_past else {GUARDS[guard]})
    assert fires("lim-return-first", server.conf) is is_past


BY_NAME = "auth_basic secret; auth_basic_user_file DIR/none;"


@every_version
@each_row(
    ("rules", "is_lost", "status"),
    [
        ("allow 127.0.0.2;", True, 200),
        ("allow 127.0.0.2; deny all;", False, 403),
        ("", False, 403),
        ("allow all;", False, 200),
        (f"satisfy any; allow 127.0.0.2; {BY_NAME}", False, 401),
        (f"satisfy any; allow 127.0.0.1; {BY_NAME}", False, 200),
        (f"allow 127.0.0.2; {BY_NAME}", True, 401),
    ],
)
def test_lim_deny_lost_refuses_no_address(
    serve: Serve, rules: str, *, is_lost: bool, status: int
) -> None:
    named = "location @said { allow all; return 200; }"
    server = serve(CONF % ("deny all;", f"location / {{ {rules} try_files /none @said; }} {named}"))
    assert ask(server, "/")[0] == status
    assert fires("lim-deny-lost", server.conf) is is_lost


CLIENTS = ("127.0.0.1", "127.0.0.2", "127.0.0.9")


def _status_for(port: int, client: str, path: str) -> int:
    with socket.create_connection(("127.0.0.1", port), source_address=(client, 0)) as peer:
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int(peer.recv(64).split()[1])


@each_row("seed", range(draws(1, 12)))
def test_lim_deny_lost_in_drawn_rules(serve: Serve, seed: int) -> None:
    """Where it fires everybody is answered; where a block allows alone and it is silent, nobody
    had been denied around it, or all were allowed."""
    draw = dice(f"denied addresses {seed}")
    said = "try_files /none @said;"

    def rules() -> str:
        kinds = draw.choices(("allow", "deny"), k=draw.randrange(4))
        return " ".join(f"{kind} {draw.choice((*CLIENTS[:2], 'all'))};" for kind in kinds)

    drawn = [(rules(), rules()) for _ in range(50)]
    drawn.append(("deny 127.0.0.2;", "allow 127.0.0.1;"))  # it fires at least once
    blocks = "\n".join(
        f"location /{n}/ {{ {outer} {said}\nlocation /{n}/in/ {{ {inner} {said} }} }}"
        for n, (outer, inner) in enumerate(drawn)
    )
    server = serve(CONF % ("", f"{blocks}\nlocation @said {{ allow all; return 200; }}"))
    found = audit(read_tree(str(server.conf), LiveHost()), None).findings
    lines = server.conf.read_text().splitlines()
    fired = {lines[one.line - 1].split()[1] for one in found if one.rule == "lim-deny-lost"}
    for n, (outer, inner) in enumerate(drawn):
        answers = {client: _status_for(server.port, client, f"/{n}/in/") for client in CLIENTS}
        if f"/{n}/in/" in fired:
            assert set(answers.values()) == {200}, (outer, inner, REPEAT)
            assert "deny" in outer, (outer, inner, REPEAT)
        elif "allow" in inner and "deny" not in inner:
            assert "deny" not in outer or "allow all" in inner, (outer, inner, REPEAT)
    assert fired, REPEAT
