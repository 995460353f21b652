"""``cn-lingering-off``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import written
from nginx_tune.audit.rule import Example, Hit, Missing, Rule
from nginx_tune.conf.edits import Edit, set_arguments


def check(context: Context) -> Iterator[Hit | Missing]:
    """``lingering_close off``."""
    for line in context.client_lines("lingering_close"):
        if line.value.lower() == "off":
            yield Hit(
                line,
                "a client that is still sending when it is answered loses the answer",
                [written(line)],
            )


def fixes(_context: Context, hit: Hit) -> Iterable[Edit]:
    """The default."""
    yield set_arguments(hit.place, "on")


_CONF = "events {} http { server { lingering_close %s; location / { root /srv/www; } } }"

RULE = Rule(
    id="cn-lingering-off",
    severity="warning",
    title="connections are closed while the client is still sending",
    why="When nginx answers before it has read the whole body (413, 403, an error of the upstream) "
    "and closes at once, the kernel sends a reset for what still comes in. The client's side then "
    "throws the answer away: it sees a reset instead of the error.",
    fix="Remove the line: the default is on.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#lingering_close",
        "RFC 9112, section 9.6",
    ),
    proof="source-only",
    fixes=fixes,
    bad=Example(_CONF % "off"),
    good=Example(_CONF % "on"),
    check=check,
)
