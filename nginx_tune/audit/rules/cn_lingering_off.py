from collections.abc import Iterable, Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.edits import Edit, set_arguments


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``lingering_close off``."""
    for line in context.client_lines("lingering_close"):
        if line.value.lower() == "off":
            yield Hit(
                line,
                "a client that is still sending a body does not receive the response",
                [written(line)],
            )


def fixes(_context: Context, hit: Hit) -> Iterable[Edit]:
    """Set the default value."""
    yield set_arguments(hit.place, "on")


_CONF = "events {} http { server { lingering_close %s; location / { root /srv/www; } } }"

RULE = Rule(
    id="cn-lingering-off",
    severity="warning",
    title="connections are closed while the client is still sending",
    why="If nginx responds in the middle of a body (one that turns out too long, an upstream "
    "error) and closes at once, the kernel answers further data with a reset. The client's next "
    "write fails before it reads the response: it sees a broken connection instead of the error.",
    fix="Remove the line: the default is on.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_close",
        "RFC 9112, section 9.6",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    seen="nginx 1.18 to 1.30: a chunked body above client_max_body_size ends in a reset with off "
    "and in 413 with on. A body whose Content-Length is too large gets its 413 either way: nginx "
    "reads and discards it.",
    fixes=fixes,
    bad=Example(_CONF % "off"),
    good=Example(_CONF % "on"),
    check=check,
)
