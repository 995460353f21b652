"""``px-sub-filter-compressed``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import sent_header


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Replacements in answers that the server may send compressed."""
    told: set[Directive] = set()
    for one in context.passes:
        lines = one.scope.effective_all("sub_filter")
        if one.module != "proxy" or not lines or lines[0] in told:
            continue
        if sent_header(one.scope, "proxy", "accept-encoding") is not None:
            continue
        told.add(lines[0])
        yield Hit(
            lines[0],
            "nothing is replaced in answers that the server compresses, as clients ask it to",
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
    title="sub_filter does not see compressed answers",
    why="The client's Accept-Encoding is passed on. When the server answers with gzip, sub_filter "
    "looks for its text in compressed bytes and finds nothing, without a word: it works with curl "
    "and not with browsers.",
    fix='proxy_set_header Accept-Encoding ""; beside the other headers of that level.',
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_sub_module.html",
        "nginx: src/http/modules/ngx_http_sub_filter_module.c, ngx_http_sub_header_filter",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    about="A server that never compresses makes it harmless; suppress it with that reason.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % 'proxy_set_header Accept-Encoding "";'),
    check=check,
)
