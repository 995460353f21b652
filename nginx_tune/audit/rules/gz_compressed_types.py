from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.answer_bodies import COMPRESSED, FONTS_RENAMED, OLDER_FONTS


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``gzip_types`` with types that are compressed already."""
    for line in context.client_lines("gzip_types"):
        found = [arg for arg in line.args if arg.lower() in COMPRESSED - _unused_types(context)]
        if found:
            names = ", ".join(found[:3])
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""  # noqa: PLR2004
            verb = "is" if len(found) == 1 else "are"
            yield hit_at(
                line, f"{names}{more} {verb} already compressed; gzip costs CPU for no gain"
            )
        elif "*" in line.args:
            message = "* covers every type, including files that are already compressed"
            yield hit_at(line, message)._replace(severity="advice")


def _unused_types(context: Context) -> frozenset[str]:
    """Old media types of fonts that this configuration never sends, because no line names them."""
    if context.version is not None and context.version < FONTS_RENAMED:
        return frozenset()
    blocks = context.lines_by_name.get("types", [])
    configured = {line.name.lower() for block in blocks if block.block for line in block.block}
    configured |= {line.value.lower() for line in context.lines_by_name.get("default_type", [])}
    return OLDER_FONTS - configured


_CONF = "events {} http { gzip on; gzip_types text/css %s; server { listen 80; return 204; } }"

RULE = Rule(
    id="gz-compressed-types",
    severity="warning",
    title="gzip of files that are already compressed",
    why="Images, fonts, archives and videos do not get smaller. Each response costs CPU in the "
    "worker, bypasses sendfile, and loses its Content-Length and range support.",
    fix="Remove them from gzip_types: text, CSS, JavaScript, JSON, XML and SVG are worth "
    "compressing.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_gzip_module.html#gzip_types",
        "nginx: src/http/modules/ngx_http_gzip_filter_module.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="The old names of WOFF fonts (before nginx 1.15.1) are ignored unless the version or a "
    "types block shows that files are sent with them.",
    bad=Example(_CONF % "image/jpeg"),
    good=Example(_CONF % "application/json"),
    check=check,
)
