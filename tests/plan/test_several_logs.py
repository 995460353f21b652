"""Every access log of a configuration gets its buffer, or the reason why it gets none."""

from made_decisions import decide
from rows import each_row
from situations import host, load, nginx, site

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.access_log import MOST_BUFFERED
from nginx_tune.documents.decisions import Decision

CONF = "events {} http { log_format own '$uri'; %s server { listen 80; root /srv/1; %s } }"


def held(http: str = "", server: str = "", **given: object) -> Decision:
    tree = parse_text(CONF % (http, server), file="/n.conf")
    own = site_in(tree, site(roots=["/srv/1"], **given))
    decisions = decide(host(nginx=nginx("1.22.1")), load(), site=own)
    return {d.id: d for d in as_changes(decisions, tree).decisions}["access-log"]


def buffered(decision: Decision) -> list[str]:
    return [one.args[0] for one in decision.settings]


def test_each_log_of_a_block_gets_a_buffer() -> None:
    d = held("access_log /l/a.log own; access_log /l/b.log own if=$loggable; access_log /l/c.log;")
    assert buffered(d) == ["/l/a.log", "/l/b.log", "/l/c.log"]
    assert not [risk for risk in d.risks if "no buffer" in risk]


def test_logs_of_servers_and_locations_are_buffered_too() -> None:
    """But not the one of http that every server has another for: nothing is written to it."""
    d = held("access_log /l/a.log;", "access_log /l/b.log; location / { access_log /l/c.log own; }")
    assert buffered(d) == ["/l/b.log", "/l/c.log"]


@each_row(
    ("line", "why"),
    [
        ("syslog:server=127.0.0.1", "syslog gets a datagram"),
        ("/l/$host.log", "has variables"),
        ("/dev/stdout", "readers of /dev/stdout"),
        ("/l/pipe", "not a regular file"),
    ],
)
def test_a_log_that_can_have_none_is_named_with_the_reason(line: str, why: str) -> None:
    first, last = f"access_log {line} own; access_log /l/a.log own;", "access_log /l/a.log;"
    for http in (first, f"{last} access_log {line} own;"):
        d = held(http, piped_logs=["/l/pipe"])
        assert buffered(d) == ["/l/a.log"]
        (risk,) = [one for one in d.risks if one.startswith(f"{line} gets no buffer: ")]
        assert why in risk


def test_what_has_a_buffer_stays_and_each_name_is_one_log_to_nginx() -> None:
    assert (
        held("access_log /l/a.log own buffer=8k flush=2s; access_log /l/b.log own gzip;").settings
        == []
    )
    d = held("access_log /l/a.log own buffer=8k flush=2s; access_log /l/b.log;")
    assert buffered(d) == ["/l/b.log"]
    twice = held("access_log /l/b.log own;", "access_log /l/b.log; access_log /l/../l/b.log own;")
    assert buffered(twice) == ["/l/b.log", "/l/../l/b.log"]
    assert held("access_log off;", "access_log off;").settings == []


def test_hundreds_of_logs_are_left_but_for_the_first() -> None:
    lines = [f"access_log /l/{number}.log;" for number in range(MOST_BUFFERED + 1)]
    assert len(buffered(held(" ".join(lines[1:])))) == MOST_BUFFERED
    d = held(" ".join(lines))
    assert buffered(d) == ["/l/0.log"]
    assert any(f"{MOST_BUFFERED} more logs get no buffer" in one for one in d.risks)
