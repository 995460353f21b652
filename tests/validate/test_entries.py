"""Which files both configurations are asked for, by their places and by their first answers."""

from collections.abc import Collection, Mapping

import pytest
from rows import each_row

from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.operations import Response
from nginx_tune.experiment.validate.sampled import (
    _STUB_DIGEST,
    Batch,
    batches_of,
    settle,
    with_typical_first,
)
from nginx_tune.experiment.validate.site import Entries, SiteFiles, plan_entries
from nginx_tune.experiment.validate.successors import find_successors
from nginx_tune.experiment.validate.touched import TouchedPlaces
from nginx_tune.measure.load.classes import ServedFile

CHALLENGE = "location /.well-known/acme-challenge/ { root /acme; }"
TOKENS = "/acme/.well-known/acme-challenge"
PASSED = "location / { proxy_pass http://127.0.0.1:9100; }"
OWN = "location / { root /www; }"
SENT_ON = "location / { return 301 https://a$request_uri; }"
TLS = "server { listen 443 ssl; server_name a; root /www; }"


def tree_of(http: str) -> ConfTree:
    return parse_text(f"events {{}} http {{ {http} }}", file="/nginx.conf")


def entries_of(
    before: str, after: str, full: Collection[str] = ("/www",), *, makes_files: bool = False
) -> Entries:
    trees = (tree_of(before), tree_of(after))
    sizes = full if isinstance(full, Mapping) else dict.fromkeys(full, 1)
    files = SiteFiles(lambda root: root in full, lambda root: sizes.get(root, 0), makes_files)
    successors = find_successors(*trees)
    touched = TouchedPlaces(trees, successors)
    return plan_entries(trees, successors, touched, files, error_logs=(None, None), protocols=())


def of_a(*lines: str) -> str:
    return f"server {{ listen 80; server_name a; {' '.join(lines)} }}"


def test_the_place_that_both_have_with_files() -> None:
    table: list[tuple[str, str, str | None, tuple[int, int]]] = [
        # The first directory has nothing in it, or is not there.
        (of_a(CHALLENGE, OWN), of_a(CHALLENGE, OWN), "/www", (80, 80)),
        (of_a("location /up/ { root /; }", OWN), of_a("location /up/ { root /; }", OWN), "/www",
         (80, 80)),
        (of_a(CHALLENGE, SENT_ON) + TLS, of_a(CHALLENGE, SENT_ON) + TLS, "/www", (443, 443)),
        (of_a(CHALLENGE, PASSED), of_a(CHALLENGE, PASSED), None, (80, 80)),
        # One of both alone has it.
        (of_a(OWN), of_a(CHALLENGE, OWN), "/www", (80, 80)),
        (of_a(CHALLENGE, OWN), of_a(OWN), "/www", (80, 80)),
        (of_a(PASSED), of_a(CHALLENGE, PASSED), None, (80, 80)),
        (of_a(OWN), of_a(CHALLENGE, SENT_ON) + TLS, "/www", (80, 443)),
        (of_a(OWN), of_a(PASSED), None, (80, 80)),
        # Of two servers with the same files the one that the same clients come to.
        ("server { listen 80; server_name b; root /www; }" + of_a("root /www;"),
         of_a("root /www;") + "server { listen 80; server_name b; root /www; }", "/www",
         (80, 80)),
    ]  # fmt: skip
    for before, after, root, ports in table:
        found = entries_of(before, after)
        where = (before, after)
        assert [one.root for one in found.pair] == [root, root], where
        assert tuple(one.target.port for one in found.pair) == ports, where
        assert len({one.target.host for one in found.pair}) == 1, where
        without = [TOKENS] if root is None and CHALLENGE in before else []
        assert found.without_files == without, where


def test_a_directory_that_is_full_in_both_is_taken_by_its_order() -> None:
    both = of_a(CHALLENGE, OWN)
    assert entries_of(both, both, ("/www", TOKENS)).pair[0].root == TOKENS
    assert entries_of(of_a(OWN), both, ("/www", TOKENS)).pair[0].root == "/www"


