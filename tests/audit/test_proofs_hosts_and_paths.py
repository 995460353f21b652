"""Which hosts are looked up for each request, and which paths come to a location."""

import pytest
from nginx_versions import Nginx, every_version
from origin import run_origin
from proving import fires
from rows import each_row
from scratch_nginx import Serve
from test_proofs_mistakes import CONF, ask

from nginx_tune.audit.engine import audit
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("nginx", "root")


@every_version
@each_row(
    ("lines", "path", "status"),
    [
        ("location ~ ^/([0-9]+)/(.*) { proxy_pass http://127.0.0.1:$1/$2; }", "/PEER/x", 200),
        ("location / { proxy_pass http://127.0.0.1:$arg_p; }", "/?p=PEER", 200),
        ("location / { proxy_pass http://127.0.0.1:PEER$uri$proxy_port; }", "/", 200),
        ("location / { proxy_pass http://$server_addr:PEER; }", "/", 200),
        ("location / { proxy_pass http://$remote_addr:$arg_p; }", "/?p=PEER", 200),
        ("set $a $server_addr; location / { proxy_pass http://$a:PEER; }", "/", 200),
        ("location ~ ^/u(?<o>[0-9]+) { proxy_pass http://127.0.0.$o:PEER; }", "/u1", 200),
        ("location ~ ^/u(?<o>.*) { proxy_pass http://127.0.$o:PEER; }", "/u0.1", 200),
        (r"location ~ ^/(?<ip>\d+\.\d+\.\d+\.\d+) { proxy_pass http://$ip:PEER; }",
         "/127.0.0.1", 200),
        ("set $h 127.0.0.1; location / { proxy_pass http://$h:$arg_p$request_uri; }", "/?p=PEER",
         200),
        (("location / { set $b 127.0.0.9; if ($arg_z) { set $b 127.0.0.1; } "
         "proxy_pass http://$b:$arg_p; }"), "/?z=1&p=PEER", 200),
        ("location ~ ^/(?<s>a|c)$ { proxy_pass http://$s.b; }", "/a", 200),
        (("location / { set $h localhost; proxy_pass http://$h:PEER; } "
         "location /b { proxy_pass http://localhost:PEER; }"), "/", 200),
        ("location ~ ^/(?<s>a|c|x)$ { proxy_pass http://$s.b; }", "/x", 502),
        ("location / { set $h localhost; proxy_pass http://$h:PEER; }", "/", 502),
        ("location / { proxy_pass http://a.b:$arg_p; }", "/?p=PEER", 502),
        ("location / { proxy_pass http://$arg_h:PEER; }", "/?h=x.example", 502),
        ("location ~ ^/(?<h>[a-z.]+) { proxy_pass http://$h:PEER; }", "/x.example", 502),
        ("location ~ ^/a(/.*) { proxy_pass http://x.example$1; }", "/a/b", 502),
        ("location / { fastcgi_pass $arg_h:9000; }", "/?h=x.example", 502),
        ("location / { uwsgi_pass x.example:$arg_p; }", "/?p=9000", 502),
    ],
)  # fmt: skip
def test_up_proxy_pass_no_resolver_is_about_the_host(
    serve: Serve, nginx: Nginx, lines: str, path: str, status: int
) -> None:
    with run_origin() as origin:
        peer = f"{origin.port}"
        pools = "".join(f"upstream {n}.b {{ server 127.0.0.1:{peer}; }} " for n in "ac")
        server = serve(CONF % (pools, lines.replace("PEER", peer)))
        assert ask(server, path.replace("PEER", peer))[0] == status
    assert ("no resolver defined to resolve" in server.log()) is (status == 502)
    assert fires("up-proxy-pass-no-resolver", server.conf) is (status == 502)


@every_version
@each_row(
    ("location", "asked", "word"), [("/g?x=1", "/g%3Fx=1", "%3F"), ("/%20x", "/%2520x", "%25")]
)
def test_cn_location_unreachable_says_what_reaches_it(
    serve: Serve, nginx: Nginx, location: str, asked: str, word: str
) -> None:
    lines = f"location / {{ return 204; }} location {location} {{ return 205; }}"
    server = serve(CONF % ("", lines))
    assert ask(server, asked)[0] == 205
    found = audit(read_tree(str(server.conf), LiveHost()), None).findings
    (said,) = (one.message for one in found if one.rule == "cn-location-unreachable")
    assert said.startswith(f"only a path with {word} reaches")


@every_version
@each_row(
    ("name", "is_reached"),
    [
        ("a.example:PORT", False),
        ("http://a.example", False),
        ("a.example/", False),
        ("a.example", True),
        ("*.example a.example:PORT", True),
        ("~^a.example$ a.example:PORT", True),
    ],
)
def test_cn_location_unreachable_knows_names_with_a_port(
    serve: Serve, nginx: Nginx, name: str, is_reached: bool
) -> None:
    lines = f"return 204; }} server {{ listen 127.0.0.1:PORT; server_name {name}; return 205;"
    server = serve(CONF % ("", lines))
    asked = f"http://a.example:{server.port}/"
    assert (ask(server, asked)[0] == 205) is is_reached
    assert fires("cn-location-unreachable", server.conf) is not is_reached
