"""``cf-parameter-unknown``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import written
from nginx_tune.audit.directives import judges_names
from nginx_tune.audit.examples import linux
from nginx_tune.audit.rule import Example, Hit, Missing, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.parameters import COMMERCIAL, PARAMETERS, parameter_since
from nginx_tune.conf.templates import is_open
from nginx_tune.documents.decisions import Evidence

_QUIC_FLAG = "--with-http_v3_module"


def check(context: Context) -> Iterator[Hit | Missing]:
    """Parameters of listen, server and cache paths that this nginx does not know."""
    if not judges_names(context):
        return
    is_own = all(any(row.is_own for row in rows_of(kind.name)) for kind in context.kinds)
    for kind, directives in context.kinds.items():
        if kind.name == "server" and not is_own:
            continue  # a balancer of another module may take parameters of its own
        if (kind.name, kind.context) in PARAMETERS:
            for directive in directives:
                for argument in directive.args[1:]:
                    if not is_open(argument):
                        yield from _judge(context, kind.context, directive, argument)


def _judge(
    context: Context, where: str, directive: Directive, argument: str
) -> Iterator[Hit | Missing]:
    since = parameter_since(directive.name, where, argument)
    if since is None:
        yield Hit(
            directive,
            f'"{argument}" is no parameter of "{directive.name}"',
            [written(directive)],
        )
    elif since == COMMERCIAL:
        return
    elif context.version is None and any(since):
        yield Missing(("nginx.nginx_version",))
    elif context.version is not None and context.version < since:
        yield Hit(
            directive,
            f'"{argument}" of "{directive.name}" came with nginx {_text(since)}',
            [Evidence(fact="nginx.nginx_version", value=context.facts.nginx.nginx_version)],
        )
    elif argument == "quic" and context.flags is not None and _QUIC_FLAG not in context.flags:
        yield Hit(
            directive,
            f'"quic" needs a build {_QUIC_FLAG}',
            [Evidence(fact="nginx.flags", value=f"no {_QUIC_FLAG}")],
        )


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


_CONF = "events {} http { server { listen 443 quic reuseport; } }"

RULE = Rule(
    id="cf-parameter-unknown",
    severity="error",
    title="a parameter that this nginx does not know",
    why='nginx does not start: emerg "invalid parameter".',
    fix="Correct the name, take it out, or install a version that has it.",
    sources=(
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_listen",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_server",
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_set_slot",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Of parameters that only the commercial nginx and forks have nothing is said.",
    bad=Example(_CONF, linux(version="1.22.1")),
    good=Example(_CONF, linux(version="1.26.3", flags=("--with-threads", _QUIC_FLAG))),
    check=check,
)