BOTH = (
    "{http} upstream a {{ server 127.0.0.1:1; {a} }} map $uri $m {{ default {m}; }}"
    "limit_req_zone $m zone=z:1m rate={z}r/s; server {{ listen 80; server_name one; root /www/a;"
    " location /api/ {{ proxy_pass http://a/; }} }}"
    "server {{ listen 81; server_name two; root /srv; {two}"
    " location /x/ {{ {x} limit_req zone=z; }}"
    " location /n/ {{ try_files $uri @app; }} location @app {{ {app} error_page 404 /gone; }}"
    " location = /gone {{ internal; {gone} }} }}"
)
PLAIN = {"http": "", "a": "", "m": "1", "z": "9", "two": "", "x": "", "app": "", "gone": ""}


@each_row(
    ("change", "port", "touched"),
    [
        ({"http": "sendfile on;"}, 80, {"/", "/api/", "two /", "two /x/", "two /n/"}),
        ({"two": "sendfile on;"}, 81, {"two /", "two /x/", "two /n/"}),
        ({"x": "expires max;"}, 80, {"two /x/"}),
        # A definition counts where it is used, also by another definition.
        ({"a": "keepalive 8;"}, 80, {"/api/"}),
        ({"z": "20"}, 80, {"two /x/"}),
        ({"m": "2"}, 80, {"two /x/"}),
        # A location to which another one hands requests on counts there, and so on.
        ({"app": "return 302 /;"}, 80, {"two /n/"}),
        ({"gone": "return 410;"}, 80, {"two /n/"}),
        # What no request meets; and a copy, which shows the noise of every place.
        ({"http": "upstream b { server 127.0.0.1:2; }"}, 80, set()),
        ({}, 80, {"/", "/api/", "two /", "two /x/", "two /n/"}),
    ],
)
def test_a_place_that_the_change_touches_comes_first(
    change: dict[str, str], port: int, touched: set[str]
) -> None:
    before, after = BOTH.format(**PLAIN), BOTH.format(**{**PLAIN, **change})
    assert entries_of(before, after, ("/www/a", "/srv")).pair[0].target.port == port
    trees = (tree_of(before), tree_of(after))
    places = TouchedPlaces(trees, find_successors(*trees))
    asked = [("", "/"), ("", "/api/"), ("two ", "/"), ("two ", "/x/"), ("two ", "/n/")]
    first, second = (server for _, server in servers(trees[0]))
    assert {
        name + url for name, url in asked if places.take(second if name else first, [url])
    } == touched


@each_row(
    ("change", "sizes", "root"),
    [
        ({"http": "aio threads;"}, {"/www/a": 6, "/srv": 2000}, "/srv"),
        ({"http": "aio threads;"}, {"/www/a": 2000, "/srv": 6}, "/www/a"),
        ({"http": "aio threads;"}, {"/www/a": 6, "/srv": 6}, "/www/a"),
        ({"two": "aio threads;"}, {"/www/a": 2000, "/srv": 6}, "/srv"),  # the other is as it was
        ({}, {"/www/a": 6, "/srv": 2000}, "/www/a"),
    ],
)
def test_of_the_places_that_the_change_touches_the_one_with_the_most_bytes_is_loaded(
    change: dict[str, str], sizes: dict[str, int], root: str
) -> None:
    before, after = BOTH.format(**PLAIN), BOTH.format(**{**PLAIN, **change})
    assert entries_of(before, after, sizes).pair[0].root == root


def test_two_sites_with_files_of_their_own_are_not_compared() -> None:
    with pytest.raises(UndecidedError, match="serve different sites: /www at / and /srv at /"):
        entries_of(of_a("root /www;"), of_a("root /srv;"), ("/www", "/srv"))


def test_a_lab_makes_the_files_of_a_directory_that_has_none() -> None:
    both = of_a(CHALLENGE, OWN)
    assert entries_of(both, both, (), makes_files=True).pair[0].root == TOKENS
    assert entries_of(both, both, ("/www",), makes_files=True).pair[0].root == "/www"
    found = entries_of(of_a("root /www;"), of_a("root /www;"), ())
    assert found.pair[0].root is None
    assert found.without_files == ["/www"]


STUB = Response(status=200, length_bytes=2048, digest=_STUB_DIGEST)


def files(count: int, ending: str = "css") -> list[ServedFile]:
    return [ServedFile(f"/f{number}.{ending}", 100 + number) for number in range(count)]


