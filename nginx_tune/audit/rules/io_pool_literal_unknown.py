from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.workers import DEFAULT, declared_pools
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Constant pool names without a ``thread_pool`` line, which nginx needs when it starts."""
    declared = declared_pools(context.tree)
    for aio, name in context.aio_lines:
        if "$" not in name and name != DEFAULT and name not in declared:
            yield Hit(
                aio,
                f'"{aio}" names thread pool "{name}", which is not declared',
                [
                    Evidence(
                        fact="thread pools",
                        value=", ".join(sorted(declared)) or "none",
                        provenance="declared",
                    )
                ],
            )


RULE = Rule(
    id="io-pool-literal-unknown",
    severity="error",
    title="aio names a thread pool that is not declared",
    why='nginx does not start: emerg "unknown thread pool", exit status 1. Only the pool '
    '"default" exists without a declaration.',
    fix="Declare it in the main context with thread_pool NAME threads=N; or use the name of a "
    "declared pool.",
    sources=("nginx: src/core/ngx_thread_pool.c, ngx_thread_pool_init_conf",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.7.11",
    whole_tree=True,
    bad=Example(
        """
        thread_pool media threads=16;
        events {}
        http { server { location / { root /srv/www; aio threads=meida; } } }
        """
    ),
    good=Example(
        """
        thread_pool media threads=16;
        events {}
        http { server {
            location / { root /srv/www; aio threads=media; }
            location /other/ { root /srv/www; aio threads; }
        } }
        """
    ),
    check=check,
)
