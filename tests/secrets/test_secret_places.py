"""No way to hold a secret in a configuration shows it in what is made of the configuration."""

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
import tiers
from corpus import Way, forms_of, ways
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule, linux
from nginx_tune.cli.audit_formats import _WRITERS
from nginx_tune.conf.secrets import (
    TreeSecrets,
    left_out,
    redact_configuration,
    redact_message,
    redact_tree,
)
from nginx_tune.conf.tree import parse_text, read_tree
from nginx_tune.documents.base import encode
from nginx_tune.host.live import LiveHost
from nginx_tune.report.findings import render_findings

WAYS = list(ways())
LEAST_WAYS = 80
ROOT = Path(__file__).resolve().parents[2]


def _assert_absent(secret: str, text: str, where: str) -> None:
    for form in forms_of(secret):
        assert form not in text, f"{where} shows {form!r} ({tiers.REPEAT}): {text}"


def test_the_corpus_is_large_enough() -> None:
    assert len({(way.place, way.text) for way in WAYS}) == len(WAYS) >= LEAST_WAYS
    said = re.search(r"by (\d+) ways", (ROOT / "SECURITY.md").read_text())
    assert said
    assert int(said[1]) == len(WAYS)
    assert all("@S@" in way.text or "@B@" in way.text or "@U@" in way.text for way in WAYS)


@each_row("way", WAYS, ids=lambda way: way.name)
def test_captures(way: Way, drawn_secrets: list[str]) -> None:
    for secret in drawn_secrets:
        data = way.configuration(secret).encode()
        redacted = redact_configuration(data)
        _assert_absent(secret, redacted.decode(), way.name)
        assert redact_configuration(redacted) == redacted, "doing it twice changes nothing more"
        assert redacted.count(b"\n") in {data.count(b"\n"), 1}, "lines stay where they are"


@each_row("way", WAYS, ids=lambda way: way.name)
def test_findings_in_every_form(way: Way, drawn_secrets: list[str]) -> None:
    secret = drawn_secrets[0]
    findings = audit(parse_text(way.configuration(secret)), linux())
    _assert_absent(secret, encode(findings).decode(), way.name)
    _assert_absent(secret, render_findings(findings, color=False, width=None), way.name)
    for name in _WRITERS.values():
        module, _, function = name.partition(".")
        render = getattr(import_module(f"nginx_tune.report.{module}"), function)
        _assert_absent(secret, render(findings).decode(), f"{way.name} as {module}")


@each_row("way", WAYS, ids=lambda way: way.name)
def test_a_finding_that_quotes_it(way: Way, drawn_secrets: list[str]) -> None:
    """Whatever a rule would say of a directive: as a whole, or of what is left out of it."""
    for secret in drawn_secrets:
        tree = parse_text(way.configuration(secret))
        secrets = TreeSecrets(tree)
        for one in tree.main.walk():
            _assert_absent(secret, str(one), way.name)
            for literal in left_out(one):
                _assert_absent(secret, secrets.hide(f'"{literal}" is not right'), way.name)


@each_row("way", WAYS, ids=lambda way: way.name)
def test_messages_about_it(way: Way, drawn_secrets: list[str]) -> None:
    """nginx quotes arguments whole, in parts behind ``=`` and the directive with them."""
    for secret in drawn_secrets:
        tree = parse_text(way.configuration(secret), file="/etc/nginx/nginx.conf")
        for one in tree.main.walk():
            for arg in one.args:
                if secret not in arg:
                    continue
                place = f"in {one.file}:{one.line}"
                for quoted in (
                    f'invalid parameter "{arg}"',
                    f'invalid value "{arg}" in "{one.name}" directive',
                    f'"{one.words}" is duplicate',
                ):
                    shown = redact_message(f"[emerg] 1#1: {quoted} {place}", tree)
                    _assert_absent(secret, shown, way.name)
                    assert shown.endswith(place)


@pytest.mark.needs("nginx")
def test_what_nginx_says_of_each(drawn_secrets: list[str], tmp_path: Path) -> None:
    """Source: the messages of the nginx that is there, whose wording nobody here made up."""
    conf = tmp_path / "nginx.conf"
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    assert nginx is not None
    quoting = 0
    for way in WAYS:
        secret = drawn_secrets[len(way.name) % len(drawn_secrets)]
        text = way.configuration(secret)
        conf.write_text(f"pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n{text}")
        run = subprocess.run(
            [nginx, "-t", "-q", "-c", conf, "-p", tmp_path, "-e", tmp_path / "e.log"],
            capture_output=True, check=False, text=True, timeout=20,
        )  # fmt: skip
        quoting += secret in run.stderr
        tree = parse_text(conf.read_text(), file=str(conf))
        for line in run.stderr.splitlines():
            for shown in (redact_message(line, tree), redact_message(line)):
                _assert_absent(secret, shown, way.name)
                if f" in {conf}:" in line:
                    assert shown.rpartition(" in ")[2] == line.rpartition(" in ")[2]
    assert quoting, "nginx quotes none of them: the test shows nothing"


