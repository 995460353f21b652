from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import names_default


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Names that an earlier server on the same address already has."""
    reported: set[tuple[Directive, str]] = set()
    copies: set[tuple[str, str]] = set()
    for listener in context.listeners if not context.tree.is_template else ():
        if sum(map(names_default, listener.lines)) > 1:
            continue  # nginx refuses two default servers
        owners: dict[str, tuple[Directive, Directive]] = {}
        for server in dict.fromkeys(listener.servers):
            for name, place in _names(server):
                owner, line = owners.setdefault(name, (server, place))
                if owner is not server and (server, name) not in reported:
                    reported.add((server, name))
                    files = (owner.file, server.file)
                    if is_copy := owner.file != server.file and _is_same_text(owner, server):
                        if files in copies:
                            continue
                        copies.add(files)
                    shown = f'"{name}"' if name else "requests without a matching name"
                    yield Hit(
                        place,
                        f"{shown} on {listener.address} always goes to an earlier server, never to "
                        "this one",
                        [written(line)],
                        fix=_FIX_COPY.format(*files) if is_copy else "",
                    )


_FIX_COPY = (
    "{1} has the same text as {0}: it is a copy of that file or a second link to it. Remove one."
)


def _is_same_text(first: Directive, second: Directive) -> bool:
    return first.source.text == second.source.text


def _names(server: Directive) -> Iterator[tuple[str, Directive]]:
    """Exact and wildcard names, lowercase, with their line; an empty name if there are none."""
    lines = (server.block or Block([])).all("server_name")
    for line in lines:
        for name in dict.fromkeys(map(str.lower, line.args)):
            if not name.startswith("~") and "$" not in name:
                yield name, line
    if not lines:
        yield "", server


_CONF = """
events {}
http {
    server { listen 80; server_name a.example; root /srv/a; }
    server { listen 80; server_name %s; root /srv/b; }
}
"""

RULE = Rule(
    id="cf-server-name-twice",
    severity="warning",
    title="two servers on one address have the same name",
    why="nginx starts, warns about a conflicting server name and ignores the second server: its "
    "locations, certificates and limits are never used for that name. A file that is included "
    "twice has the same effect.",
    fix="Give the second server its own name or address, or merge the two.",
    sources=(
        "https://nginx.org/en/docs/http/server_names.html",
        "nginx: src/http/ngx_http.c, ngx_http_server_names",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF % "b.example a.example"),
    good=Example(_CONF % "b.example"),
    check=check,
)
