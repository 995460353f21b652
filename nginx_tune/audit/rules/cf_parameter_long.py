from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.parser import ParseFault, read_tokens
from nginx_tune.documents.decisions import Evidence

MOST_BYTES = 4096
"""The buffer that must hold a parameter and its delimiter (NGX_CONF_BUFFER). Depending on its
position, nginx may reject a parameter that is one or two bytes shorter."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Parameters that do not fit into nginx's buffer."""
    for lines in context.lines_by_name.values():
        for line in lines:
            if line.end - line.start < MOST_BYTES:
                continue
            length = _longest(line)
            if length >= MOST_BYTES:
                yield Hit(
                    line,
                    f"this parameter has {length} bytes; nginx accepts fewer than {MOST_BYTES}",
                    [Evidence(fact="longest parameter", value=length, unit="bytes")],
                )


def _longest(line: Directive) -> int:
    """Bytes of the longest parameter as written, without quotes; Lua code does not count."""
    text = line.source.text[line.start : line.end]
    try:
        words = [
            len(text[start:end].encode(errors="surrogateescape")) - 2 * bool(quote)
            for mark, _, quote, start, end in read_tokens(text)
            if not mark
        ]
    except ParseFault:
        return 0
    return max(words, default=0)


_CONF = "events {} http { server { listen 8080; add_header Content-Security-Policy '%s'; } }"

RULE = Rule(
    id="cf-parameter-long",
    severity="error",
    title="a parameter is longer than nginx accepts",
    why='nginx does not start: emerg "too long parameter". A parameter and its delimiter must fit '
    "into a buffer of 4096 bytes.",
    fix="Split it: define a variable for each part with set or map, and join them where they are "
    "used.",
    sources=("nginx: src/core/ngx_conf_file.c, ngx_conf_read_token (NGX_CONF_BUFFER)",),
    proof="proven",
    proven_on=("1.22.1",),
    bad=Example(_CONF % ("x" * MOST_BYTES)),
    good=Example(_CONF % ("x" * (MOST_BYTES - 2))),
    check=check,
)
