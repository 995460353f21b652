from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.values import parse_count

HIGH = 7
"""The lowest level that gains almost nothing for its CPU time; zlib's default is 6."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Levels that cost far more than they save."""
    for line in context.client_lines("gzip_comp_level"):
        if (parse_count(line.value) or 0) >= HIGH:
            yield Hit(
                line,
                f"level {line.value} costs several times the CPU of level 5 for hardly smaller "
                "responses",
                [written(line)],
            )


_CONF = "events {} http { gzip on; gzip_comp_level %s; server { listen 80; return 204; } }"

RULE = Rule(
    id="gz-level-high",
    severity="advice",
    title="a gzip level that is too high",
    why="The worker compresses in its event loop, and all its other connections wait meanwhile. "
    "Level 9 makes text one or two percent smaller than level 6 and takes much longer.",
    fix="Use gzip_comp_level 4 to 6, or gzip_static with files compressed once at the highest "
    "level.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_comp_level",
        "zlib: deflate.c, configuration_table",
    ),
    proof="proven",
    proven_on=("1.22",),
    seen="A megabyte of generated JSON, level 9 against level 4, measured by the worker's CPU time "
    "in this rule's test.",
    bad=Example(_CONF % "9"),
    good=Example(_CONF % "5"),
    check=check,
)
