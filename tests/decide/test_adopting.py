"""Decisions held against a site: each setting says where it is to go."""

from __future__ import annotations

import pytest
from situations import host, load, site

from nginx_tune.conf.tree import parse_text
from nginx_tune.decide import decide
from nginx_tune.decide.standing import hold_against
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.workload import Workload
from nginx_tune.report.decisions import render_decisions

CONF = """\
user www-data;
events { worker_connections 768; }
http {
    server {
        listen 80;
        location / { root /srv/1; sub_filter a b; }
        location /b/ {
            root /srv/1;
            aio threads;
        }
        location /c/ { root /srv/1; aio off; }
    }
}
"""


def held(conf: str = CONF) -> dict[str, Decision]:
    decisions = decide(host(), load(cold_peak=200), site=site(roots=["/srv/1"]))
    return {d.id: d for d in hold_against(decisions, parse_text(conf, file="/n.conf")).decisions}


def test_each_setting_names_file_line_and_block() -> None:
    pools = held()["thread-pools"]
    (aio,) = pools.settings
    assert aio.places == ["/n.conf:6 location /", "/n.conf:11 aio off"]


def test_what_stands_outside_http_names_its_line() -> None:
    (line,) = [s for s in held()["connections"].settings if s.directive == "worker_connections"]
    assert line.places == ["/n.conf:2 worker_connections 768"]


def test_every_setting_of_a_site_has_a_place_or_is_for_the_top_of_the_file() -> None:
    for decision in held().values():
        for one in decision.settings:
            assert one.places or one.context == "main", one


def test_the_screen_says_it() -> None:
    decisions = decide(host(), load(cold_peak=200), site=site(roots=["/srv/1"]))
    text = render_decisions(hold_against(decisions, parse_text(CONF, file="/n.conf")))
    assert "/n.conf:11 aio off" in " ".join(text.split())


def test_a_filter_that_reads_bodies_is_named() -> None:
    assert any("/n.conf:6 sub_filter a b" in risk for risk in held()["thread-pools"].risks)
    silent = held(CONF.replace("sub_filter a b;", ""))["thread-pools"]
    assert not any("bodies into buffers" in risk for risk in silent.risks)


@pytest.mark.parametrize(
    ("key", "stays"),
    [("$host$uri", True), ("$scheme$http_host$request_uri", True), ("$scheme$request_uri", False)],
)
def test_an_own_key_with_the_host_stays(key: str, *, stays: bool) -> None:
    facts = host(mount="/data")
    decisions = decide(facts, Workload(kind="cache"), site=site(cache_dirs=["/data/1"]))
    conf = (
        "events {} http { server { listen 80; "
        f"location / {{ proxy_pass http://a; proxy_cache_key {key}; }} }} }}"
    )
    wanted = [
        s
        for d in hold_against(decisions, parse_text(conf)).decisions
        for s in d.settings
        if s.directive == "proxy_cache_key"
    ]
    assert not wanted if stays else wanted
