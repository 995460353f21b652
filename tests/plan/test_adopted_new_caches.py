"""A site that had no cache gets one where it answers all who ask alike, and nowhere else."""

from made_decisions import decide
from msgspec.structs import replace
from rows import each_row
from situations import host, load, nginx

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.site import Site

CONF = """\
events {}
http {
    map $cookie_version $chosen { default one; two two; }
    map $host $by_host { default only; }
    map $host $one_by_host { default one; a.example.com two; }
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
    return {one.id: one for one in as_changes(made, tree).decisions}


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
    "location / { proxy_pass http://app; proxy_set_header X-Forwarded-For $remote_addr; }",
    "location / { proxy_pass http://app; proxy_set_header Host $http_host; }",
    "location / { proxy_pass http://app; proxy_set_header Upgrade $http_upgrade; }",
    'location / { proxy_pass http://app; proxy_set_header Connection ""; }',
    "location / { proxy_pass http://app; proxy_set_header Connection close; }",
    "location / { proxy_pass http://$by_host; }",
    "location / { proxy_pass http://$one_by_host; }",
    "location ~ ^/u/(?<user>[a-z]+)/ { proxy_pass http://app/x/$user; }",
    "location / { proxy_pass http://app; proxy_set_header REMOTE-HOST $remote_addr; }",
    'location / { proxy_pass http://app; proxy_set_header X-Request-Start "t=${msec}"; }',
    "location / { proxy_pass http://app; proxy_set_header Authorization $http_authorization; }",
    "location / { proxy_pass http://app; proxy_set_header X-Forwarded-Proto $scheme; }",
    "location / { error_page 404 /404.html; proxy_pass http://app; }",
    "location / { if ($http_user_agent ~ bot) { return 403; } proxy_pass http://app; }",
    'location / { if ($http_origin) { add_header A "b"; } proxy_pass http://app; }',
    "location / { rewrite ^/old/(.*) /new/$1 break; proxy_pass http://app; }",
    "location / { allow 10.0.0.0/8; deny all; proxy_pass http://app; }",
    'location / { add_header Cache-Control "max-age=60"; proxy_pass http://app; }',
    "location / { client_max_body_size 20m; proxy_pass http://app; }",
]
APART = [
    'location / { proxy_pass http://app; proxy_set_header Connection "upgrade"; }',
    "location / { proxy_pass http://app; proxy_set_header Connection $connection_upgrade; }",
    "location / { proxy_pass http://app; proxy_set_header Connection $http_connection; }",
    "location / { auth_request /auth; proxy_pass http://app; }",
    'location / { auth_basic "Staff"; proxy_pass http://app; }',
    "location / { access_by_lua_file /etc/a.lua; proxy_pass http://app; }",
    "location / { internal; proxy_pass http://app; }",
    "location / { proxy_buffering off; proxy_pass http://app; }",
    "location / { proxy_method POST; proxy_pass http://app; }",
    "location / { proxy_pass_request_body off; proxy_pass http://app; }",
    "location / { ssi on; proxy_pass http://app; }",
    "location / { slice 1m; proxy_pass http://app; }",
    "location / { add_after_body /foot; proxy_pass http://app; }",
    "location / { proxy_pass http://$chosen; }",
    "location / { proxy_pass http://$cookie_server; }",
    "location / { proxy_pass http://app; proxy_set_header Host $chosen; }",
    "location / { proxy_pass http://app; proxy_set_header X-User $remote_user; }",
    "location / { proxy_pass http://app; proxy_set_header X-Forwarded-User $remote_user; }",
    "location / { proxy_pass http://app; proxy_set_header X-Dn $ssl_client_s_dn; }",
    "location / { proxy_pass http://app; proxy_set_header X-Lang $chosen; }",
    "location / { proxy_pass http://app; proxy_set_header X-Api-Key $http_x_api_key; }",
    "location / { proxy_pass http://app; proxy_set_header Range $http_range; }",
    "location / { proxy_pass http://app; proxy_set_header If-None-Match $http_if_none_match; }",
    "location / { proxy_pass http://app; proxy_ignore_headers Set-Cookie; }",
    "location / { proxy_pass http://app; location /in/ { auth_basic a; proxy_pass http://app; } }",
    "location / { proxy_pass http://app; if ($arg_a) { proxy_pass http://$cookie_a; } }",
    "location / { proxy_pass http://app; if ($http_user_agent ~ m) { proxy_pass http://two; } }",
    "location / { if ($http_user_agent ~ m) { rewrite ^ /m/ last; } proxy_pass http://app; }",
    "location / { rewrite ^ /u/$cookie_uid/page break; proxy_pass http://app; }",
    (
        "location / { error_page 418 = @canary; if ($cookie_c) { return 418; } root /srv; } "
        "location @canary { proxy_pass http://two; }"
    ),
    "location / { proxy_cache off; proxy_pass http://app; }",
    "location / { proxy_cache_key $uri; proxy_pass http://app; }",
    "location / { proxy_cache_valid any 1h; proxy_pass http://app; }",
    "location / { proxy_cache_bypass $cookie_nocache; proxy_pass http://app; }",
    "location / { proxy_store on; proxy_pass http://app; }",
    "location / { try_files $uri @app; } location @app { proxy_pass http://app; }",
    'location / { add_header Cache-Control "private, no-store" always; proxy_pass http://app; }',
    "location / { expires -1; proxy_pass http://app; }",
    "location / { rewrite_by_lua_file /etc/a.lua; proxy_pass http://app; }",
    'location / { more_set_input_headers "X-User: $cookie_u"; proxy_pass http://app; }',
    "location / { proxy_bind $remote_addr transparent; proxy_pass http://app; }",
    'location / { proxy_pass http://app; proxy_set_header Authorization "Bearer $cookie_t"; }',
    "location / { proxy_pass http://app; proxy_set_header Accept-Language $chosen; }",
    "location / { proxy_pass http://app; proxy_set_header X-Real-IP $cookie_user; }",
    "location / { proxy_pass http://app; proxy_set_header X-Forwarded-Proto $http_x_proto; }",
    'location / { add_header X-Accel-Buffering "no"; proxy_pass http://app; }',
    "location / { proxy_pass https://bucket.s3.amazonaws.com; }",
    "location /v2/ { client_max_body_size 0; proxy_pass http://app; }",
]
OF_THE_SERVER = [
    "ssl_verify_client optional;",
    "if ($http_user_agent ~ m) { rewrite ^/(?!m/)(.*)$ /m/$1 last; }",
]


@each_row("locations", ALIKE)
def test_a_place_that_answers_all_alike_is_cached(locations: str) -> None:
    assert cached_lines(locations) == [9]


@each_row("locations", APART)
def test_a_place_whose_answers_depend_on_who_asks_is_not(locations: str) -> None:
    alone = held(locations)
    for name in ("cache-layout", "cache-key", "cache-updates"):
        assert alone[name].settings == [], name
    assert "may depend on the client" in alone["cache-key"].summary
    assert any("no cache in /srv/1" in one for one in alone["cache-layout"].risks)
    both = f"{OPEN}\n{locations}"
    assert cached_lines(both) == [9]
    (said,) = [one for one in held(both)["cache-key"].risks if "no cache there" in one]
    assert said.startswith("/n.conf:10 ")


@each_row("line", OF_THE_SERVER)
def test_a_server_that_looks_at_who_asks_has_no_place_for_all(line: str) -> None:
    assert cached_lines(f"{line} {OPEN}") == []


@each_row(
    ("second", "is_told_apart"),
    [
        ("listen 81; server_name a;", True),
        ("listen 127.0.0.2:80; server_name b;", True),
        ("listen 127.0.0.2:80; server_name a;", False),
        ("listen unix:/run/s; server_name a;", True),
    ],
)
def test_servers_of_one_name_and_port_are_told_apart_by_nothing(
    second: str, *, is_told_apart: bool
) -> None:
    first = f"server_name a; {OPEN} }} server {{ {second} location / {{ proxy_pass http://app; }}"
    assert cached_lines(first) == ([9, 9] if is_told_apart else [])


def test_a_stream_that_the_site_names_is_not_cached_and_says_so_once() -> None:
    text = CONF % f"{OPEN}\n        location /news/ {{ proxy_pass http://app; }}"
    tree = parse_text(text, file="/n.conf")
    facts = host(nginx=nginx("1.26.3"))
    own = Site(cache_dirs=["/srv/1"], streams=["/news/"])
    made = decide(facts, load("cache", data_bytes=None), site=site_in(tree, own))
    lines = [
        (place.line, *one.args)
        for d in as_changes(made, tree).decisions
        for one in d.settings
        if one.directive == "proxy_cache"
        for place in one.places
    ]
    assert lines == [(9, "cache_1"), (10, "off")]


@each_row("asks", ["auth_request /check;", "mirror /check;"])
@each_row("name", ["= /check", "/", "~ ^/ch"])
def test_what_nginx_asks_beside_a_request_is_never_kept(asks: str, name: str) -> None:
    """Its subrequest has the address of the client's request: the next one would be let in."""
    files = f"location /files/ {{ {asks} root /srv; }}"
    assert cached_lines(f"location {name} {{ proxy_pass http://app; }}\n{files}") == []
    assert cached_lines(f"{OPEN}\nlocation {name} {{ proxy_pass http://app; }}\n{files}") == [9]


def test_a_cache_that_stands_stays_wherever_it_stands() -> None:
    own = 'location / { auth_basic "Staff"; proxy_cache z; proxy_pass http://app; }'
    text = (CONF % own).replace("upstream app", "proxy_cache_path /c keys_zone=z:1m; upstream app")
    tree = parse_text(text, file="/n.conf")
    facts = host(nginx=nginx("1.26.3"))
    made = decide(facts, load("cache"), site=site_in(tree, replace(Site(), cache_dirs=["/c"])))
    settings = [one for d in as_changes(made, tree).decisions for one in d.settings]
    cached = {s.directive for s in settings if s.directive.startswith("proxy_cache")}
    assert cached <= {"proxy_cache_path"}
