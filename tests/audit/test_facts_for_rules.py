"""The facts that rules ask for can be had: an audit on its own host misses none."""

import json
from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.audit.context import Context
from nginx_tune.audit.paths import written_paths
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Facts, Nginx

EVERYTHING = """
user root;
worker_processes auto;
worker_rlimit_nofile 4096;
error_log DIR/error.log warn;
events { worker_connections 1024; }
http {
    access_log DIR/access.log;
    sendfile on;
    gzip on;
    gzip_types text/css;
    client_max_body_size 100m;
    proxy_cache_path DIR/cache keys_zone=c:10m max_size=100g;
    limit_req_zone $binary_remote_addr zone=r:10m rate=10r/s;
    upstream app { server 10.0.0.1 max_conns=9; server 10.0.0.2; keepalive 9; }
    upstream other { server 10.0.0.3; }
    server {
        listen 8081;
        location / { root DIR/www; aio threads; }
        location /app/ { proxy_pass http://app; proxy_cache c; }
        location /other/ { proxy_pass http://other; }
        location /php/ { fastcgi_pass 127.0.0.1:9000; }
    }
}
"""


@pytest.mark.needs("nginx")
def test_a_live_audit_misses_no_facts(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "www").mkdir()
    (tmp_path / "error.log").touch()
    conf = tmp_path / "nginx.conf"
    conf.write_text(EVERYTHING.replace("DIR", str(tmp_path)))
    run = run_cli("audit", conf, "--facts", "live", "-f", "json", "--nginx", "/usr/sbin/nginx")
    assert not json.loads(run.stdout)["needs_facts"]


def test_where_nginx_writes() -> None:
    conf = """
    events {}
    http {
        access_log /logs/a.log;
        proxy_cache_path /cache keys_zone=c:1m;
        server {
            access_log off;
            location / { proxy_pass http://a; proxy_temp_path /t; access_log /logs/$host.log; }
            location /f { fastcgi_pass a; }
        }
    }
    """
    flags = ["--http-client-body-temp-path=/var/body", "--http-proxy-temp-path=/var/proxy"]
    nginx = Nginx(version="1.22.1", prefix="/usr/share/nginx", flags=flags)
    assert written_paths(Context(parse_text(conf), Facts(nginx=nginx))) == [
        "/logs",
        "/cache",
        "/t",
        "/var/body",
        "/usr/share/nginx/fastcgi_temp",
    ]
    assert written_paths(Context(parse_text(conf), None)) == ["/logs", "/cache", "/t"]
