"""Configurations without their secrets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.conf.secrets import redact_configuration
from nginx_tune.conf.tree import parse_text

SECRETS = [
    "# the password is czNjcmV0",
    "# ends here?\rczNjcmV0\nlisten 80;",
    "listen 80; # czNjcmV0",
    "listen 80 # czNjcmV0\n backlog=9;",
    "map $http_authorization $ok { czNjcmV0 1; 'czNjcmV0b' 2; default 0; }",
    "broken { czNjcmV0",
]


@each_row("text", SECRETS)
def test_secrets_go(text: str) -> None:
    """Comments, keys of tables and broken files; ``tests/secrets`` has the ways of all values."""
    redacted = redact_configuration(text.encode())
    assert b"czNjcmV0" not in redacted
    assert redact_configuration(redacted) == redacted, "doing it twice changes nothing more"


KEPT = r"""
user www-data;
events { worker_connections 768; }
http {
    log_format main '$remote_addr "$request" # $status';
    map $http_upgrade $connection { default upgrade; '' close; }
    server {
        listen 443 ssl http2 reuseport backlog=1024;
        ssl_certificate_key /etc/ssl/private/site.key;
        ssl_session_cache shared:SSL:10m;
        proxy_set_header Host $host;
        location ~ \.(?:php|phtml)$ { aio threads=disk; root "/srv/a b"; }
        proxy_cache_key $scheme$host$uri;
    }
}
"""


def test_what_the_product_looks_at_stays() -> None:
    assert redact_configuration(KEPT.encode()).decode() == KEPT


def test_lines_stay_where_they_are() -> None:
    text = (
        '# one\nproxy_set_header Authorization\n  "Basic\n x";\nmap $cookie_x $y {\n a 1;\n}\n'
        "content_by_lua_block {\n a\n b\n}\nlisten 80; # four\nroot /srv;\n"
    )
    redacted = redact_configuration(text.encode()).decode()
    assert redacted.count("\n") == text.count("\n")
    before = {d.name: d.line for d in parse_text(text).main}
    after = {d.name: d.line for d in parse_text(redacted).main}
    assert after == before


def test_a_byte_order_mark_and_other_encodings_stay() -> None:
    data = b"\xef\xbb\xbfserver_name caf\xe9;\r\n# caf\xe9\r\n"
    assert redact_configuration(data) == b"\xef\xbb\xbfserver_name caf\xe9;\r\n#\r\n"


@given(st.text(max_size=200))
def test_it_never_breaks(text: str) -> None:
    once = redact_configuration(text.encode("utf-8", "surrogatepass"))
    assert redact_configuration(once) == once


@pytest.mark.needs("nginx")
def test_the_packaged_configuration_reads_the_same() -> None:
    data = Path("/etc/nginx/nginx.conf").read_bytes()
    redacted = redact_configuration(data)
    names = [(d.name, d.args, d.line) for d in parse_text(data.decode()).main.walk()]
    assert [(d.name, d.args, d.line) for d in parse_text(redacted.decode()).main.walk()] == names
