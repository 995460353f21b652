"""``cf-parameter-unknown``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import judges_names
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.values import (
    ArgumentFault,
    Words,
    is_open,
    judge,
    possible_versions,
    words_of,
)
from nginx_tune.documents.decisions import Evidence

_QUIC_FLAG = "--with-http_v3_module"
_OF_ANOTHER_RULE = {"aio": "sendfile"}
"""``io-aio-on-not-built``: no nginx on Linux takes it."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Words of directives that this nginx does not know."""
    if not judges_names(context):
        return
    is_own = all(any(row.is_own for row in rows_of(kind.name)) for kind in context.kinds)
    for kind, directives in context.kinds.items():
        if kind.name == "server" and not is_own:
            continue  # a balancer of another module may take parameters of its own
        if known := words_of(kind.name, kind.context):
            refusals = cache(partial(_refusals, context, known, kind.name))
            for directive in directives:
                yield from _judge(context, known, refusals, directive)


def _judge(
    context: Context,
    known: tuple[Words, ...],
    refusals: Callable[[str], list[ArgumentFault] | None],
    directive: Directive,
) -> Iterator[Hit | MissingFacts]:
    first = max(one.start for one in known)
    for argument in directive.args[first:]:
        if _OF_ANOTHER_RULE.get(directive.name) == argument:
            continue
        found = refusals(argument)
        if found is None:
            yield MissingFacts(("nginx.nginx_version",))
        elif found:
            yield _hit(context, directive, argument, found[0])
        elif argument == "quic" and context.flags is not None and _QUIC_FLAG not in context.flags:
            yield Hit(
                directive,
                f'"quic" needs a build {_QUIC_FLAG}',
                [Evidence(fact="nginx.flags", value=f"no {_QUIC_FLAG}")],
            )


def _refusals(
    context: Context, known: tuple[Words, ...], name: str, argument: str
) -> list[ArgumentFault] | None:
    """The reason why each module refuses the word, empty where one takes it; null where it depends.

    On the version that is not known: among those whose tables are here some take it.
    """
    if is_open(argument.partition("=")[0]):  # what follows may be a variable
        return []
    versions = possible_versions() if context.version is None else [context.version]
    by_version = []
    for version in versions:
        judged = [judge(name, words, argument, version) for words in known]
        by_version.append([one for one in judged if one is not None] if all(judged) else [])
    if context.version is not None or not any(by_version):
        return by_version[0]
    return by_version[0] if all(one and one[0].is_unknown for one in by_version) else None


def _hit(context: Context, directive: Directive, argument: str, found: ArgumentFault) -> Hit:
    if found.is_unknown:
        what = f'"{argument}" is no parameter of "{directive.name}"'
        return Hit(directive, what, [written(directive)])
    said = "came" if found.since else "went"
    release = ".".join(map(str, found.since or found.gone or ()))
    return Hit(
        directive,
        f'"{argument}" of "{directive.name}" {said} with nginx {release}',
        [Evidence(fact="nginx.nginx_version", value=context.facts.nginx.nginx_version)],
    )


_CONF = "events {} http { server { listen 443 quic reuseport; add_header Alt-Svc 'h3=\":443\"'; } }"

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
        "the source of each release from 1.4.0 to 1.31.4 (tools/read-releases)",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Words of listen, server of an upstream, cache paths, limit_req, access_log and their "
    "like, and of enumerations such as proxy_next_upstream, by the release that brought or dropped "
    "each. Of those that only the commercial nginx and forks have nothing is said.",
    bad=Example(_CONF, linux(version="1.22.1")),
    good=Example(_CONF, linux(version="1.30.6", flags=("--with-threads", _QUIC_FLAG))),
    check=check,
)
