from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import sent_header


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``sub_filter`` on responses that the upstream may compress."""
    reported: set[Directive] = set()
    for passed in context.passes:
        lines = passed.scope.effective_all("sub_filter")
        if passed.module != "proxy" or not lines or lines[0] in reported:
            continue
        if sent_header(passed.scope, "proxy", "accept-encoding") is not None:
            continue
        reported.add(lines[0])
        yield Hit(
            lines[0],
            "sub_filter replaces nothing in responses that the upstream compresses",
            [written(lines[0]), default("Accept-Encoding", "the client's")],
        )


_CONF = """
events {}
http { server { listen 80; location / {
    proxy_pass http://127.0.0.1:8080;
    sub_filter old.example new.example;
    %s
} } }
"""

RULE = Rule(
    id="px-sub-filter-compressed",
    severity="advice",
    title="sub_filter does not work on compressed responses",
    why="The client's Accept-Encoding is passed on. If the upstream responds with gzip, sub_filter "
    "searches the compressed bytes and finds nothing, without a message: it works with curl but "
    "not with browsers.",
    fix='Add proxy_set_header Accept-Encoding ""; next to the other headers of that block.',
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_sub_module.html",
        "nginx: src/http/modules/ngx_http_sub_filter_module.c, ngx_http_sub_header_filter",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    about="If the upstream never compresses, suppress the finding with that reason.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % 'proxy_set_header Accept-Encoding "";'),
    check=check,
)
