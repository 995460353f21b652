"""Where nginx listened and will not."""

from __future__ import annotations

import pytest

from nginx_tune.turnover.address import Address, lost_addresses


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
