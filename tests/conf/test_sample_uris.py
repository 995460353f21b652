"""Paths that patterns of locations take."""

import re

from rows import each_row

from nginx_tune.conf.virtual_servers import sample_uris


@each_row(
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
    assert [one[0] for one in sample_uris(pattern, ignores_case=False)] == found


def test_what_would_be_long_is_bounded() -> None:
    """A billion characters, as a hostile configuration may ask for."""
    assert sample_uris("^/((((a{99}){99}){99}){99}){99}$", ignores_case=False) == []
    assert sample_uris("^/" + "(a{99})" * 99, ignores_case=False) == []


def test_what_would_be_many_is_bounded() -> None:
    text = "^/" + "(a|b|c|d)" * 12 + "$"
    found = sample_uris(text, ignores_case=True)
    assert 0 < len(found) <= 64
    assert all(re.search(text, uri) for forms in found for uri in forms)
    assert sample_uris("(" * 3000, ignores_case=False) == []


def test_what_a_pattern_leaves_open_is_tried_with_and_without_a_name() -> None:
    found = sample_uris(r"\.ht", ignores_case=False)
    assert found == [["/any.ht", "/.ht"]]
    assert sample_uris("b$", ignores_case=False, beneath="/a/") == [["/a/anyb", "/a/b"]]
