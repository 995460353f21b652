from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_bytes

_SEEKING = ("mp4", "flv")
"""Formats that players seek in."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``read_ahead`` where clients seek within files."""
    if "read_ahead" not in context.names or context.is_linux is False:
        return
    reported: dict[Directive, Directive] = {}
    for scope in context.scopes:
        line = scope.effective("read_ahead")
        seeking = next((one for name in _SEEKING if (one := scope.sets(name))), None)
        if line is not None and seeking is not None and parse_bytes(line.value) != 0:
            reported.setdefault(line, seeking)
    if reported and context.is_linux is None:
        yield MissingFacts(("kernel.system",))
        return
    for line, seeking in reported.items():
        yield Hit(
            line,
            "read_ahead declares sequential reads, but players seek within these files",
            [written(line), written(seeking)],
        )


_CONF = "events { } http { server { location / { root /srv/media; mp4; %s } } }"

RULE = Rule(
    id="io-read-ahead-random",
    severity="advice",
    title="read_ahead for files that clients seek in",
    why="On Linux the size is ignored: any value except 0 means POSIX_FADV_SEQUENTIAL, which "
    "doubles the kernel's read-ahead. Each seek of a player then reads more data that nobody "
    "needs.",
    fix="Remove read_ahead here, and compare: nginx-tune validate NEW --against OLD.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#read_ahead",
        "posix_fadvise(2)",
    ),
    proof="source-only",
    about="No command counts the requested ranges yet; clients are assumed to seek in locations "
    "with mp4 or flv.",
    bad=Example(_CONF % "read_ahead 512k;", linux(flags=("--with-http_mp4_module",))),
    good=Example(_CONF % "", linux(flags=("--with-http_mp4_module",))),
    check=check,
)