KEPT_MESSAGES = [
    'invalid value "maybe" in "gzip" directive, it must be "on" or "off"',
    'unknown directive "proxy_passs"',
    '"server" directive is not allowed here',
    'open() "/etc/nginx/sites-enabled/a-3.conf" failed (2: No such file or directory)',
    'host not found in upstream "app.example.com"',
    'invalid number of arguments in "proxy_buffers" directive',
    'unexpected "}"',
    "bind() to 0.0.0.0:80 failed (98: Address already in use)",
    'cannot load certificate "/etc/ssl/a.pem": BIO_new_file() failed',
    'invalid port in "127.0.0.1:99999" of the "listen" directive',
    '"proxy_buffers" directive invalid value',
    'unknown "request_urii" variable',
    'zero size shared memory zone "one"',
]  # fmt: skip


@each_row("message", KEPT_MESSAGES)
def test_messages_that_help_stay(message: str) -> None:
    lines = [
        "events {}",
        "http {",
        " gzip maybe;",
        " limit_req zone=one;",
        " a $request_urii;",
        "}",
    ]
    tree = parse_text("\n".join(lines), file="/srv/r3/nginx-1.conf")
    line = f"nginx: [emerg] {message} in /srv/r3/nginx-1.conf:4"
    assert redact_message(line, tree) == line


@each_row("rule", ALL, ids=lambda rule: rule.id)
def test_the_audit_says_the_same_of_a_capture(rule: Rule) -> None:
    """Of a rule's examples by itself, and by all the others in `make test-all`."""
    rules = ALL if tiers.ALL else (rule,)
    for example in (rule.bad, rule.good):
        redacted = redact_configuration(example.conf.encode()).decode()
        before, after = (
            sorted(
                (one.rule, one.line)
                for one in audit(parse_text(text), example.facts, rules).findings
            )
            for text in (example.conf, redacted)
        )
        assert after == before


KEPT = r"""
user www-data;
env TZ;
error_log /var/log/nginx/error.log warn;
thread_pool disk_a threads=16 max_queue=65536;
events { worker_connections 768; use epoll; }
http {
    log_format main '$remote_addr "$request" $status';
    proxy_cache_path /var/cache/nginx levels=1:2 keys_zone=main:10m max_size=10g inactive=1d;
    limit_req_zone $binary_remote_addr zone=one:10m rate=5r/s;
    map $http_upgrade $connection { default upgrade; '' close; }
    map $uri $pool { ~^/a/ disk_a; default disk_a; }
    map $sent_http_content_type $expires { default off; text/html epoch; ~image/ max; }
    geo $inside { default 0; 192.0.2.0/24 1; }
    split_clients $request_uri $root { 50% /srv/a; * /srv/b; }
    upstream app { zone app 64k; server 192.0.2.1:8080 weight=2 max_fails=1; keepalive 16; }
    server {
        listen 443 ssl http2 reuseport backlog=1024;
        server_name example.com *.example.com ~^www\d+\.example\.com$;
        ssl_certificate /etc/ssl/site.pem;
        ssl_certificate_key /etc/ssl/private/site.key;
        ssl_session_cache shared:SSL:10m;
        ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256:!aNULL;
        set $root_of /srv/www;
        add_header Strict-Transport-Security "max-age=31536000; includeSubDomains" always;
        add_header X-Cache $upstream_cache_status;
        error_page 404 =200 /404.html;
        if ($request_method !~ ^(GET|HEAD)$) { return 405; }
        location ~ \.(?:php|phtml)$ {
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param HTTPS on if_not_empty;
            fastcgi_pass unix:/run/php/php8.2-fpm.sock;
        }
        location / {
            proxy_pass https://app/base/;
            proxy_set_header Host $host;
            proxy_set_header Connection $connection;
            proxy_set_header X-Api-Key $http_x_api_key;
            proxy_cache_key $scheme$host$request_uri;
            try_files $uri $uri/ /index.php?$args;
            return 301 https://$host$request_uri;
        }
        location /d { aio threads=disk_a; root "/srv/a b"; access_log syslog:server=192.0.2.9:514; }
    }
}
"""


