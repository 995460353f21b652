"""What the groups of patterns leave in variables."""

from rows import each_row

from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import parse_text
from nginx_tune.conf.variables import AN_ADDRESS, Group, captured, groups, possible_texts


@each_row(
    ("pattern", "found"),
    [
        ("^/(a|b)/(?<n>[0-9]+)$", [Group("", "a|b"), Group("n", "[0-9]+")]),
        (r"^/\((x)(?:y)(?=z)", [Group("", "x")]),
        ("((a)b)?", [Group("", "(a)b", "?"), Group("", "a")]),
        ("[(](?P<k>[])]+)", [Group("k", "[])]+")]),
        ("(?'q'a)*", [Group("q", "a", "*")]),
        ("(a", [Group("", "")]),
        ("a)b[", []),
    ],
)
def test_groups_are_counted_as_pcre_does(pattern: str, found: list[Group]) -> None:
    assert list(groups(pattern)) == found


@each_row(
    ("group", "texts"),
    [
        (Group("", "a|b"), ("a", "b")),
        (Group("", r"a\.x"), ("a.x",)),
        (Group("", "a|b", "?"), ("a", "b", "")),
        (Group("", "a|b", "+"), ()),
        (Group("", "a.x"), ()),
        (Group("", "[0-9]+"), ("1",)),
        (Group("", r"\d{1,3}"), ("1",)),
        (Group("", r"\d+\.\d+\.\d+\.\d+"), (AN_ADDRESS,)),
        (Group("", "[0-9.]+"), (AN_ADDRESS,)),
        (Group("", ".*"), ()),
        (Group("", ".+"), ()),
        (Group("", "[a-z]+"), ()),
        (Group("", "[0-9.a]+"), ()),
        (Group("", "/.*"), ("/",)),
        (Group("", "/a|b"), ()),
        (Group("", ""), ()),
    ],
)
def test_what_a_group_can_be(group: Group, texts: tuple[str, ...]) -> None:
    assert possible_texts(group) == texts


@each_row(
    ("lines", "known"),
    [
        ("location ~ ^/(a)/(?<n>b) { return 200; }", {"1": ("a",), "2": ("b",), "n": ("b",)}),
        ("location ~ ^/(a) { rewrite ^/(.) /; }", {}),
        ("location ~ ^/(?<n>b) { if ($uri ~ (?<n>.*)) { return 200; } }", {}),
        ("server_name ~^(?<n>a)$; location ~ ^/(?<k>b)/(.*) { return 200; }",
         {"1": ("b",), "k": ("b",)}),
        ("location /a { return 200; }", {}),
    ],
)  # fmt: skip
def test_what_patterns_leave(lines: str, known: dict[str, tuple[str, ...]]) -> None:
    tree = parse_text(f"events {{}} http {{ server {{ listen 80; {lines} }} }}")
    (place,) = (one for one in scopes(tree) if one.kind == "location")
    assert captured(place) == known
