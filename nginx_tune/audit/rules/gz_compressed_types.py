"""``gz-compressed-types``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.answer_bodies import COMPRESSED, FONTS_RENAMED, OLDER_FONTS


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``gzip_types`` that name what is compressed already."""
    for line in context.client_lines("gzip_types"):
        found = [arg for arg in line.args if arg.lower() in COMPRESSED - _sent_by_nobody(context)]
        if found or "*" in line.args:
            what = f"{', '.join(found[:3])} cannot be made smaller, and is compressed"
            if not found:
                what = "* is every type: what cannot be made smaller is compressed too,"
            yield Hit(
                line,
                f"{what} for each request",
                [written(line)],
                severity=None if found else "advice",
            )


def _sent_by_nobody(context: Context) -> frozenset[str]:
    """Types that no file is sent as: older names of fonts, unless the configuration has them."""
    if context.version is not None and context.version < FONTS_RENAMED:
        return frozenset()
    blocks = context.lines_by_name.get("types", [])
    said = {line.name.lower() for one in blocks if one.block for line in one.block}
    said |= {line.value.lower() for line in context.lines_by_name.get("default_type", [])}
    return OLDER_FONTS - said


_CONF = "events {} http { gzip on; gzip_types text/css %s; server { listen 80; return 204; } }"

RULE = Rule(
    id="gz-compressed-types",
    severity="warning",
    title="gzip of what is compressed already",
    why="Images, fonts, archives and films do not get smaller. Each answer costs CPU in the "
    "worker, goes round sendfile, and loses its length and its ranges.",
    fix="Take them out of gzip_types: text, CSS, JavaScript, JSON, XML and SVG are worth it.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_types",
        "nginx: src/http/modules/ngx_http_gzip_filter_module.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Names that WOFF fonts had before nginx 1.15.1 are passed over where neither the version "
    "nor a types block says that something is sent as that.",
    bad=Example(_CONF % "image/jpeg"),
    good=Example(_CONF % "application/json"),
    check=check,
)
