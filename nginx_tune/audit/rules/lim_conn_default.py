from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import events_directive, main_place
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.decide.model.connections import DEFAULT_CONNECTIONS
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """A proxy with nginx's default number of connections."""
    if context.tree.is_part or events_directive(context, "worker_connections") is not None:
        return
    proxied = next(
        (
            scope
            for scope in context.scopes
            if any(directive.name.endswith("_pass") for directive in scope.own.block or ())
        ),
        None,
    )
    place = main_place(context, "events")
    if proxied is not None and place is not None:
        yield Hit(
            place,
            f"a worker has {DEFAULT_CONNECTIONS} connections, enough for about "
            f"{DEFAULT_CONNECTIONS // 2} clients of a proxy",
            [
                Evidence(
                    fact="worker_connections (default)",
                    value=DEFAULT_CONNECTIONS,
                    provenance="declared",
                ),
                Evidence(fact="a proxied scope", value=str(proxied), provenance="declared"),
            ],
        )


_CONF = "events { %s } http { server { location / { proxy_pass http://127.0.0.1:8080; } } }"

RULE = Rule(
    id="lim-conn-default",
    severity="advice",
    title="a proxy with the default worker_connections",
    why="A proxied request uses two of a worker's connections. When all are in use, nginx closes "
    "idle keepalive connections, and after that new ones right after accepting them.",
    fix="Set worker_connections 4096; in events, and worker_rlimit_nofile to twice as much.",
    sources=("https://nginx.org/en/docs/ngx_core_module.html#worker_connections",),
    proof="source-only",
    whole_tree=True,
    about="No command counts concurrent clients yet. An explicit number is never reported, not "
    "even 512.",
    profiles=frozenset({"strict"}),
    bad=Example(_CONF % ""),
    good=Example(_CONF % "worker_connections 4096;"),
    check=check,
)
