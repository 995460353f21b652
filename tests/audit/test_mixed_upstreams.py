"""What rules say of an upstream that is asked by several protocols, or verified by some alone."""

from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text

CONF = """\
events {}
http {
    upstream app { server 10.0.0.1; server 10.0.0.2; %s }
    server {
        listen 80;
        proxy_http_version 1.1; proxy_set_header Connection "";
        location /a { %s }
        location /b { %s }
    }
}
"""
SECURE = "proxy_pass https://app;"
VERIFIED = f"proxy_ssl_verify on; proxy_ssl_trusted_certificate /c/ca.pem; {SECURE}"
PLAIN = "proxy_pass http://app;"
MIXED = [(SECURE, VERIFIED), (PLAIN, SECURE), (PLAIN, "grpc_pass grpc://app;")]
ALIKE = [
    (SECURE, SECURE),
    (VERIFIED, VERIFIED),
    (PLAIN, "proxy_ssl_verify on; proxy_pass http://app;"),
]


def severities(first: str, second: str, pool: str, rule: str, version: str) -> list[str]:
    tree = parse_text(CONF % (pool, first, second), file="/n.conf")
    found = audit(tree, linux(version=version)).findings
    return [one.severity for one in found if one.rule == rule]


@each_row(("first", "second"), [*MIXED, *ALIKE])
@each_row("version", ["1.22.1", "1.30.0"])
def test_a_pool_that_they_share_is_found(first: str, second: str, version: str) -> None:
    said = severities(first, second, "keepalive 8;", "up-identity-shared", version)
    assert said == (["warning"] if (first, second) in MIXED else [])


@each_row(("first", "second"), [*MIXED, *ALIKE])
def test_pools_of_each_place_are_not_shared(first: str, second: str) -> None:
    """Since 1.29.7 the connections that nginx keeps by itself are a location's own."""
    assert not severities(first, second, "", "up-identity-shared", "1.30.0")


@each_row(("first", "second"), [*MIXED, *ALIKE])
def test_a_pool_is_advised_where_they_could_share_it(first: str, second: str) -> None:
    said = severities(first, second, "", "up-keepalive-missing", "1.22.1")
    assert bool(said) is ((first, second) in ALIKE)
