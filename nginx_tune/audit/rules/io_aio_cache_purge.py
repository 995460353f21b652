from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import MODULES
from nginx_tune.conf.workers import asked_pool


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """The third-party cache purge where threads read files."""
    names = [f"{one}_cache_purge" for one in MODULES if f"{one}_cache_purge" in context.names]
    reported: set[Directive] = set()
    for scope in context.scopes if names else ():
        aio = scope.effective("aio")
        for line in filter(None, map(scope.effective, names)):
            if aio is None or asked_pool(aio) is None or line in reported or _is_nginx_plus(line):
                continue
            reported.add(line)
            yield Hit(
                line,
                "a purge here fails with 500: the module does not wait for a thread's read",
                [written(line), written(aio)],
            )


def _is_nginx_plus(line: Directive) -> bool:
    """True for the directive of nginx Plus, whose arguments are conditions."""
    return all(arg.startswith("$") for arg in line.args) or line.value == "off"


_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g;
    aio threads;
    server {
        location / { proxy_pass http://10.0.0.1; proxy_cache c; proxy_cache_key $uri; }
        location ~ /purge(/.*) { %s }
    }
}
"""

RULE = Rule(
    id="io-aio-cache-purge",
    severity="error",
    title="cache_purge does not work with aio threads",
    why="ngx_cache_purge opens the cached file and takes a thread's unfinished read for a failure: "
    "the purge fails with 500 and the page stays in the cache.",
    fix="Set aio off; in the location that purges.",
    sources=(
        "https://github.com/FRiCKLE/ngx_cache_purge/issues/38",
        "https://github.com/nginx-modules/ngx_cache_purge/issues/30",
    ),
    proof="source-only",
    about="nginx-tune plan adds no threads where this would be found afterwards. The directive of "
    "the same name in nginx Plus takes only conditions and is not affected.",
    bad=Example(_CONF % "proxy_cache_purge c $1;"),
    good=Example(_CONF % "return 403;"),
    check=check,
)
