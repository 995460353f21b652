from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence

_FLAG = "--with-threads"

_CONF = "events {} http { server { location / { root /srv/www; aio threads; } } }"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Lines that need a build with threads."""
    lines = [line for line, _ in context.aio_lines] or context.tree.main.all("thread_pool")
    if not lines:
        return
    if context.flags is None:
        yield MissingFacts(("nginx.flags",))
        return
    if _FLAG in context.flags:
        return
    nginx = context.facts.nginx
    name = f"{nginx.product or 'nginx'} {nginx.version or ''}".strip()
    for line in lines:
        yield Hit(
            line,
            f'"{line}" needs an nginx built {_FLAG}; {name} is not',
            [Evidence(fact="nginx.flags", value=f"no {_FLAG}")],
        )


RULE = Rule(
    id="io-threads-not-built",
    severity="error",
    title="this nginx is built without thread pools",
    why='nginx does not start: emerg "aio threads" is unsupported on this platform, or unknown '
    'directive "thread_pool".',
    fix="Install a build with --with-threads (see nginx -V), or remove the aio line.",
    sources=(
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_set_aio",
        "nginx: auto/options, --with-threads",
    ),
    proof="source-only",
    since="1.7.11",
    bad=Example(_CONF, linux(flags=("--with-http_ssl_module",))),
    good=Example(_CONF, linux()),
    check=check,
)
