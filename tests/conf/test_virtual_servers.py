"""The server that answers a host, chosen from the text, is the one that a real nginx chooses."""

import http.client
from pathlib import Path

import pytest
from conf_readers import Files
from free_ports import free_port
from rows import each_row
from started import serving
from tiers import REPEAT, dice

from nginx_tune.conf.tree import read_tree
from nginx_tune.conf.virtual_servers import (
    Answering,
    VirtualServers,
    names_of,
    sample_hosts,
    virtual_servers,
)

_NAMES = [
    "a.test", "www.a.test", "*.a.test", ".a.test", "*.b.a.test", "a.*", "www.a.*", "b.test", "",
    "_", r"~^www\d*\.", r"~^(?<user>.+)\.a\.test$", r"~test$", "B.Test", "*.test", ".test",
]  # fmt: skip
_HOSTS = [
    "a.test", "www.a.test", "WWW.A.test.", "x.b.a.test", "b.a.test", "a.org", "www.a.org",
    "b.test", "www1.org", "c.test", "test", "none.org", "x.y.test", "_",
]  # fmt: skip


def addresses_of(http_block: str) -> list[VirtualServers]:
    files = Files({"/nginx.conf": f"events {{}} http {{ {http_block} }}"})
    return virtual_servers(read_tree("/nginx.conf", files))


def said_by(answering: Answering) -> str:
    block = answering.server.block
    assert block is not None
    return block.all("return")[0].args[-1]


def ask(port: int, host: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


@pytest.mark.needs("nginx")
def test_nginx_chooses_the_same_among_drawn_servers(tmp_path: Path) -> None:
    draw = dice("virtual servers")
    blocks = []
    first = free_port(25)
    for port in range(first, first + 25):
        count = draw.randint(1, 5)
        default = draw.choice([None, *range(count)])
        for number in range(count):
            names = draw.sample(_NAMES, draw.randint(0, 3))
            line = f"server_name {' '.join(repr(one) for one in names)};" if names else ""
            mark = " default_server" if number == default else ""
            blocks.append(
                f"server {{ listen 127.0.0.1:{port}{mark}; {line} return 200 s{number}; }}"
            )
    body = "server_names_hash_bucket_size 128; " + "\n".join(blocks)
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/e.log;"
        f"events {{}} http {{ access_log off; {body} }}"
    )
    with serving(["/usr/sbin/nginx", "-p", tmp_path, "-c", conf], first + 24):
        for one in addresses_of(body):
            port = int(one.address.rpartition(":")[2])
            for host in _HOSTS:
                assert said_by(one.choose(host)) == ask(port, host), (one.address, host, REPEAT)


def test_servers_of_an_address_whatever_way_it_is_written() -> None:
    found = addresses_of(
        "server { server_name a; return 200 a; }"
        " server { listen 80 default_server; listen 0.0.0.0:81; server_name b; return 200 b; }"
        " server { listen 443 ssl; listen 443 quic; server_name c; return 200 c; }"
        " server { listen [::]:80 ipv6only=off; server_name d; return 200 d; }"
    )
    assert [(one.address, one.is_quic, len(one.servers)) for one in found] == [
        ("*:80", False, 2), ("*:81", False, 1), ("*:443", False, 1), ("*:443", True, 1),
        ("[::]:80", False, 1),
    ]  # fmt: skip
    assert said_by(found[0].choose("nobody")) == "b"
    assert [one.takes_ipv4 for one in found] == [False, False, False, False, True]


@each_row(
    "name",
    [
        r"~^(?<user>[a-z0-9-]+)\.example\.com$", r"~^www\d+\.example\.com$", r"~^(www\.)?(.+)$",
        r"~^(?:www\.)?example\.(com|org)$", r"~\.example\.com$", "~^.*$", r"~^api[.-]v\d\.",
        "*.example.com", ".example.com", "www.example.*", "example.com",
        r"~^(?<a>\w+)-(?<b>\w+)\.test$",
    ],
)  # fmt: skip
def test_samples_of_a_name_are_hosts_that_it_takes(name: str) -> None:
    (one,) = addresses_of(
        "server { listen 80; return 200 x; } "
        f"server {{ listen 80; server_name '{name}'; return 200 y; }}"
    )
    hosts = list(sample_hosts(name))
    assert hosts
    for host in hosts:
        assert one.choose(host).server is one.servers[1], host
    assert names_of(one.servers[1]) == [name]


def test_a_pattern_that_nobody_knows_a_host_of_has_none() -> None:
    assert list(sample_hosts(r"~^(?=x)y$")) == []
    assert list(sample_hosts("$hostname")) == []
