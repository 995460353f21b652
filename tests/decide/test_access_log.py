"""What an operator chose for the access log stands."""

from rows import each_row
from situations import decide_without_break_evens as decide
from situations import host, load, site

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.decisions import Decision


def held(http: str, server: str = "") -> Decision:
    text = f"events {{}} http {{ {http} server {{ listen 80; root /srv/1; {server} }} }}"
    tree = parse_text(text, file="/n.conf")
    own = site_in(tree, site(roots=["/srv/1"], access_log=None))
    found = as_changes(decide(host(), load(rate=5000), site=own), tree)
    return next(one for one in found.decisions if one.id == "access-log")


@each_row(
    ("http", "server", "verdict"),
    [
        ("access_log off;", "", "keep"),
        ("", "access_log off;", "keep"),
        ("access_log syslog:server=127.0.0.1 combined;", "", "not_applicable"),
        ("access_log syslog:server=127.0.0.1;", "access_log off;", "keep"),
        ("access_log /dev/stdout;", "", "not_applicable"),
        ("access_log /proc/self/fd/1 combined;", "", "not_applicable"),
        ("access_log /var/log/$host.log;", "", "not_applicable"),
    ],
)
def test_nothing_is_logged_that_was_not(http: str, server: str, verdict: str) -> None:
    decision = held(http, server)
    assert (decision.verdict, decision.settings) == (verdict, [])


@each_row(
    ("http", "server"),
    [
        ("access_log off;", "access_log /var/log/a.log;"),
        ("access_log syslog:server=127.0.0.1; access_log /var/log/a.log;", ""),
        ("access_log /dev/stdout;", "location / { access_log /var/log/a.log; }"),
    ],
)
def test_a_buffer_goes_to_the_line_of_the_file(http: str, server: str) -> None:
    (setting,) = held(http, server).settings
    assert setting.args[0] == "/var/log/a.log"
    assert "buffer=64k" in setting.args
    assert [(p.text, p.change) for p in setting.places] == [("access_log /var/log/a.log", True)]
