"""``io-read-ahead-random``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parse_bytes

_SEEKING = ("mp4", "flv")
"""Players jump about in these."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``read_ahead`` where clients ask for places in the middle of files."""
    if "read_ahead" not in context.names or context.is_linux is False:
        return
    told: dict[Directive, Directive] = {}
    for scope in context.scopes:
        line = scope.effective("read_ahead")
        seeking = next((one for name in _SEEKING if (one := scope.sets(name))), None)
        if line is not None and seeking is not None and parse_bytes(line.value) != 0:
            told.setdefault(line, seeking)
    if told and context.is_linux is None:
        yield MissingFacts(("kernel.system",))
        return
    for line, seeking in told.items():
        yield Hit(
            line,
            "the kernel is told that these files are read from start to end",
            [written(line), written(seeking)],
        )


_CONF = "events { } http { server { location / { root /srv/media; mp4; %s } } }"

RULE = Rule(
    id="io-read-ahead-random",
    severity="advice",
    title="read_ahead for files that clients seek in",
    why="On Linux the size is ignored: any value but 0 is POSIX_FADV_SEQUENTIAL, which doubles the "
    "kernel's read-ahead. Each jump of a player then reads more that nobody asks for.",
    fix="Remove read_ahead here, and compare: nginx-tune validate NEW --against OLD.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#read_ahead",
        "posix_fadvise(2)",
    ),
    proof="source-only",
    about="Which ranges clients ask for is not counted by any command yet; locations for "
    "players (mp4, flv) are taken for such.",
    bad=Example(_CONF % "read_ahead 512k;", linux(flags=("--with-http_mp4_module",))),
    good=Example(_CONF % "", linux(flags=("--with-http_mp4_module",))),
    check=check,
)
