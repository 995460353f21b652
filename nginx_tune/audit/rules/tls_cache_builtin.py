"""``tls-cache-builtin``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import Edit, set_arguments


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Session caches that belong to one worker each."""
    told: set[Directive] = set()
    for one in context.tls_listeners:
        line = one.default.effective("ssl_session_cache")
        if line is None or line in told:
            continue
        kinds = {word.partition(":")[0].lower() for word in line.args}
        if "builtin" in kinds:
            told.add(line)
            yield Hit(
                line,
                "each worker has a session cache of its own"
                + (" beside the shared one" if "shared" in kinds else ""),
                [written(line)],
                severity="info" if "shared" in kinds else None,
            )


def fixes(context: Context, hit: Hit) -> Iterable[Edit]:
    """The shared cache of http that is there, on this line or on another, or one of its own.

    A zone belongs to one module: the name of stream's or mail's cannot be taken.
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


_NAMES = tuple(f"SSL_{number}" for number in range(1, 100))


_CONF = "events {} http { server { listen 443 ssl; ssl_session_cache %s; return 204; } }"

RULE = Rule(
    id="tls-cache-builtin",
    severity="warning",
    title="TLS sessions are cached for each worker apart",
    why="A client that comes back resumes its session only where the same worker takes the "
    "connection. The built-in cache of OpenSSL can fragment memory, too.",
    fix="ssl_session_cache shared:SSL:10m; and no builtin.",
    sources=("https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_session_cache",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    fixes=fixes,
    about="Tickets, which are on by default, carry the session to any worker and hide this: it "
    "then concerns clients without tickets only. With a shared cache beside it sessions are "
    "found, and the finding is information: the shared cache alone is more efficient.",
    bad=Example(_CONF % "builtin:1000"),
    good=Example(_CONF % "shared:SSL:10m"),
    check=check,
)
