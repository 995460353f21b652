from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.scopes import http_directives
from nginx_tune.documents.decisions import Evidence

SENDFILE_GONE = (1, 21, 5)
"""The first version without ``aio sendfile`` on any system."""

_FLAG = "--with-file-aio"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``aio`` values that this nginx does not support."""
    if "aio" not in context.names:
        return
    lines = [line for line in http_directives(context.tree) if line.name == "aio"]
    native = [line for line in lines if line.value == "on"]
    old = [line for line in lines if line.value == "sendfile"]
    if native and context.flags is None:
        yield MissingFacts(("nginx.flags",))
    elif native and context.flags is not None and _FLAG not in context.flags:
        for line in native:
            yield Hit(
                line,
                f'"aio on" needs an nginx built {_FLAG}',
                [written(line), Evidence(fact="nginx.flags", value=f"no {_FLAG}")],
            )
    if not old:
        return
    version = context.version
    if context.is_linux or (version is not None and version >= SENDFILE_GONE):
        for line in old:
            yield Hit(
                line,
                '"aio sendfile" exists only on FreeBSD before nginx 1.21.5',
                [written(line), *_platform_evidence(context)],
                fix="Remove it: sendfile on; alone does the same.",
            )
    elif context.is_linux is None or version is None:
        unknown = {"kernel.system": context.is_linux, "nginx.nginx_version": version}
        yield MissingFacts(tuple(name for name, value in unknown.items() if value is None))


def _platform_evidence(context: Context) -> list[Evidence]:
    facts = {
        "kernel.system": context.facts.kernel.system,
        "nginx.nginx_version": context.facts.nginx.nginx_version,
    }
    return [Evidence(fact=name, value=value) for name, value in facts.items() if value is not None]


_CONF = "events { } http { server { location / { root /srv/www; aio on; directio 8m; } } }"

RULE = Rule(
    id="io-aio-on-not-built",
    severity="error",
    title="this nginx does not support this aio value",
    why='nginx does not start: emerg "aio on" is unsupported on this platform. Debian builds nginx '
    "without file AIO. aio sendfile was for FreeBSD and was removed in nginx 1.21.5.",
    fix="Use aio threads; (with a build that has threads), or remove aio.",
    sources=(
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_set_aio",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    seen="aio sendfile is an invalid value on Linux in 1.18 already, although the change log lists "
    "its removal under 1.21.5.",
    bad=Example(_CONF, linux()),
    good=Example(_CONF, linux(flags=("--with-threads", _FLAG))),
    check=check,
)
