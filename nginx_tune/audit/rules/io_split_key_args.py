"""``io-split-key-args``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.paths import Split, cache_line, splits, targets
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.variables import variables_of
from nginx_tune.documents.decisions import Evidence

_OF_ARGUMENTS = frozenset({"request_uri", "args", "query_string", "is_args", "request"})
_OF_REQUEST_URI = _OF_ARGUMENTS - {"request"} | {"uri", "document_uri"}
"""Variables that follow from $request_uri."""

_DEFAULT_KEY = "$scheme$proxy_host$request_uri"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Keys that send one and the same file to several disks."""
    for split in splits(context):
        for target in targets(context, split):
            hit = (
                _of_cache(split, target.served.scope)
                if target.served.via == "cache"
                else _of_files(split)
            )
            if hit is not None:
                yield hit
                break


def _of_files(split: Split) -> Hit | None:
    wrong = sorted(
        name for name in variables_of(split.key) if name in _OF_ARGUMENTS or name.startswith("arg_")
    )
    if not wrong:
        return None
    return Hit(
        split.place,
        f"${wrong[0]} differs between requests for the same file",
        [written(split.place)],
        fix="Split by $uri: the file is chosen by it.",
    )


def _of_cache(split: Split, scope: Scope) -> Hit | None:
    line = cache_line(scope)
    key = scope.effective(f"{line.name}_key") if line is not None else None
    text = _DEFAULT_KEY if key is None else " ".join(key.args)
    given = variables_of(text)
    if "request_uri" in given:
        given |= _OF_REQUEST_URI
    if given & {"uri", "document_uri"}:
        given |= {"uri", "document_uri"}
        if given & {"args", "query_string"}:  # but for the ways to encode the same URI
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
        f"${wrong[0]} is no part of the cache key, so one response is kept on several disks",
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
    why="Files are spread by a key that differs between requests for the same file: each copy "
    "takes room on its disk and in the page cache, and a static file is found on one of them "
    "only.",
    fix="Split by what chooses the file: $uri for a root, the cache key for a cache.",
    sources=("https://nginx.org/en/docs/http/ngx_http_split_clients_module.html",),
    proof="source-only",
    about="With proxy_cache_key $request_uri, splitting by $request_uri is right.",
    bad=Example(_CONF % "$request_uri"),
    good=Example(_CONF % "$uri"),
    check=check,
)
