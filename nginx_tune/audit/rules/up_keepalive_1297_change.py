from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, default
from nginx_tune.audit.processes import worker_count
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.upstreams import identity_that_differs

POOL = 32
"""Idle connections that 1.29.7 keeps by default, per location and worker."""

MANY = 1024
"""Number of idle connections that may be too many for servers: their usual descriptor limit."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Upstreams whose implicit pools add up to more connections than many servers can hold."""
    implicit = {
        name: users
        for name, users in context.passes_by_upstream.items()
        if context.upstreams[name].keepalive is None
        and not context.upstreams[name].is_scripted
        and len(users) > 1
        and identity_that_differs(users, context.variables, name) is None
    }
    if not implicit:
        return
    workers = worker_count(context)
    if context.version is None or isinstance(workers, MissingFacts):
        unknown = () if context.version is not None else ("nginx.nginx_version",)
        yield MissingFacts(
            (*unknown, *(workers.facts if isinstance(workers, MissingFacts) else ()))
        )
        return
    for name, users in implicit.items():
        idle = POOL * workers.value * len(users)
        if idle >= MANY:
            yield Hit(
                context.upstreams[name].directive,
                f'up to {idle} idle connections to upstream "{name}": {POOL} for each of '
                f"{len(users)} locations in each of {workers.value} workers",
                [
                    default("keepalive", f"{POOL} local"),
                    counted("locations", len(users)),
                    counted("workers", workers.value),
                ],
            )


_CONF = """
worker_processes 16;
events {}
http {
    upstream app { server 10.0.0.1:8080; %s}
    server {
        location / { proxy_pass http://app; }
        location /api/ { proxy_pass http://app; }
    }
}
"""

RULE = Rule(
    id="up-keepalive-1297-change",
    severity="warning",
    title="implicit keepalive pools add up",
    why="Since nginx 1.29.7 an upstream without a keepalive line keeps 32 idle connections per "
    "location and worker (keepalive 32 local). After an upgrade the servers hold connections that "
    "they did not have before.",
    fix="Set it explicitly: keepalive N; in the upstream, shared by all locations (16 to 64 suits "
    "most), or keepalive 0; for none.",
    sources=("nginx change log, 1.29.7", "https://github.com/nginx/nginx/issues/1436"),
    proof="proven",
    proven_on=("1.30",),
    since="1.29.7",
    about="Reported from 1024 idle connections. The audit does not know how many a server can "
    "hold. Where locations use different client identities, one pool for all would mix them: "
    "up-identity-shared.",
    by_absence=True,
    bad=Example(_CONF % "", linux(version="1.29.7")),
    good=Example(_CONF % "keepalive 32; ", linux(version="1.29.7")),
    check=check,
)
