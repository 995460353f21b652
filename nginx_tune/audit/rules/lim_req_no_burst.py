from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.values import parameter


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Limits that reject every request that arrives slightly early."""
    zones = {
        (parameter(line.args, "zone") or "").partition(":")[0]: line
        for line in context.client_lines("limit_req_zone")
    }
    for line in context.client_lines("limit_req"):
        zone = zones.get(parameter(line.args, "zone") or "")
        if zone is None or parameter(line.args, "burst") not in {None, "0"}:
            continue
        rate = parameter(zone.args, "rate") or ""
        gap = _gap_seconds(rate)
        if gap is not None:
            yield Hit(
                line,
                f"{rate} without burst rejects the second of two requests within {gap:g} s",
                [written(zone), counted("burst", 0)],
            )


def _gap_seconds(rate: str) -> float | None:
    """Seconds that a rate requires between two requests; None for rates per minute.

    Rates per minute are for logins and the like, whose requests come one at a time.
    """
    number, slash, unit = rate.partition("r/")
    if not slash or not number.isdigit() or not int(number) or unit != "s":
        return None
    return round(1.0 / int(number), 3)


_CONF = """
events {}
http {
    limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;
    server { listen 80; location / { limit_req zone=one%s; return 204; } }
}
"""

RULE = Rule(
    id="lim-req-no-burst",
    severity="warning",
    title="limit_req without burst rejects a page's own requests",
    why="The rate is a gap, not a count: 10r/s means one request per 100 ms. A browser requests a "
    "page's parts at once, and all but the first get 503.",
    fix="Set limit_req zone=NAME burst=N nodelay; with N the number of requests that one page load "
    "makes at once (20 suits most).",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_limit_req_module.html#limit_req",
        "nginx: src/http/modules/ngx_http_limit_req_module.c, ngx_http_limit_req_lookup",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Rates per minute are not reported: they are for logins and the like, whose requests "
    "come one at a time.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % " burst=20 nodelay"),
    check=check,
)