def test_what_the_product_looks_at_stays() -> None:
    assert redact_configuration(KEPT.encode()).decode() == KEPT


NAMED = """events {}
http {
  upstream api_token_x9k2mQ7pLzR4 { server 10.0.0.2; }
  server {
    location / { proxy_pass http://api_token_x9k2mQ7pLzR4/x?k=%s; }
    location /b { fastcgi_pass api_token_x9k2mQ7pLzR4; }
    location /c { proxy_pass http://%s; }
    location /d { proxy_pass http://api_token_x9k2mQ7pLzR4:%s@a.example/upstream; }
  }
}
"""


def test_an_upstream_keeps_its_name_where_it_is_asked_whatever_it_looks_like() -> None:
    other = "api_token_Y8h3nT6vWqS5"
    text = redact_configuration((NAMED % (other, other, other)).encode()).decode()
    assert "proxy_pass http://api_token_x9k2mQ7pLzR4/x?" in text
    assert "fastcgi_pass api_token_x9k2mQ7pLzR4;" in text
    assert "@a.example/upstream;" in text
    assert other not in text
    hide = TreeSecrets(parse_text(NAMED % (other, other, other))).hide
    said = "upstream api_token_x9k2mQ7pLzR4 has no zone"
    assert hide(said) == said
    assert other not in hide(f"{other} is no name of a host")


def test_a_table_in_a_file_of_its_own(tmp_path: Path, drawn_secrets: list[str]) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text("events {}\nhttp {\n map $http_x_key $ok {\n include keys.map;\n }\n}\n")
    (tmp_path / "keys.map").write_text("".join(f"{one} allowed;\n" for one in drawn_secrets))
    tree = read_tree(str(conf), LiveHost())
    redacted = b"".join(redact_tree(tree).values()).decode()
    findings = encode(audit(tree, linux())).decode()
    for secret in drawn_secrets:
        _assert_absent(secret, redacted, "the capture")
        _assert_absent(secret, findings, "the findings")
        for one in tree.main.walk():
            _assert_absent(secret, str(one), "a directive")


@each_row(
    ("line", "shown"),
    [
        ("worker_connection 1024", "worker_connection 1024"),
        ("worker_connection hunter2secret", "worker_connection redacted"),
        ("auth_jwt_kye 10241024", "auth_jwt_kye redacted"),
        ("set_wrod 10241024", "set_wrod redacted"),
    ],
)
def test_a_number_of_a_misspelt_directive_shows_if_the_right_one_shows_it(
    line: str, shown: str
) -> None:
    assert str(parse_text(f"{line};").main.directives[0]) == shown


def test_the_fingerprint_tells_nothing_of_a_secret() -> None:
    """A hash of a short secret is soon guessed."""
    prints = set()
    for secret in ("hunter2", "hunter3"):
        text = f"events {{}}\nhttp {{ server {{ set $word {secret}; set_wrod $x {secret}; }} }}"
        findings = audit(parse_text(text), linux()).findings
        assert findings
        prints.add(tuple(one.fingerprint for one in findings))
    assert len(prints) == 1


OWN_NAMES = """
events {}
http {
    upstream backend { server 10.0.0.1; }
    upstream my_own_pool { server 10.0.0.2; }
    map $uri $kind_of_page { default 1; }
    server {
        listen 80;
        server_name shop_of_mine;
        location /a { rewrite ^ /conf?upstream=backend&p=my_own_pool&k=%s last; }
        location /b { return 302 /c?v=kind_of_page&s=shop_of_mine&d=proxy_pass&t=%s; }
    }
}
"""


@each_row("name", ["backend", "my_own_pool", "kind_of_page", "shop_of_mine", "proxy_pass"])
def test_a_value_that_is_also_a_name_is_shown_where_it_is_the_name(name: str) -> None:
    tree = parse_text(OWN_NAMES % ("hunter2_x9", "bahnhofstrasse"))
    secrets = TreeSecrets(tree)
    assert secrets.hide(f'upstream "{name}" has none, and {name} neither') == (
        f'upstream "{name}" has none, and {name} neither'
    )
    for secret in ("hunter2_x9", "bahnhofstrasse"):
        assert secret not in secrets.hide(f'"{secret}" and {secret} of "{name}"')
    rewrite = next(one for one in tree.main.walk() if one.name == "rewrite")
    assert name not in str(rewrite), "at its place it is left out all the same"
