from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import BYTE_ORDER_MARK, Directive
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Files that begin with a UTF-8 byte order mark."""
    if context.facts.nginx.product not in {None, "nginx"}:
        return
    for source, block in context.tree.parsed:
        if source.mark:
            first = next(iter(block.directives), None)
            yield Hit(
                first or Directive("", (), (), source, (0, 0)),
                "the file begins with a UTF-8 byte order mark, which nginx reads as part of the "
                "first "
                "word",
                [Evidence(fact="first bytes", value="EF BB BF", provenance="declared")],
            )


RULE = Rule(
    id="cf-byte-order-mark",
    severity="error",
    title="a file begins with a byte order mark",
    why='nginx does not start: emerg "unknown directive", with a name that looks right. A comment '
    "on the first line becomes a directive too, because its # no longer begins a word.",
    fix="Save the file as UTF-8 without a byte order mark: sed -i '1s/^\\xEF\\xBB\\xBF//' FILE",
    sources=("nginx: src/core/ngx_conf_file.c, ngx_conf_read_token",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(f"{BYTE_ORDER_MARK}events {{}} http {{ server {{ listen 8080; }} }}"),
    good=Example("events {} http { server { listen 8080; } }"),
    check=check,
)
