from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """FastCGI connection pools whose requests all ask to close the connection."""
    reported: set[Directive] = set()
    for name, users in context.passes_by_upstream.items():
        pool = context.upstreams[name].keepalive
        if pool is None or pool.value == "0":
            continue
        for passed in users:
            if passed.module != "fastcgi" or passed.value("keep_conn", "off") == "on":
                continue
            line = passed.effective("keep_conn")
            if passed.place not in reported:
                reported.add(passed.place)
                yield Hit(
                    passed.place,
                    f'upstream "{name}" keeps idle connections, but every request from here closes '
                    "its connection",
                    [written(pool), written(line) if line else default("fastcgi_keep_conn", "off")],
                )


_CONF = """
events {}
http {
    upstream php { server 10.0.0.1:9000; keepalive 8; }
    server { listen 80; location / { fastcgi_pass php; %s} }
}
"""

RULE = Rule(
    id="up-fastcgi-keep-conn",
    severity="warning",
    title="FastCGI connections of a pool are never reused",
    why="Without fastcgi_keep_conn each request tells the FastCGI server to close the connection "
    "after the response, and the upstream's pool stays empty.",
    fix="Set fastcgi_keep_conn on; where requests are passed on, and keep no more idle connections "
    "(times workers) than the FastCGI server has processes: with PHP-FPM each idle one occupies a "
    "process.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_fastcgi_module.html#fastcgi_keep_conn",
        "nginx: src/http/modules/ngx_http_fastcgi_module.c, ngx_http_fastcgi_create_request",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % ""),
    good=Example(_CONF % "fastcgi_keep_conn on; "),
    check=check,
)
