from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.storage import leaf_disks_of
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope

MOST_CHANGES = 10
"""Maximum internal redirects of a request. Source: NGX_HTTP_MAX_URI_CHANGES."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``try_files`` that passes a request from one named location to the next."""
    named = {
        (scope.server, scope.own.value): scope
        for scope in context.scopes
        if scope.kind == "location" and scope.own.value.startswith("@")
    }
    for scope in context.scopes_that_set("try_files") if named else ():
        line = scope.sets("try_files")
        if line is None or scope.own.value.startswith("@"):
            continue
        chain = _chain(scope, named)
        steps = len(chain) - 1
        if steps > MOST_CHANGES:
            yield Hit(
                line,
                f"a file that is not in the first {MOST_CHANGES + 1} of the {len(chain)} locations "
                "in this chain gets a 500",
                [
                    written(line),
                    *(written(directive) for directive in chain[-1].effective_all("root")),
                ],
            )
        elif steps > 0:
            yield from _disk_hit(context, line, chain)


def _chain(start: Scope, named: dict[tuple[Directive, str], Scope]) -> list[Scope]:
    """The locations that handle a request for a missing file, in order; a loop ends the chain."""
    chain = [start]
    while True:
        line = chain[-1].sets("try_files")
        last = line.args[-1] if line is not None and line.args else ""
        following = named.get((start.server, last))
        if following is None or following in chain:
            return chain
        chain.append(following)


def _disk_hit(context: Context, line: Directive, chain: list[Scope]) -> Iterator[Hit]:
    """Separate pools for disks that every request searches in the event loop."""
    disks_by_pool: dict[str, set[frozenset[str]]] = {}
    for scope in context.scopes:
        aio, root = scope.effective("aio"), scope.effective("root")
        disks = None if root is None else leaf_disks_of(root.value, context.facts)
        if aio is not None and disks:
            disks_by_pool.setdefault(aio.value, set()).add(disks)
    pools = {aio.value for scope in chain if (aio := scope.effective("aio")) is not None}
    separate = {
        disks
        for pool in pools
        for disks in disks_by_pool.get(pool, ())
        if len(disks_by_pool[pool]) == 1
    }
    if len(separate) < 2:  # noqa: PLR2004  # one pool separates nothing
        return
    yield Hit(
        line,
        f"each request searches up to {len(chain)} disks in turn, in the event loop, so a slow "
        "disk "
        "delays the others despite separate pools",
        [written(line)],
        severity="advice",
    )


def _conf(count: int) -> str:
    lines = ""
    for n in range(1, count + 1):
        name = "/" if n == 1 else f"@root_{n}"
        following = f"try_files $uri @root_{n + 1};" if n < count else ""
        lines += f"location {name} {{ root /mnt/disk{n}; {following} }}\n"
    return f"events {{ }}\nhttp {{ server {{\n{lines}}} }}\n"


RULE = Rule(
    id="io-try-files-chain",
    severity="error",
    title="a chain of try_files over many roots",
    why="nginx lets a request change its URI or named location ten times; the next change fails "
    'with 500 and "rewrite or internal redirection cycle" in the log. nginx -t does not detect '
    "it. Each step before it is a stat() in the event loop, on a disk that may be slow.",
    fix="Select the root without searching: a location for the URL prefix of each disk, or a map "
    "from $uri to the root.",
    sources=(
        "nginx: src/http/ngx_http_core_module.c, ngx_http_named_location",
        "nginx: src/http/ngx_http_request.h, NGX_HTTP_MAX_URI_CHANGES",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="With facts, a shorter chain is reported too if its locations have separate thread pools "
    "for separate disks: the pools separate reads, not lookups.",
    seen="With twelve roots, every file of the last one and every missing file returned 500. With "
    "three roots, the first slow and its names not in memory, none of 174 requests for the third "
    "was answered.",
    bad=Example(_conf(12)),
    good=Example(_conf(3)),
    check=check,
)
