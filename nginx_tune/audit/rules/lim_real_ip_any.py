"""``lim-real-ip-any``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.documents.decisions import Evidence

_ANYBODY = "/0"
"""Ends a network that is all addresses, however its own is spelled."""
_LIST = "x-forwarded-for"
_HEADER, _RECURSIVE = "real_ip_header", "real_ip_recursive"
_USUAL_HEADER = "X-Real-IP"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Addresses of clients that nginx takes from whoever says so."""
    found: dict[Directive, Hit] = {}
    for scope in context.scopes if "set_real_ip_from" in context.names else ():
        for line in scope.effective_all("set_real_ip_from"):
            known = found.get(line)
            if line.value.endswith(_ANYBODY) and (known is None or known.severity is not None):
                hit = _hit(scope, line)
                if known is None or hit.severity is None:
                    found[line] = hit
    yield from found.values()


def _hit(scope: Scope, line: Directive) -> Hit:
    """The fault: no proxy in front mends a list that is gone through to its beginning."""
    header = scope.value(_HEADER, _USUAL_HEADER.lower())
    evidence = [
        written(line),
        _held(scope, _HEADER, _USUAL_HEADER),
        _held(scope, _RECURSIVE, "off"),
    ]
    if header == _LIST and scope.value(_RECURSIVE, "off") == "on":
        message = "the address is the first of the header, which the client wrote itself"
        return Hit(line, message, evidence)
    message = "who comes to nginx directly, and not through a proxy, says which address it has"
    return Hit(line, message, evidence, severity="advice")


def _held(scope: Scope, name: str, usual: str) -> Evidence:
    found = scope.effective(name)
    return default(name, usual) if found is None else written(found)


_CONF = """
events {}
http {
    set_real_ip_from %s;
    real_ip_header X-Forwarded-For;
    real_ip_recursive on;
    server { listen 80; location /admin/ { allow 10.0.0.0/8; deny all; root /srv/www; } }
}
"""

RULE = Rule(
    id="lim-real-ip-any",
    severity="warning",
    title="everybody is believed about the client's address",
    why="An address from set_real_ip_from is believed when it says for whom it asks. 0.0.0.0/0 is "
    "everybody: a client then names the address that allow, deny, limit_req, limit_conn, ip_hash, "
    "geo and the log go by. With real_ip_recursive on this holds behind a proxy that adds to "
    "X-Forwarded-For too: nginx goes back past all believed addresses, which is to the first.",
    fix="set_real_ip_from for the networks of the proxies in front, one line for each.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_realip_module.html",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_get_forwarded_addr",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Without real_ip_recursive, with a header that holds one address, and with "
    "proxy_protocol nginx takes what the last proxy said, and it is an advice: it is right while "
    "nobody comes to nginx past it.",
    bad=Example(_CONF % "0.0.0.0/0"),
    good=Example(_CONF % "10.9.0.0/16"),
    check=check,
)
