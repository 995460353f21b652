"""``io-aio-on-not-built``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import written
from nginx_tune.audit.examples import linux
from nginx_tune.audit.rule import Example, Hit, Missing, Rule
from nginx_tune.conf.scopes import http_directives
from nginx_tune.documents.decisions import Evidence

SENDFILE_GONE = (1, 21, 5)
"""First version that does not know ``aio sendfile``."""

_FLAG = "--with-file-aio"


def check(context: Context) -> Iterator[Hit | Missing]:
    """Kinds of ``aio`` that this nginx does not have."""
    if "aio" not in context.names:
        return
    lines = [line for line in http_directives(context.tree) if line.name == "aio"]
    native = [line for line in lines if line.value == "on"]
    old = [line for line in lines if line.value == "sendfile"]
    if native and context.flags is None:
        yield Missing(("nginx.flags",))
    elif native and context.flags is not None and _FLAG not in context.flags:
        for line in native:
            yield Hit(
                line,
                f'"aio on" needs an nginx built {_FLAG}',
                [written(line), Evidence(fact="nginx.flags", value=f"no {_FLAG}")],
            )
    if old and context.version is None:
        yield Missing(("nginx.nginx_version",))
    elif old and context.version is not None and context.version >= SENDFILE_GONE:
        version = context.facts.nginx.nginx_version
        for line in old:
            yield Hit(
                line,
                f'nginx {version} does not know "aio sendfile"',
                [written(line), Evidence(fact="nginx.nginx_version", value=version)],
                fix="Remove it: sendfile on; alone does the same.",
            )


_CONF = "events { } http { server { location / { root /srv/www; aio on; directio 8m; } } }"

RULE = Rule(
    id="io-aio-on-not-built",
    severity="error",
    title="a kind of aio that this nginx does not have",
    why='nginx does not start: emerg "aio on" is unsupported on this platform. Debian builds '
    "without file AIO. aio sendfile (FreeBSD) is gone since nginx 1.21.5.",
    fix="aio threads; (with a build that has threads), or no aio.",
    sources=(
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_set_aio",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio",
    ),
    proof="proven",
    bad=Example(_CONF, linux()),
    good=Example(_CONF, linux(flags=("--with-threads", _FLAG))),
    check=check,
)
