"""What a candidate no longer serves: where it is reached, and what it answers."""

from __future__ import annotations

from typing import TypedDict

from tiers import REPEAT, dice, draws

from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.experiment.operations import Response
from nginx_tune.experiment.validate.successors import (
    SuccessorKind,
    is_loaded,
    lost_answer,
    lost_content,
    lost_listeners,
    moved_content,
)


class _Kinds(TypedDict):
    before: SuccessorKind
    after: SuccessorKind


def tree(*listens: str) -> ConfTree:
    lines = " ".join(f"listen {one};" for one in listens)
    return parse_text(f"events {{}} http {{ server {{ {lines} return 204; }} }}")


def test_where_clients_connect() -> None:
    table: list[tuple[list[str], list[str], list[str]]] = [
        (["18080"], ["18080"], []),
        (["18080"], ["127.0.0.1:18081"], ["*:18080: the candidate does not listen there"]),
        (["18080"], ["127.0.0.1:18080"], ["*:18080: the candidate does not listen there"]),
        (["127.0.0.1:18080"], ["18080"], []),
        (["18080"], ["[::]:18080 ipv6only=on"], ["*:18080: the candidate does not listen there"]),
        (["18080"], ["[::]:18080 ipv6only=off"], []),
        (["18080", "[::]:18080"], ["[::]:18080 ipv6only=off"], []),
        (["[::]:18080 ipv6only=off"], ["[::]:18080"],
         ["[::]:18080: the candidate does not listen there"]),
        (["[::1]:80"], ["80", "[::]:80"], []),
        (["[::1]:80"], ["80"], ["[::1]:80: the candidate does not listen there"]),
        (["18080"], ["18443 ssl"], ["*:18080: the candidate does not listen there"]),
        (["443 ssl"], ["443"], ["*:443: without TLS"]),
        (["80"], ["80 ssl"], ["*:80: only with TLS"]),
        (["80"], ["80 proxy_protocol"], ["*:80: only with the PROXY protocol"]),
        (["80 proxy_protocol"], ["80"], ["*:80: without the PROXY protocol"]),
        (["443 ssl", "443 quic"], ["443 ssl"],
         ["*:443 (QUIC): the candidate does not listen there"]),
        (["443 ssl"], ["443 ssl", "443 quic"], []),
        (["80"], ["0.0.0.0:80 backlog=4096 reuseport"], []),
        ([], ["80"], []),
        (["80"], [], []),
        (["unix:/a"], ["unix:/a"], []),
        (["unix:/a"], ["unix:/b"], ["unix:/a: the candidate does not listen there"]),
        (["unix:/a"], ["80"], ["unix:/a: the candidate does not listen there"]),
        (["127.1:80", "[::0]:81"], ["127.0.0.1:080", "[::]:81"], []),
        (["8000-8003"], ["8000-8001", "8002", "*:8003-8009"], []),
        (["8000-8003"], ["8000-8002"], ["*:8003: the candidate does not listen there"]),
    ]  # fmt: skip
    wrong = [
        (before, after, found)
        for before, after, lost in table
        if (found := lost_listeners(tree(*before), tree(*after))) != lost
    ]
    assert wrong == []


def test_nothing_is_lost_to_the_same_listeners_in_another_order() -> None:
    drawn = dice("listeners in another order")
    some = ["80", "[::]:80", "127.0.0.1:81", "443 ssl", "443 quic", "unix:/a", "[::1]:82 ssl",
            "83 proxy_protocol", "[::]:84 ipv6only=off", "*:85", "lo:86", "87-89"]  # fmt: skip
    for _ in range(draws(100, 2000)):
        one = drawn.sample(some, drawn.randint(1, len(some)))
        more = drawn.sample(some, len(some))
        there = [*one, *(item for item in more if item not in one)]
        assert lost_listeners(tree(*one), tree(*there)) == [], (one, there, REPEAT)


def test_what_a_place_answers() -> None:
    table = [
        (200, 200, False, False),
        (200, 301, False, False),
        (301, 404, False, True),
        (200, 503, False, True),
        (200, 502, False, True),
        (200, 502, True, False),
        (200, 503, True, True),
        (200, None, False, True),
        (404, 500, False, False),
        (401, 200, False, False),
        (None, 500, False, False),
    ]
    not_asked = Response(status=None, was_asked=False)
    for before, after, has_silent, is_lost in table:
        row = (before, after, has_silent)
        why = lost_answer(Response(status=before), Response(status=after), has_silent=has_silent)
        assert bool(why) is is_lost, row
        assert not lost_answer(Response(status=before), not_asked, has_silent=has_silent), row


def test_another_answer_that_is_no_error() -> None:
    """Only where it is made of something else, and says something else."""
    table: list[tuple[SuccessorKind, SuccessorKind, bool, bool]] = [
        ("files", "own", True, True),
        ("files", "files", True, False),
        ("files", "passed", True, False),
        ("passed", "own", True, True),
        ("passed", "files", False, True),
        ("passed", "files", True, False),
        ("passed", "passed", False, False),
        ("own", "own", True, False),
        ("own", "files", False, False),
    ]
    one = Response(status=200, length_bytes=9, digest="a")
    two = Response(status=200, length_bytes=2, digest="b")
    sent_away = Response(status=301, length_bytes=2, digest="b")
    for before, after, has_partner, is_lost in table:
        row = (before, after, has_partner)
        kinds = _Kinds(before=before, after=after)
        assert bool(lost_content(one, two, **kinds, has_partner=has_partner)) is is_lost, row
        assert not lost_content(one, one, **kinds, has_partner=has_partner), row
        assert not lost_content(one, sent_away, **kinds, has_partner=has_partner), row
        is_apart = {before, after} == {"files", "passed"}
        assert bool(moved_content(one, two, **kinds)) is is_apart, row


def test_files_of_other_lengths_are_not_loaded() -> None:
    one, two = (Response(status=200, length_bytes=length, digest="a") for length in (9, 8))
    assert is_loaded([one, one], are_files=True) == (200, "")
    assert is_loaded([one, two]) == (200, "")
    assert is_loaded([one, two], are_files=True)[0] is None
    of_parts = Response(status=200, digest="a")
    assert is_loaded([one, of_parts], are_files=True) == (200, "")
