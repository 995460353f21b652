from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.workers import asked_pool, pool_names
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``aio`` lines whose variable can have a value that names no declared pool."""
    if "aio" not in context.names:
        return
    pools = pool_names(context.tree)
    undeclared: dict[Directive, dict[str, Directive | None]] = {}
    for scope in scopes(context.tree):
        aio = scope.effective("aio")
        name = asked_pool(aio)
        if aio is None or name is None or "$" not in name:
            continue
        for value, origin in context.variables.possible(name, scope).known.items():
            if value not in pools:
                undeclared.setdefault(aio, {})[value] = origin
    for aio, names in undeclared.items():
        listed = ", ".join(f'"{name}"' for name in sorted(names))
        yield Hit(
            aio,
            f'"{aio}" can select {listed}, which no thread_pool declares',
            [
                Evidence(
                    fact=f"value at {_where(origin or aio)}", value=name, provenance="declared"
                )
                for name, origin in sorted(names.items())
            ]
            + [
                Evidence(fact="thread pools", value=", ".join(sorted(pools)), provenance="declared")
            ],
        )


def _where(directive: Directive) -> str:
    return f"{directive.file}:{directive.line}"


RULE = Rule(
    id="io-pool-var-unresolved",
    severity="error",
    title="a possible thread pool name is not declared",
    why="nginx looks up a pool name with variables for each request. If no pool has that name, the "
    "client gets status 200 with a truncated or empty body; nginx -t does not notice.",
    fix="Declare a thread_pool for each such name in the main context, or correct the map, "
    "split_clients or set that yields it. A name with variables declares nothing, not even "
    '"default".',
    sources=(
        "nginx: src/http/ngx_http_copy_filter_module.c, ngx_http_copy_thread_handler",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_set_aio",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.7.11",
    whole_tree=True,
    bad=Example(
        """
        thread_pool pool_a threads=16;
        thread_pool pool_b threads=16;
        events {}
        http {
            split_clients $request_uri $disk { 33% a; 33% b; * c; }
            server { location / { root /srv/www; aio threads=pool_$disk; } }
        }
        """
    ),
    good=Example(
        """
        thread_pool pool_a threads=16;
        thread_pool pool_b threads=16;
        events {}
        http {
            split_clients $request_uri $disk { 50% a; * b; }
            server { location / { root /srv/www; aio threads=pool_$disk; } }
        }
        """
    ),
    check=check,
)
