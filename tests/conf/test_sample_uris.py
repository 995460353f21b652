"""Paths that patterns of locations take."""

from __future__ import annotations

import re

import pytest

from nginx_tune.conf.sample_uris import sample_uris


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"\.php$", ["/any.php"]),
        (r"\.(jpg|png)$", ["/any.jpg", "/any.png"]),
        (r"^/img/", ["/img/"]),
        (r"^/(?<lang>en|de)/(.+)$", ["/en/any", "/de/any"]),
        (r"^/(?:a|b(c|d))$", ["/a", "/bc", "/bd"]),
        (r"^/x/?$", ["/x/", "/x"]),
        (r"^/y/[0-9]{4}/\d\d$", ["/y/0000/11"]),
        (r"^/u/[^/]+/f$", ["/u/any/f"]),
        (r"/\.(?!well-known)", []),
        (r"/\.(?!well-known)ht", ["/.ht"]),
        (r"^/(?!api).*$", ["/any"]),
        (r"[", []),
        (r"\p{L}", []),
        (r"^nothing begins so", []),
        (r"^/a{2,}$", ["/aa"]),
        (r"(a)\1", []),
        (r"^/x{999}$", []),
    ],
)
def test_each_alternative_has_a_sample(pattern: str, found: list[str]) -> None:
    assert sample_uris(pattern, ignores_case=False) == found


def test_what_would_be_many_is_bounded() -> None:
    text = "^/" + "(a|b|c|d)" * 12 + "$"
    found = sample_uris(text, ignores_case=True)
    assert 0 < len(found) <= 64
    assert all(re.search(text, one) for one in found)
    assert sample_uris("(" * 3000, ignores_case=False) == []
