from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.documents.decisions import Evidence

_ALL_ADDRESSES = "/0"
"""The prefix length of a network of all addresses, however the address is spelled."""
_LIST = "x-forwarded-for"
_HEADER, _RECURSIVE = "real_ip_header", "real_ip_recursive"
_DEFAULT_HEADER = "X-Real-IP"


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Client addresses that nginx accepts from anyone."""
    found: dict[Directive, Hit] = {}
    for scope in context.scopes if "set_real_ip_from" in context.names else ():
        for line in scope.effective_all("set_real_ip_from"):
            known = found.get(line)
            if line.value.endswith(_ALL_ADDRESSES) and (
                known is None or known.severity is not None
            ):
                hit = _hit(scope, line)
                if known is None or hit.severity is None:
                    found[line] = hit
    yield from found.values()


def _hit(scope: Scope, line: Directive) -> Hit:
    """A warning if nginx uses the first address of the header, else advice."""
    header = scope.value(_HEADER, _DEFAULT_HEADER.lower())
    evidence = [
        written(line),
        _in_force(scope, _HEADER, _DEFAULT_HEADER),
        _in_force(scope, _RECURSIVE, "off"),
    ]
    if header == _LIST and scope.value(_RECURSIVE, "off") == "on":
        message = "nginx takes the first address in the header, which the client chose"
        return Hit(line, message, evidence)
    message = "a client that bypasses the proxy can choose its own address"
    return Hit(line, message, evidence, severity="advice")


def _in_force(scope: Scope, name: str, default_value: str) -> Evidence:
    found = scope.effective(name)
    return default(name, default_value) if found is None else written(found)


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
    title="any client may set its own address",
    why="nginx trusts the header of a request whose sender is in set_real_ip_from, and 0.0.0.0/0 "
    "includes everyone: a client then chooses the address that allow, deny, limit_req, limit_conn, "
    "ip_hash, geo and the log use. With real_ip_recursive on this holds even behind a proxy that "
    "appends to X-Forwarded-For, because nginx skips all trusted addresses, back to the first.",
    fix="Set set_real_ip_from to the networks of your proxies, one line each.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_realip_module.html",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_get_forwarded_addr",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Without real_ip_recursive, with a header that holds one address, and with "
    "proxy_protocol, nginx uses what the last proxy reported. The finding is then advice: it is "
    "safe as long as no client bypasses the proxy.",
    bad=Example(_CONF % "0.0.0.0/0"),
    good=Example(_CONF % "10.9.0.0/16"),
    check=check,
)
