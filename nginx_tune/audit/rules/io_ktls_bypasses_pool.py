from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import is_cold, offloads, sizes_missing
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import tls_servers
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.served import Served
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Cold files that kTLS sends with SSL_sendfile() despite a thread pool."""
    if "ssl_conf_command" not in context.names or context.is_linux is False:
        return
    secure = tls_servers(context.listeners)
    found: dict[Directive, Served] = {}
    unknown: list[Served] = []
    for served in context.served:
        line = _ktls_line(served.scope)
        if (
            line is None
            or line in found
            or served.scope.server not in secure
            or served.scope.value("sendfile") != "on"
            or not offloads(served)
        ):
            continue
        cold = is_cold(served, context.facts, context.total)
        if cold is None:
            unknown.append(served)
        elif cold:
            found[line] = served
    has_ktls = context.facts.kernel.features.get("tls")
    if unknown and has_ktls is not False:
        yield sizes_missing(unknown, context.facts, context.total)
    if (found or unknown) and has_ktls is None:
        yield MissingFacts(("kernel.features[tls]",))
    for line, served in found.items() if has_ktls else ():
        yield Hit(
            line,
            f"with kTLS the worker itself sends files under {served.path}, not the thread pool",
            [written(line), Evidence(fact="kernel.features[tls]", value=True)],
        )


def _ktls_line(scope: Scope) -> Directive | None:
    for line in scope.effective_all("ssl_conf_command"):
        if line.value.lower() == "options" and "ktls" in " ".join(line.args[1:]).lower():
            return line
    return None


_CONF = """
events { }
http {
    sendfile on;
    aio threads;
    server {
        listen 443 ssl;
        %s
        location / { root /srv/media; }
    }
}
"""
_HOST = linux(datasets={"/srv/media": (256, 0.1)}, features={"tls": True})

RULE = Rule(
    id="io-ktls-bypasses-pool",
    severity="warning",
    title="kTLS bypasses the thread pool",
    why="With kernel TLS nginx sends files with SSL_sendfile(), which it calls in the worker "
    "whatever aio says: disk reads block the event loop again, which the thread pool was meant to "
    "prevent.",
    fix="Remove Options KTLS where files are cold and set output_buffers 2 256k; for the pool, "
    "then compare: nginx-tune validate NEW --against OLD.",
    sources=("nginx: src/event/ngx_event_openssl.c, ngx_ssl_send_chain, ngx_ssl_sendfile",),
    proof="source-only",
    since="1.21.4",
    about="Reported only for a kernel with TLS support.",
    bad=Example(_CONF % "ssl_conf_command Options KTLS;", _HOST),
    good=Example(_CONF % "output_buffers 2 256k;", _HOST),
    check=check,
)
