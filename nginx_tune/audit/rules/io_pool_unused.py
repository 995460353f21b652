from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.workers import asked_pool, declared_pools
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Pools that no ``aio`` line can select."""
    pools = declared_pools(context.tree)
    if not pools:
        return
    used = {name for _, name in context.aio_lines if "$" not in name}
    for scope in context.scopes:
        name = asked_pool(scope.effective("aio"))
        if name is not None and "$" in name:
            values = context.variables.possible(name, scope)
            if not values.complete:
                return  # any pool may be selected
            used |= values.known.keys()
    # Third-party directives may take a pool by name.
    if any("thread_pool" in name for name in context.names - {"thread_pool"}):
        return
    for pool in pools.values():
        if pool.name not in used:
            yield Hit(
                pool.directive,
                f'no aio line uses thread pool "{pool.name}"',
                [
                    Evidence(
                        fact="pools in use",
                        value=", ".join(sorted(used)) or "none",
                        provenance="declared",
                    )
                ],
            )


_CONF = """
thread_pool media threads=16;
events { }
http { server { location / { root /srv/media; %s } } }
"""

RULE = Rule(
    id="io-pool-unused",
    severity="warning",
    title="an unused thread pool",
    why="Each worker starts the pool's threads anyway, and they stay idle. Usually the aio line "
    "was forgotten, and files are still read in the event loop.",
    fix="Add aio threads=NAME; where the files are served, or remove the thread_pool.",
    sources=(
        "nginx: src/core/ngx_thread_pool.c, ngx_thread_pool_init_worker",
        "https://nginx.org/en/docs/ngx_core_module.html#thread_pool",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.7.11",
    whole_tree=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "aio threads=media;"),
    check=check,
)
