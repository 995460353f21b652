"""``streaming``: only where somebody tells of streams, and only what does not come through."""

from typing import Any

import msgspec
import pytest
from rows import each_row
from situations import decide_without_break_evens as decide
from situations import host, load, nginx, site

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.site import Site, Upstream
from nginx_tune.documents.workload import Kind, LocationShare, Traffic, Workload
from nginx_tune.errors import UsageError

APP = Upstream(name="app", servers=["127.0.0.1:9"])


def decided(given: Site, workload: Workload | None = None) -> Decision:
    found = decide(host(), workload or load("proxy"), site=given)
    return next(d for d in found.decisions if d.id == "streaming")


def lines(decision: Decision) -> list[tuple[str, str]]:
    return [(one.block, " ".join([one.directive, *one.args])) for one in decision.settings]


def test_nobody_tells_and_nothing_is_said() -> None:
    d = decided(site(upstreams=[APP]))
    assert (d.verdict, d.settings, d.proposed) == ("not_applicable", [], [])
    assert any("[site] streams" in flip for flip in d.flips_when)


def test_what_the_site_names_is_not_buffered() -> None:
    d = decided(site(upstreams=[APP], streams=["/events/"]))
    assert (d.verdict, lines(d)) == ("set", [("/events/", "proxy_buffering off")])
    assert any("60 s" in risk for risk in d.risks), "silence is not known"
    assert [e.provenance for e in d.evidence] == ["declared"]


@each_row(
    ("silence", "timeout"),
    [(20.0, None), (45.0, "90s"), (100.4, "201s"), (1e9, "86400s"), (float("inf"), "86400s"),
     (float("nan"), None), (-5.0, None)],
)  # fmt: skip
def test_a_stream_that_may_be_silent_has_time_for_it(silence: float, timeout: str | None) -> None:
    d = decided(site(upstreams=[APP], streams=["/e/"], stream_silence_seconds=silence))
    found = [line for _, line in lines(d) if "timeout" in line]
    assert found == ([f"proxy_read_timeout {timeout}"] if timeout else [])
    assert not any("60 s" in risk for risk in d.risks)


def test_a_log_that_has_a_location_of_streams_tells_of_it() -> None:
    shares = [
        LocationShare(
            server="a", location=name, file="/n", line=1, requests_ratio=0.1, bytes_ratio=0.1
        )
        for name in ("/v1/chat/completions", "/img/", "~ ^/sse")
    ]
    workload = msgspec.structs.replace(load("proxy"), traffic=Traffic(locations=shares))
    d = decided(site(upstreams=[APP]), workload)
    assert lines(d) == [("/v1/chat/completions", "proxy_buffering off")]
    assert d.evidence[0].provenance == "learnt"


def test_files_are_no_streams() -> None:
    assert decided(site(streams=["/e/"]), load()).verdict == "not_applicable"


@each_row("kind", ["proxy", "cache", "static"])
def test_a_generated_file_has_a_location_for_each(kind: Kind) -> None:
    given = complete_site(site(upstreams=[APP], streams=["/e/"]), host(), kind)
    text = emit_decided(decide(host(), load(kind), site=given), given)
    if kind == "static":
        assert "/e/" not in text.partition("server {")[2]
        return
    location = text[text.index("location /e/ {") :].partition("}")[0]
    assert "proxy_pass http://app;" in location
    assert "proxy_buffering off;" in location
    assert ("proxy_cache off;" in location) is (kind == "cache")
    others = text.partition("location / {")[2].partition("}")[0]
    assert "proxy_buffering" not in others


@each_row(
    ("streams", "more"),
    [(["e"], {}), (["/"], {}), (["/e/", "/e/"], {}), (["/h/"], {"hot_locations": ["/h/"]})],
)
def test_what_is_no_location_of_a_stream_is_refused(streams: list[str], more: Any) -> None:
    given = complete_site(site(upstreams=[APP], streams=streams, **more), host(), "proxy")
    with pytest.raises(UsageError, match="streams"):
        emit_decided(decide(host(), load("proxy"), site=given), given)


CONF = """\
events { }
http {
    gzip on;
    gzip_types text/css%s;
    server {
        listen 80;
        location / { proxy_pass http://127.0.0.1:9; }
        location /sse/ {
            proxy_pass http://127.0.0.1:9;
            %s
        }
    }
}
"""


def held(line: str, types: str = "") -> Decision:
    tree = parse_text(CONF % (types, line), file="/n.conf")
    decisions = decide(host(nginx=nginx("1.22.1")), load("proxy"), site=site_in(tree, site()))
    return next(d for d in as_changes(decisions, tree).decisions if d.id == "streaming")


def test_in_a_configuration_the_location_that_holds_events_back_is_changed_and_no_other() -> None:
    d = held("")
    assert d.verdict == "set"
    assert [(p.line, p.change) for one in d.settings for p in one.places] == [(8, False)]
    on = held("proxy_buffering on;")
    assert [(p.line, p.change) for one in on.settings for p in one.places] == [(10, True)]


@each_row("line", ["proxy_buffering off;", "proxy_http_version 1.1;"])
def test_where_events_come_through_all_stays(line: str) -> None:
    d = held(line)
    assert (d.verdict, d.settings) == ("keep", [])


def test_gzip_holds_back_what_comes_in_chunks() -> None:
    assert held("proxy_http_version 1.1;", " text/event-stream").settings
    assert not held("proxy_http_version 1.1; gzip off;", " text/event-stream").settings
