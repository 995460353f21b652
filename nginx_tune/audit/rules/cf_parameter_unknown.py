from collections.abc import Callable, Iterator
from functools import cache, partial

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import judges_names
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.values import ArgumentFault, Words, is_open, judge, possible_versions, words_of
from nginx_tune.documents.decisions import Evidence

_QUIC_FLAG = "--with-http_v3_module"
_OF_ANOTHER_RULE = {"aio": "sendfile"}
"""Values left to the rule ``io-aio-on-not-built``, since no nginx on Linux accepts them."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Parameters that this nginx does not know."""
    if not judges_names(context):
        return
    is_plain = all(any(row.is_own for row in rows_of(kind.name)) for kind in context.kinds)
    for kind, directives in context.kinds.items():
        if kind.name == "server" and not is_plain:
            continue  # a third-party balancer may add parameters
        if words := words_of(kind.name, kind.context):
            refusals = cache(partial(_refusals, context, words, kind.name))
            for directive in directives:
                yield from _judge(context, words, refusals, directive)


def _judge(
    context: Context,
    known: tuple[Words, ...],
    refusals: Callable[[str], list[ArgumentFault] | None],
    directive: Directive,
) -> Iterator[Hit | MissingFacts]:
    first = max(words.start for words in known)
    for argument in directive.args[first:]:
        if _OF_ANOTHER_RULE.get(directive.name) == argument:
            continue
        faults = refusals(argument)
        if faults is None:
            yield MissingFacts(("nginx.nginx_version",))
        elif faults:
            yield _hit(context, directive, argument, faults[0])
        elif argument == "quic" and context.flags is not None and _QUIC_FLAG not in context.flags:
            yield Hit(
                directive,
                f'"quic" needs an nginx built {_QUIC_FLAG}',
                [Evidence(fact="nginx.flags", value=f"no {_QUIC_FLAG}")],
                why=_WHY_QUIC,
                fix=_FIX_QUIC,
            )


def _refusals(
    context: Context, known: tuple[Words, ...], name: str, argument: str
) -> list[ArgumentFault] | None:
    """One fault for each module that rejects the argument; empty if some module accepts it.

    None if the result depends on the version, and the version is not known.
    """
    if is_open(argument.partition("=")[0]):  # the rest may be a variable
        return []
    versions = possible_versions() if context.version is None else [context.version]
    may_be_plus = context.facts.nginx.product is None
    by_version = []
    for version in versions:
        judged = [judge(name, words, argument, version, may_be_plus=may_be_plus) for words in known]
        by_version.append([fault for fault in judged if fault is not None] if all(judged) else [])
    if context.version is not None or not any(by_version):
        return by_version[0]
    return by_version[0] if all(one and one[0].is_unknown for one in by_version) else None


def _hit(context: Context, directive: Directive, argument: str, fault: ArgumentFault) -> Hit:
    if fault.is_unknown:
        message = f'"{argument}" is not a parameter of "{directive.name}"'
        return Hit(directive, message, [written(directive)])
    verb = "was added in" if fault.since else "was removed in"
    release = ".".join(map(str, fault.since or fault.gone or ()))
    return Hit(
        directive,
        f'"{argument}" of "{directive.name}" {verb} nginx {release}',
        [Evidence(fact="nginx.nginx_version", value=context.facts.nginx.nginx_version)],
        fix=_FIX_QUIC if argument == "quic" else "",
    )


_WHY_QUIC = 'nginx does not start: emerg "the "quic" parameter requires ngx_http_v3_module".'
_FIX_QUIC = (
    "Remove the whole line (without the word it may repeat another listen), or install nginx "
    f"1.25.0 or later that is built {_QUIC_FLAG}."
)
_CONF = "events {} http { server { listen 443 quic reuseport; add_header Alt-Svc 'h3=\":443\"'; } }"

RULE = Rule(
    id="cf-parameter-unknown",
    severity="error",
    title="a parameter that this nginx does not know",
    why='nginx does not start: emerg "invalid parameter".',
    fix="Correct the parameter, remove it, or install a version of nginx that knows it.",
    sources=(
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_listen",
        "nginx: src/http/ngx_http_upstream.c, ngx_http_upstream_server",
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_set_slot",
        "the source of each release from 1.4.0 to 1.31.4 (tools/read-releases)",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Covers the parameters of listen, server in an upstream, cache paths, limit_req, "
    "access_log and the like, and enumerations such as proxy_next_upstream, by the release that "
    "added or removed each. Parameters that only nginx Plus and forks have are reported "
    "where the facts say that this is nginx itself.",
    bad=Example(_CONF, linux(version="1.22.1")),
    good=Example(_CONF, linux(version="1.30.6", flags=("--with-threads", _QUIC_FLAG))),
    check=check,
)
