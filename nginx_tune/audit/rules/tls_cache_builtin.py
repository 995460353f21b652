from collections.abc import Iterable, Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import Edit, set_arguments


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Session caches that belong to a single worker."""
    reported: set[Directive] = set()
    for listener in context.tls_listeners:
        line = listener.default.effective("ssl_session_cache")
        if line is None or line in reported:
            continue
        kinds = {word.partition(":")[0].lower() for word in line.args}
        if "builtin" in kinds:
            reported.add(line)
            yield Hit(
                line,
                "each worker has its own session cache"
                + (" in addition to the shared one" if "shared" in kinds else ""),
                [written(line)],
                severity="info" if "shared" in kinds else None,
                why=_WITH_SHARED if "shared" in kinds else "",
            )


def fixes(context: Context, hit: Hit) -> Iterable[Edit]:
    """Use the shared cache of http, on this line or another, or add one.

    A zone belongs to one module, so the names of stream's and mail's zones are not available.
    """
    lines = [hit.place, *context.client_lines(hit.place.name)]
    shared = (word for line in lines for word in line.args if word.lower().startswith("shared:"))
    taken = {
        word.lower().split(":")[1]
        for line in context.lines_by_name[hit.place.name]
        for word in line.args
        if word.lower().startswith("shared:")
    }
    name = next(one for one in ("SSL", "SSL_HTTP", *_NAMES) if one.lower() not in taken)
    yield set_arguments(hit.place, next(shared, f"shared:{name}:10m"))


_WITH_SHARED = (
    "Each worker keeps a second copy of its sessions in OpenSSL's built-in cache, and "
    "looks there first. The shared cache finds them for every worker anyway, and the built-in one "
    "can fragment memory."
)
_NAMES = tuple(f"SSL_{number}" for number in range(1, 100))


_CONF = "events {} http { server { listen 443 ssl; ssl_session_cache %s; return 204; } }"

RULE = Rule(
    id="tls-cache-builtin",
    severity="warning",
    title="each worker caches TLS sessions separately",
    why="A returning client resumes its session only if the same worker gets the connection. "
    "OpenSSL's built-in cache can also fragment memory.",
    fix="Use ssl_session_cache shared:SSL:10m; without builtin.",
    sources=("https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_session_cache",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    fixes=fixes,
    about="Tickets, which are on by default, carry the session to any worker and hide this: it "
    "then affects only clients without tickets. With an additional shared cache sessions are "
    "found, and the finding is info: the shared cache alone is more efficient.",
    bad=Example(_CONF % "builtin:1000"),
    good=Example(_CONF % "shared:SSL:10m"),
    check=check,
)
