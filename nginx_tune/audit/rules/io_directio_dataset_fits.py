from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import page_cache_bytes
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``directio`` although the page cache can hold everything that nginx serves."""
    if "directio" not in context.names:
        return
    lines: dict[Directive, None] = {}
    for served in context.served:
        directio = served.scope.effective("directio")
        if served.via != "cache" and directio is not None and directio.value != "off":
            lines.setdefault(directio)
    if not lines:
        return
    limit, total = page_cache_bytes(context.facts), context.total
    if limit is not None and total.size.low > limit:
        return
    if limit is None or total.size.high is None:
        unknown = () if limit is not None else ("memory.page_cache_limit_bytes",)
        yield MissingFacts((*unknown, *total.missing))
    elif 0 < total.size.high <= limit:  # an empty directory may still be filled
        for line in lines:
            yield Hit(
                line,
                "directio bypasses the page cache, which has room for all these files",
                [
                    written(line),
                    Evidence(fact="served_bytes", value=total.size.high, unit="bytes"),
                    Evidence(fact="memory.page_cache_limit_bytes", value=limit, unit="bytes"),
                ],
            )


_CONF = "events { } http { server { location / { root /srv/www; aio threads; %s } } }"
_HOST = linux(datasets={"/srv/www": (3, 0.4)})

RULE = Rule(
    id="io-directio-dataset-fits",
    severity="advice",
    title="directio on files that fit in memory",
    why="O_DIRECT bypasses the page cache: every client's read goes to the disk again, although "
    "memory could hold all files.",
    fix="Remove directio here and compare: nginx-tune validate NEW --against OLD.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#directio",
        "open(2), O_DIRECT",
    ),
    proof="source-only",
    bad=Example(_CONF % "directio 4m;", _HOST),
    good=Example(_CONF % "", _HOST),
    check=check,
)
