from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import http_lines
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence

NO_PUSH = (1, 25, 1)
"""The first version without server push."""
_PUSH = ("http2_push", "http2_push_preload", "http2_max_concurrent_pushes")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Directives that this version accepts and ignores."""
    lines = [line for name in _PUSH if name in context.names for line in http_lines(context, name)]
    if lines and context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
    elif context.version is not None and context.version >= NO_PUSH:
        version = context.facts.nginx.nginx_version
        for line in lines:
            yield Hit(
                line,
                f'"{line.name}" has had no effect since nginx 1.25.1',
                [written(line), Evidence(fact="nginx.nginx_version", value=version)],
            )


_CONF = "events {} http { http2_push_preload on; server { listen 80; return 204; } }"

RULE = Rule(
    id="cf-directive-obsolete",
    severity="info",
    title="a directive that this version ignores",
    why="nginx accepts the line with a warning and ignores it: nothing is pushed any more.",
    fix="Remove it. Browsers use a Link header with rel=preload, or 103 Early Hints, instead.",
    sources=(
        "nginx change log, 1.25.1",
        "nginx: src/http/v2/ngx_http_v2_module.c, ngx_http_v2_obsolete",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="ls-http2-param covers the HTTP/2 directives that went away with 1.19.7.",
    bad=Example(_CONF, linux(version="1.26.3")),
    good=Example(_CONF, linux(version="1.22.1")),
    check=check,
)
