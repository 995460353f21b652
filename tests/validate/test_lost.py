"""What a candidate no longer serves: where it is reached, by which names, and what it answers."""

from typing import TypedDict

from test_site_plans import tree_of
from tiers import REPEAT, dice, draws

from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.experiment.operations import Response
from nginx_tune.experiment.validate.successors import (
    SuccessorKind,
    find_successors,
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


A = "server { listen 80; server_name a.test; root /a; }"
B = "server { listen 80; server_name b.test; location / { proxy_pass http://b; } }"

LAST = "server { listen 80 default_server; server_name _; return 444; }"


def server(names: str, body: str = "root /x;", listen: str = "80") -> str:
    named = f"server_name {names};" if names else ""
    return f"server {{ listen {listen}; {named} {body} }}"


def test_a_name_that_falls_to_another_server_is_lost() -> None:
    table = [
        (A + B, A, "*:80, b.test: no server has this name any more, and that of a.test answers"),
        (A + server("b.test c.test"), A + server("b.test"), "*:80, c.test: no server has"),
        (A + server("*.b.test"), A + server("www.b.test"), "*:80, *.b.test: no server has"),
        (A + server(".b.test"), A + server("b.test"), "*:80, .b.test: no server has"),
        (A + server("b.*"), A + server("b.test"), "*:80, b.*: no server has"),
        (A + server(r"~^x\d+\.test$"), A, r"*:80, ~^x\d+\.test$: no server has"),
        (A + server("b.test") + server("*.test", "return 301 /;"),
         A + server("*.test", "return 301 /;"),
         "*:80, b.test: no server has this name any more, and that of *.test answers"),
        # A page for the rest that took such names before, by another spelling of its wildcard too.
        (A + server("b.test") + server("*.test", "return 301 /;"),
         A + server(".test", "return 301 /;"),
         "*:80, b.test: no server has this name any more, and that of .test answers"),
        (server("b.test") + server("~."), server("~.", "aio threads; root /x;"),
         "*:80, b.test: no server has this name any more, and that of ~. answers"),
        (server("a.test", "root /a;", "80 default_server") + server("b.test"),
         server("a.test", "root /a;") + server("b.test", "root /x;", "80 default_server"),
         "*:80, any other name: another default server, that of b.test, answers"),
        (server("_") + server("b.test", "root /b;"), server("b.test", "root /b;"),
         "*:80, any other name: another default server"),
        # A specific address has its servers for itself, and answers at no other.
        (server("a.test", "root /a;") + server("b.test"),
         server("a.test", "root /a;", "127.0.0.1:80") + server("b.test"),
         "*:80, a.test: no server has"),
        (server("a.test", "root /a;", "127.0.0.1:80") + server("b.test", listen="127.0.0.1:80"),
         server("a.test", "root /a;", "127.0.0.1:80") + server("b.test"),
         "127.0.0.1:80, b.test: no server has"),
    ]  # fmt: skip
    wrong = []
    for before, after, said in table:
        lost = find_successors(tree_of(before), tree_of(after)).lost
        if [one[: len(said)] for one in lost] != [said]:
            wrong.append((before, after, lost))
    assert wrong == []


def test_who_still_answers_is_not_lost() -> None:
    table = [
        (A + B, A + B),
        (A + B, B + A),
        (A + B, A + B.replace("proxy_pass", "sendfile on; proxy_pass")),
        # Names that merged, moved to a wildcard, or were written another way.
        (A + server("b.test"), server("a.test b.test", "root /a;")),
        (A + server("b.test"), A + server("*.test")),
        (A + server("b.test"), A + server("*.test", "root /x; sendfile on;")),
        (A + server("b.test www.b.test"), A + server(".b.test", "root /x; aio threads;")),
        (A + server("b.test"), A + server("B.TEST")),
        # A wildcard or a pattern that is new names what it takes.
        (LAST + A + server("b.test", "access_log /b; root /a;"),
         LAST + server("a.test *.test", "root /a;")),
        (LAST + server("a.test") + server("www.a.test", "return 301 http://a.test;"),
         LAST + server(".a.test")),
        (LAST + server("a.test") + server("www.a.test", "root /w;"),
         LAST + server(r"~^(www\.)?a\.test$")),
        (LAST + server("a.test") + server("a.com", "root /w;"), LAST + server("a.*")),
        (LAST + server("b.c.test") + server("*.test", "root /w;"),
         LAST + server("*.test *.c.test", "root /w;")),
        (A + server("b.test"), A + server(r"~^b\.test$")),
        (A + server(r"~^x\d\.test$"), A + server(r"~^x\d\.test$", "root /x; aio threads;")),
        # The only server answers whatever it is called.
        (A, A.replace("a.test", "_").replace("root", "sendfile on; root")),
        (A, A.replace("a.test", "other.test")),
        (server("a.test www.a.test"), server("a.test", "root /x; aio threads;")),
        (server("a.test b.test") + server("c.test", "root /c;"),
         server("a.test") + server("c.test", "root /c;")),
        # The same redirect answers.
        (server("a.test", "return 301 https://$host$request_uri;")
         + server("b.test", "return 301 https://$host$request_uri;"),
         server("a.test", "return 301 https://$host$request_uri;")),
        # What served nothing is no loss.
        (server("_", "return 444;", "80 default_server") + A, A),
        (server("", "location / { return 404; }") + A, A),
        (A + server("b.test", "return 410;"), A),
        (server("_", "deny all; root /x;", "80 default_server") + A, A),
        # A catch-all that was not there before is asked what it answers.
        (A, server("_", "return 444;", "80 default_server") + A),
        # An address that is gone is told once, elsewhere.
        (A + server("b.test", listen="81"), A),
        ("server { server_name a.test; root /a; }", A),
        (A + server("b.test", listen="81"), A + server("b.test", listen="*:81")),
        (A, A.replace("listen 80", "listen [::]:80 ipv6only=off")),
    ]  # fmt: skip
    wrong = [
        (before, after, lost)
        for before, after in table
        if (lost := find_successors(tree_of(before), tree_of(after)).lost)
    ]
    assert wrong == []


def test_a_server_without_a_name_left_is_gone_and_another_is_asked_by_what_is_left() -> None:
    before = tree_of(A + server("b.test c.test") + server("d.test", "root /d;"))
    found = find_successors(before, tree_of(A + server("c.test")))
    asked = {one.block.all("server_name")[0].args: host for one, host in found.hosts.items()
             if one.block is not None}  # fmt: skip
    assert asked == {("b.test", "c.test"): "c.test"}
    gone = [one.block.all("server_name")[0].args for one in found.gone if one.block is not None]
    assert gone == [("d.test",)]
