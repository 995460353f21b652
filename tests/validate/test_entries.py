"""Which files both configurations are asked for, of those that they name."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.validate.site import Entries, SiteFiles, plan_entries
from nginx_tune.experiment.validate.successors import find_successors

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
    files = SiteFiles(lambda root: root in full, makes_files)
    return plan_entries(
        trees, find_successors(*trees), files, error_logs=(None, None), protocols=()
    )


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
