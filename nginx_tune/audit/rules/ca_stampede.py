from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.upstreams import Pass
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Caches that send every concurrent request for a missing entry to the upstream."""
    reported: set[Directive] = set()
    for caching in context.caching:
        if caching.place in reported or _is_guarded(caching.passed):
            continue
        reported.add(caching.place)
        yield Hit(
            caching.place,
            "while an entry is being fetched, every other request for it goes upstream too",
            [
                written(caching.place),
                _in_force(caching.passed, "lock"),
                _in_force(caching.passed, "use_stale"),
            ],
            fix=_fix(caching.passed),
        )


def _in_force(passed: Pass, name: str) -> Evidence:
    line = passed.effective(f"cache_{name}")
    return default(f"{passed.module}_cache_{name}", "off") if line is None else written(line)


def _fix(passed: Pass) -> str:
    """The fix for the module that caches, with the conditions set already."""
    stale = passed.effective("cache_use_stale")
    conditions = [word for word in (stale.args if stale is not None else ()) if word != "off"]
    return _FIX.format(module=passed.module, words=" ".join([*conditions, "updating"]))


def _is_guarded(passed: Pass) -> bool:
    stale = passed.effective("cache_use_stale")
    return passed.value("cache_lock") == "on" or (stale is not None and "updating" in stale.args)


_FIX = (
    "{module}_cache_use_stale {words}; (the stale entry is served meanwhile) and, if every "
    "response "
    "may be cached, {module}_cache_lock on; (one request fetches, the others wait up to 5 s)."
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
    title="concurrent cache misses all go upstream",
    why="When a popular entry expires, every request that arrives before it is fetched again is "
    "passed on: the upstream gets the whole load at once.",
    fix=_FIX.format(module="proxy", words="updating"),
    sources=("https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_lock",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="No command measures how many requests arrive for one entry at once; with few of them "
    "this does not matter. Waiting requests poll every half second, so cache_lock can add that "
    "much to the first responses. If the response may not be cached (private, Set-Cookie), they "
    "are let through one by one for five seconds.",
    seen="nginx 1.22.1, 40 concurrent requests for a page that takes its upstream 20 ms: 33 ms "
    "without cache_lock, 0.5 s with it, and 5.0 s with it if the response is private.",
    by_absence=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "proxy_cache_lock on;"),
    check=check,
)
