"""``ca-stampede``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that let every miss of one entry through."""
    told: set[Directive] = set()
    for one in context.caching:
        if one.place in told or _is_guarded(one.passed):
            continue
        told.add(one.place)
        yield Hit(
            one.place,
            "while an entry is fetched, each further request for it goes to the server as well",
            [written(one.place), _shown(one.passed, "lock"), _shown(one.passed, "use_stale")],
            fix=_fix(one.passed),
        )


def _shown(one: Pass, name: str) -> Evidence:
    line = one.effective(f"cache_{name}")
    return default(f"{one.module}_cache_{name}", "off") if line is None else written(line)


def _fix(one: Pass) -> str:
    """In the words of the module that caches, with what is set already."""
    stale = one.effective("cache_use_stale")
    words = [word for word in (stale.args if stale is not None else ()) if word != "off"]
    return _FIX.format(module=one.module, words=" ".join([*words, "updating"]))


def _is_guarded(one: Pass) -> bool:
    stale = one.effective("cache_use_stale")
    return one.value("cache_lock") == "on" or (stale is not None and "updating" in stale.args)


_FIX = (
    "{module}_cache_use_stale {words}; (an expired entry answers meanwhile) and, where all answers "
    "may be kept, {module}_cache_lock on; (one request fetches, the others wait up to 5 s)."
)

_CONF = """
events {}
http {
    proxy_cache_path /var/cache/nginx keys_zone=c:10m max_size=1g;
    server { location / { proxy_pass http://10.0.0.1; proxy_cache c; %s } }
}
"""

RULE = Rule(
    id="ca-stampede",
    severity="advice",
    title="parallel misses of a cache all go to the server",
    why="When a popular entry expires every request that comes until it is there again is passed "
    "on: the server gets the whole load at once.",
    fix=_FIX.format(module="proxy", words="updating"),
    sources=("https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_lock",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="How many requests come for one entry at once is a fact that no command here gathers; "
    "with few it does not matter. Waiters look every half second, so cache_lock adds up to "
    "that to the first answers. Where the answer may not be kept (private, Set-Cookie) they are "
    "let through one by one for five seconds.",
    seen="nginx 1.22.1, 40 requests at once for a page that its server makes in 20 ms: 33 ms "
    "without cache_lock, 0.5 s with it, and 5.0 s with it where the answer says private.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_cache_lock on;"),
    check=check,
)
