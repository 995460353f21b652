"""A site that had no cache gets one where it answers all who ask alike, and nowhere else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from situations import host, load, nginx

from nginx_tune.adopt.changing import hold_against
from nginx_tune.adopt.naming import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide import complete_site, decide
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.site import Site

CONF = """\
events {}
http {
    map $cookie_version $chosen { default one; two two; }
    map $host $by_host { default only; }
    upstream app { server 127.0.0.1:9000; }
    server {
        listen 80;
        %s
    }
}
"""
OPEN = "location /open/ { proxy_pass http://app; }"


def held(locations: str) -> dict[str, Decision]:
    tree = parse_text(CONF % locations, file="/n.conf")
    facts = host(nginx=nginx("1.26.3"))
    given = complete_site(site_in(tree, Site(cache_dirs=["/srv/1"])), facts, "cache")
    made = decide(facts, load("cache", data_bytes=None), site=given)
    return {one.id: one for one in hold_against(made, tree).decisions}


def cached_lines(locations: str) -> list[int]:
    """The lines of the locations that get a cache."""
    found = held(locations)
    return [
        place.line
        for one in found["cache-layout"].settings
        if one.directive == "proxy_cache"
        for place in one.places
    ]


ALIKE = [
    "location / { proxy_pass http://app; }",
    "location / { proxy_pass http://app$request_uri; }",
    'location / { set $up "http://app"; proxy_pass $up; }',
    "location ~ ^/(a)/(b) { proxy_pass http://app/$1/$2; }",
    "location / { auth_basic off; proxy_pass http://app; }",
    "location / { proxy_pass http://app; proxy_set_header X-Real-IP $remote_addr; }",
    "location / { try_files $uri @app; } location @app { proxy_pass http://app; }",
    "location / { proxy_pass http://$by_host; }",
]
APART = [
    "location / { auth_request /auth; proxy_pass http://app; }",
    'location / { auth_basic "Staff"; proxy_pass http://app; }',
    "location / { access_by_lua_file /etc/a.lua; proxy_pass http://app; }",
    "location / { internal; proxy_pass http://app; }",
    "location / { proxy_buffering off; proxy_pass http://app; }",
    "location / { proxy_method POST; proxy_pass http://app; }",
    "location / { proxy_pass_request_body off; proxy_pass http://app; }",
    "location / { proxy_pass http://$chosen; }",
    "location / { proxy_pass http://$cookie_server; }",
    "location / { proxy_pass http://app; proxy_set_header X-User $remote_user; }",
    "location / { proxy_pass http://app; proxy_set_header X-Dn $ssl_client_s_dn; }",
    "location / { proxy_pass http://app; proxy_ignore_headers Set-Cookie; }",
    "location / { proxy_pass http://app; location /in/ { auth_basic a; proxy_pass http://app; } }",
    "location / { proxy_pass http://app; if ($arg_a) { proxy_pass http://$cookie_a; } }",
]


@pytest.mark.parametrize("locations", ALIKE)
def test_a_place_that_answers_all_alike_is_cached(locations: str) -> None:
    assert cached_lines(locations) == [8]


@pytest.mark.parametrize("locations", APART)
def test_a_place_whose_answers_depend_on_who_asks_is_not(locations: str) -> None:
    alone = held(locations)
    for name in ("cache-layout", "cache-key", "cache-updates"):
        assert alone[name].settings == [], name
    assert "is for nobody else" in alone["cache-key"].summary
    assert any("no cache in /srv/1" in one for one in alone["cache-layout"].risks)
    both = f"{OPEN}\n{locations}"
    assert cached_lines(both) == [8]
    (said,) = [one for one in held(both)["cache-key"].risks if "no cache there" in one]
    assert said.startswith("/n.conf:9 ")


def test_a_server_that_asks_for_certificates_has_no_place_for_all() -> None:
    assert cached_lines(f"ssl_verify_client optional; {OPEN}") == []
    assert cached_lines(f"ssl_verify_client off; {OPEN}") == [8]


@pytest.mark.parametrize("asks", ["auth_request /check;", "mirror /check;"])
@pytest.mark.parametrize("name", ["= /check", "/", "~ ^/ch"])
def test_what_nginx_asks_beside_a_request_is_never_kept(asks: str, name: str) -> None:
    """Its subrequest has the address of the client's request: the next one would be let in."""
    files = f"location /files/ {{ {asks} root /srv; }}"
    assert cached_lines(f"location {name} {{ proxy_pass http://app; }}\n{files}") == []
    assert cached_lines(f"{OPEN}\nlocation {name} {{ proxy_pass http://app; }}\n{files}") == [8]


def test_a_cache_that_stands_stays_wherever_it_stands() -> None:
    own = 'location / { auth_basic "Staff"; proxy_cache z; proxy_pass http://app; }'
    text = (CONF % own).replace("upstream app", "proxy_cache_path /c keys_zone=z:1m; upstream app")
    tree = parse_text(text, file="/n.conf")
    facts = host(nginx=nginx("1.26.3"))
    made = decide(facts, load("cache"), site=site_in(tree, replace(Site(), cache_dirs=["/c"])))
    held_against = hold_against(made, tree)
    (line,) = [
        one for d in held_against.decisions for one in d.settings if "cache" in one.directive
    ]
    assert line.directive == "proxy_cache_path"
