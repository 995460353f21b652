"""Where nginx listened and will not, and the listeners of stream, of which nothing can be asked."""

import os
import signal
import socket
from collections.abc import Callable

import pytest
from apply_site import Site
from change_files import snapshot
from free_ports import free_port
from nginx_versions import stream_modules

from nginx_tune.change.apply.undo import roll_back
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.tree import parse_text
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.reload.address import (
    AcceptingSocket,
    Address,
    addresses_of,
    lost_addresses,
    spoken_at,
)
from nginx_tune.nginx.reload.generation import ask_place
from nginx_tune.nginx.reload.workers import process_of


def address(text: str) -> Address:
    if text.startswith("/"):
        return Address("", 0, text, "http")
    host, _, port = text.rpartition(":")
    return Address(host, int(port), "", "http")


def test_an_address_is_lost_unless_one_stands_for_it() -> None:
    table = [
        ("*:80", "", ["*:80"]),
        ("*:80", "*:80 *:81", []),
        ("127.0.0.1:80 *:81", "*:80", ["*:81"]),
        ("*:80", "127.0.0.1:80", ["*:80"]),
        ("0.0.0.0:80", "*:80", []),
        ("*:80", "0.0.0.0:80", []),
        ("[::1]:80", "[::]:80", []),
        ("[::1]:80", "*:80", ["[::1]:80"]),
        ("/run/a", "/run/b *:0", ["unix:/run/a"]),
        ("/run/a", "/run/a", []),
        ("127.1:80 [0::1]:80", "127.0.0.1:80 [::1]:80", []),
        ("127.0.0.1:80", "0:80", []),
        ("[0:0::0]:80 [::2]:80", "[::]:80", []),
    ]
    wrong = []
    for before, after, lost in table:
        old, new = ([address(one) for one in text.split()] for text in (before, after))
        if (found := lost_addresses(old, new)) != lost:
            wrong.append((before, after, found))
    assert wrong == []


def test_a_socket_is_asked_by_the_listen_that_its_connection_is_for() -> None:
    table = [
        ("0.0.0.0:80", "*:80=http", "http"),
        ("0.0.0.0:80", "*:80=http 127.0.0.1:80=http2", "http2"),
        ("0.0.0.0:80", "127.0.0.1:80=tls *:80=http", "tls"),
        ("0.0.0.0:80", "*:80=http 127.0.0.2:80=http2 127.0.0.1:81=http2", "http"),
        ("127.0.0.2:80", "*:80=http 127.0.0.2:80=http2", "http2"),
        (":::80", "[::]:80=http [0:0::1]:80=http2", "http2"),
        (":::80", "[::0]:80=http 127.0.0.1:80=http2", "http"),
        ("0.0.0.0:80", "*:80=http one.example:80=http", "http"),
        ("0.0.0.0:80", "*:80=http one.example:80=http2", "unknown"),
        ("0.0.0.0:80", "*:80=http one.example:81=http2 /run/a=http2", "http"),
        ("127.0.0.1:80", "one.example:80=http2", "unknown"),
    ]
    wrong = []
    for place, listens, speaks in table:
        there = []
        for one in listens.split():
            text, _, spoken = one.partition("=")
            there.append(address(text)._replace(speaks=spoken))
        at, _, port = place.rpartition(":")
        if (found := spoken_at(at, int(port), there)) != speaks:
            wrong.append((place, listens, found))
    assert wrong == []


def listened(*listens: str) -> list[Address]:
    lines = " ".join(f"server {{ listen {one}; }}" for one in listens)
    return addresses_of(listeners(parse_text(f"events {{}} http {{ {lines} }}")))


def test_a_range_is_an_address_for_each_port_in_whatever_pieces() -> None:
    whole = listened("8000-8003 http2", "127.1:80")
    assert whole == [*(Address("*", 8000 + one, "", "http2") for one in range(4)),
                     Address("127.0.0.1", 80, "", "http")]  # fmt: skip
    assert lost_addresses(whole, listened("8000-8001", "8002", "8001-8003", "80")) == []
    assert lost_addresses(whole, listened("8000-8002", "127.0.0.1")) == ["*:8003"]
    assert listened("1-60000") == []


@pytest.mark.needs("root", "nginx")
def test_http_2_is_seen_by_its_first_frame(make_site: Callable[..., Site]) -> None:
    ports = {" http2": free_port(), "": free_port()}
    site = make_site(
        http=" ".join(
            f"server {{ listen 127.0.0.1:{port}{option}; return 204; }}"
            for option, port in ports.items()
        )
    )
    master = process_of(site.pid)
    assert master is not None
    for option, why in ((" http2", ""), ("", "does not speak HTTP/2")):
        place = AcceptingSocket("127.0.0.1", ports[option], "", "http2")
        asked = ask_place(LiveHost(), place, master)
        assert (asked.is_answer, asked.why) == (not why, why)


Make = Callable[..., Site]


@pytest.mark.parametrize(
    ("accepts", "speaks", "is_answer"),
    [(True, "unknown", True), (True, "http", False), (False, "unknown", False)],
)
def test_who_ends_a_connection_at_once_has_accepted_it(
    *, accepts: bool, speaks: str, is_answer: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            while accepts:
                listener.accept()[0].close()
            signal.pause()
        try:
            process = process_of(child)
            assert process is not None
            place = AcceptingSocket("127.0.0.1", listener.getsockname()[1], "", speaks)
            asked = ask_place(LiveHost(), place, process, {child})
            assert (asked.is_answer, asked.who) == (is_answer, None)
            assert asked.why
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.mark.needs("root", "nginx", "stream-modules")
def test_a_stream_whose_upstream_refuses_holds_no_change_up(make_site: Make) -> None:
    module = stream_modules()[0]
    port, nobody = free_port(), free_port()
    site = make_site(
        f"load_module {module};\n"
        f"stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{nobody}; }} }}"
    )
    before = snapshot(site.tree)
    applied = site.apply({"conf.d/site.conf": site.server('return 200 "new\\n";')})
    assert (applied.outcome, applied.reason) == ("kept", "")
    assert applied.notes == [
        f"127.0.0.1:{port}: connections end at once, so it is unknown which worker accepts"
    ]
    assert site.ask() == "new\n"
    assert roll_back(LiveHost(), site.state, None)[1] == "reloaded"
    assert snapshot(site.tree) == before