def same(file: ServedFile) -> Response:
    return Response(status=200, length_bytes=file.bytes, digest="d")


@each_row(
    ("baseline", "candidate", "why"),
    [
        (STUB, STUB, "by an application instead of the file; its stub answers 2048"),
        (Response(status=301), Response(status=301), "answers 301"),
        (Response(status=404), None, "answers 404"),
        (Response(status=503), Response(status=503), "answers 503"),
        (Response(fault="timed out"), Response(fault="timed out"), "no answer: timed out"),
        (None, Response(status=200, length_bytes=7), "the configurations answer 1"),
        (None, STUB, "2048 bytes for the same file"),
    ],
)
def test_what_is_not_served_from_its_file_is_left_out_whole(
    baseline: Response | None, candidate: Response | None, why: str
) -> None:
    batch = Batch(None, files(9))
    answers = {f.url: (baseline or same(f), candidate or same(f)) for f in batch.sample}
    found = settle(batch, answers)
    assert (found.files, found.unsettled) == ([], [])
    assert all(why.split(" bytes", maxsplit=1)[0] in said or why in said
               for said in found.refused.values()), found  # fmt: skip
    assert next(iter(found.refused)).startswith("/f0.css")


@each_row("candidate", [Response(status=403), Response(fault="reset"), None])
def test_what_the_baseline_serves_is_loaded_whatever_the_candidate_does(
    candidate: Response | None,
) -> None:
    batch = Batch(None, files(9))
    found = settle(batch, {f.url: (same(f), candidate or same(f)) for f in batch.sample})
    assert found == (batch.files, {}, [])


def test_where_some_are_answered_otherwise_all_are_asked_and_only_those_loaded() -> None:
    batch = Batch(None, files(400))
    refused = {"/f0.css", "/f7.css"}
    forbidden = Response(status=403)

    def answers(asked: list[ServedFile]) -> dict[str, tuple[Response, Response]]:
        found = {f.url: forbidden if f.url in refused else same(f) for f in asked}
        return {url: (one, one) for url, one in found.items()}

    known = answers(batch.sample)
    first = settle(batch, known)
    assert first.files == []
    known |= answers(first.unsettled)
    last = settle(batch, known)
    assert last.unsettled == []
    assert {f.url for f in last.files} == set(known) - refused
    assert last.refused["/f0.css and 1 more"].startswith("answers 403")
    assert sum("not requested" in why for why in last.refused.values()) == 1


def test_a_body_that_nginx_rewrites_is_expected_with_the_length_that_it_has() -> None:
    batch = Batch(None, files(3, "html"))
    longer = {f.url: (r := Response(status=200, length_bytes=f.bytes + 11), r) for f in batch.files}
    assert [f.bytes for f in settle(batch, longer).files] == [111, 112, 113]


def test_files_are_told_apart_by_the_location_of_either_variant_and_their_ending() -> None:
    texts = (r"location ~ \.php$ { }", r"location ~ \.php$ { } location /s/ { }")
    trees = [
        parse_text(f"events {{}} http {{ server {{ {text} }} }}", file="/n/nginx.conf")
        for text in texts
    ]
    (before, after) = (next(server for _, server in servers(tree)) for tree in trees)
    served = [ServedFile(url, 1) for url in ("/a.css", "/i.php", "/s/b.css", "/b.css", "/c.JS")]
    found = batches_of(served, (before, after), [LocationMatcher(tree) for tree in trees])
    assert [[f.url for f in one.files] for one in found] == [
        ["/a.css", "/b.css"], ["/c.JS"], ["/i.php"], ["/s/b.css"],
    ]  # fmt: skip
    many = [ServedFile(f"/{n}.{n}", 1) for n in range(300)]
    whole = batches_of(many, (before, after), [LocationMatcher(tree) for tree in trees])
    assert len(whole) < 20
    assert sum(len(one.files) for one in whole) == 300


def test_the_file_that_is_asked_for_most_is_a_typical_one_of_those_left() -> None:
    served = files(5)
    assert with_typical_first(served[1:], served[0])[0] == served[3]
    assert with_typical_first(served, served[0]) == served
    assert with_typical_first([], served[0]) == []
