"""Where nginx listened and will not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from apply_site import Site, free_port

from nginx_tune.host.live import LiveHost
from nginx_tune.turnover.address import AcceptingSocket, Address, lost_addresses
from nginx_tune.turnover.asking import ask_place
from nginx_tune.turnover.process import process_of


def address(text: str) -> Address:
    if text.startswith("/"):
        return Address("", 0, text, "http")
    host, _, port = text.rpartition(":")
    return Address(host, int(port), "", "http")


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
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
    ],
)
def test_an_address_is_lost_unless_one_stands_for_it(
    before: str, after: str, lost: list[str]
) -> None:
    old, new = ([address(one) for one in text.split()] for text in (before, after))
    assert lost_addresses(old, new) == lost


@pytest.mark.needs("root", "nginx")
@pytest.mark.parametrize(("option", "why"), [(" http2", ""), ("", "does not speak HTTP/2")])
def test_http_2_is_seen_by_its_first_frame(
    make_site: Callable[..., Site], option: str, why: str
) -> None:
    port = free_port()
    server = f"server {{ listen 127.0.0.1:{port}{option}; return 204; }}"
    site = make_site(http=server)
    master = process_of(site.pid)
    assert master is not None
    place = AcceptingSocket("127.0.0.1", port, "", "http2")
    asked = ask_place(LiveHost(), place, master)
    assert (asked.is_answer, asked.why) == (not why, why)
