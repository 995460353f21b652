from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.paths import Split, cache_line, splits, targets
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.variables import variables_of
from nginx_tune.documents.decisions import Evidence

_QUERY_VARIABLES = frozenset({"request_uri", "args", "query_string", "is_args", "request"})
_URI_VARIABLES = _QUERY_VARIABLES - {"request"} | {"uri", "document_uri"}
"""Variables determined by $request_uri."""

_DEFAULT_KEY = "$scheme$proxy_host$request_uri"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Keys that send the same file to several disks."""
    for split in splits(context):
        for target in targets(context, split):
            hit = (
                _cache_hit(split, target.served.scope)
                if target.served.via == "cache"
                else _file_hit(split)
            )
            if hit is not None:
                yield hit
                break


def _file_hit(split: Split) -> Hit | None:
    wrong = sorted(
        name
        for name in variables_of(split.key)
        if name in _QUERY_VARIABLES or name.startswith("arg_")
    )
    if not wrong:
        return None
    return Hit(
        split.place,
        f"${wrong[0]} differs between requests for the same file",
        [written(split.place)],
        fix="Split by $uri, which selects the file.",
    )


def _cache_hit(split: Split, scope: Scope) -> Hit | None:
    line = cache_line(scope)
    key = scope.effective(f"{line.name}_key") if line is not None else None
    text = _DEFAULT_KEY if key is None else " ".join(key.args)
    given = variables_of(text)
    if "request_uri" in given:
        given |= _URI_VARIABLES
    if given & {"uri", "document_uri"}:
        given |= {"uri", "document_uri"}
        if given & {"args", "query_string"}:  # except for different encodings of the same URI
            given |= {"request_uri", "is_args"}
    wrong = sorted(
        name
        for name in variables_of(split.key) - given
        if not (name.startswith("arg_") and given & {"args", "query_string"})
    )
    if not wrong:
        return None
    evidence: list[Evidence] = [written(split.place)]
    evidence.append(default("cache key", text) if key is None else written(key))
    return Hit(
        split.place,
        f"${wrong[0]} is not in the cache key, so one response is cached on several disks",
        evidence,
        fix="Split by the cache key itself.",
    )


_CONF = """
events { }
http {
    split_clients %s $disk { 50%% 1; * 2; }
    server { location / { root /mnt/disk$disk; } }
}
"""

RULE = Rule(
    id="io-split-key-args",
    severity="advice",
    title="split_clients sends the same file to several disks",
    why="The key differs between requests for the same file: each copy takes space on its disk and "
    "in the page cache, and a static file is found on only one of them.",
    fix="Split by what selects the file: $uri for a root, the cache key for a cache.",
    sources=("https://nginx.org/en/docs/http/ngx_http_split_clients_module.html",),
    proof="source-only",
    about="With proxy_cache_key $request_uri, $request_uri is the right key to split by.",
    bad=Example(_CONF % "$request_uri"),
    good=Example(_CONF % "$uri"),
    check=check,
)
