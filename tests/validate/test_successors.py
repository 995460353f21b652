"""Which server of the candidate answers in the place of the baseline's; whose names are gone."""

from __future__ import annotations

from test_site_plans import tree_of

from nginx_tune.experiment.validate.successors import find_successors

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
