"""Sites and snippets by themselves: what is certain of them is judged as in a whole tree."""

from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Facts

SITE = """server {
    listen 80;
    liisten 81;
    client_max_body_size 10gb;
    root /a;
    root /b;
    alias /x;
    location / { proxy_pass a b c; }
}
"""


def told(text: str) -> list[str]:
    found = audit(parse_text(text), None).findings
    return sorted(one.rule for one in found if one.rule.startswith("cf-"))


def test_a_site_is_judged_as_where_it_is_included() -> None:
    whole = told(f"events {{}} http {{ {SITE} }}")
    assert told(SITE) == whole
    assert len(whole) == 5


@each_row(
    ("text", "rules"),
    [
        ("server { listen 53 udp; proxy_pass dns; proxy_timeout 1s; }", []),
        ("server { listen 25; protocol smtp; smtp_auth login; }", []),
        ("server { listen 80; root /a; brotli_window_of_others 1; }", []),
        ("location / { proxy_pass a b c; }", ["cf-directive-arguments"]),
        ("location / { listen 80; }", ["cf-directive-misplaced"]),
        ("location / { location /in { proxy_redirct off; } }", ["cf-directive-unknown"]),
        ("location /a { } listen 80; server_name a;", []),
        ("proxy_set_header Host $host; proxy_buffers 8 8k;", []),
        ("upstream u { server 127.0.0.1:1; } server { listen 80; location / { } }", []),
        ("{% if tls %}\nserver { listen 443 ssl; root {{ root }}; }\n{% endif %}", []),
        ("map $uri $x { default 1; } server { root /a; listen 80; }", []),
        ("root /a; index index.html; sendfile on;", []),
        ("server { listen 443 ssl; listen 443 http3 reuseport; root /a; }", []),
        ("lua_zone_of_others 1; server { listen 80; root /a; }", []),
        ("lua_zone_of_others 1; root /a;", []),
        ("{% if x %} lua_zone_of_others 1; {% endif %}", []),
        ("hello world; and more;", ["cf-directive-unknown"]),
        ("text/html html;", ["cf-directive-unknown"]),
        ("\udcff\udcfeevents {}", ["cf-directive-unknown"]),
        ("\udcff\udcfeserver { root /a; } upstream u { server a; }", ["cf-directive-unknown"]),
    ],
)
def test_what_cannot_be_told_of_a_part_is_not_told(text: str, rules: list[str]) -> None:
    assert told(text) == rules


BUILT, FOREIGN = linux(), linux(flags=("--add-module=/m",))
HTTP = "events {{}} http {{ {} on; }}"
MODULE = "load_module modules/ngx_http_of_others_module.so; " + HTTP


@each_row(
    ("text", "facts", "severity"),
    [
        (HTTP.format("sendfil"), None, "error"),
        (HTTP.format("sendfiel"), None, "error"),
        (HTTP.format("proxy_request_buferin"), None, "error"),
        (HTTP.format("sendfil") + " include x;", None, "error"),
        ("location / { sendfil on; }", None, "error"),
        ("load_module modules/ngx_stream_module.so; " + HTTP.format("sendfil"), None, "error"),
        (MODULE.format("sendfil"), None, "warning"),
        (HTTP.format("sendfil"), FOREIGN, "warning"),
        (HTTP.format("frobnicate"), None, "error"),
        (HTTP.format("server_tolkings"), None, "error"),
        (HTTP.format("frobnicate"), BUILT, "error"),
        (HTTP.format("frobnicate") + " include x;", BUILT, "warning"),
        (HTTP.format("frobnicate") + " include x;", None, "warning"),
        ("server { root /a; server_tolkings on; }", None, "warning"),
        (MODULE.format("frobnicate"), BUILT, None),
    ],
)
def test_a_name_that_nginx_surely_refuses_is_an_error(
    text: str, facts: Facts | None, severity: str | None
) -> None:
    found = audit(parse_text(text), facts).findings
    unknown = [one for one in found if one.rule == "cf-directive-unknown"]
    assert [one.severity for one in unknown] == ([severity] if severity else [])
    assert all(("unless" in one.message) == (severity == "warning") for one in unknown)


_BUILT = "events {} http { server { listen 80; location / { %s } } }"


@each_row(
    ("lines", "rules"),
    [
        ("auth_jwt_key /k.pub file; auth_jwt_alg ES256;", []),
        ("brotli on off; more_set_headers;", []),
        ("vod hls; secure_token $args; secure_token_types text/plain;", []),
        ("vod hls; secure_tokens_of_nobody $args;", []),
        ("vod hls; sendfil on; proxy_redirct off;", ["cf-directive-unknown"] * 2),
        ("brotli on; proxy_pass a b;", ["cf-directive-arguments"]),
        ("secure_tokens_of_nobody $args;", ["cf-directive-unknown"]),
    ],
)
def test_modules_of_others_are_not_judged_by_one_that_is_known(
    lines: str, rules: list[str]
) -> None:
    assert told(_BUILT % lines) == rules
