"""``log-json-unescaped``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.logs import log_formats
from nginx_tune.conf.scopes import http_lines

_FROM_CLIENTS = re.compile(
    r"\$\{?(?:http_|cookie_|arg_|sent_http_|upstream_http_|request_uri|request_body|request\b"
    r"|uri|args|query_string|document_uri|remote_user)"
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Formats of JSON in which what clients send is not escaped as JSON wants it."""
    formats = log_formats(context.tree)
    for line in http_lines(context.tree, "log_format"):
        if not line.args:
            continue
        form = formats[line.value]
        text = form.text.strip()
        is_json = text.startswith("{") and text.endswith("}") and '":' in text.replace(" ", "")
        if is_json and form.escape == "default" and _FROM_CLIENTS.search(text):
            yield Hit(
                line,
                f'lines of "{line.value}" are no JSON when a client sends a quotation mark',
                [written(line), default("escape", "default")],
            )


_CONF = """
events {}
http {
    log_format json %s '{"uri":"$request_uri","agent":"$http_user_agent"}';
    access_log /var/log/nginx/access.json json;
    server { listen 80; root /srv/www; }
}
"""

RULE = Rule(
    id="log-json-unescaped",
    severity="warning",
    title="a log of JSON is not escaped as JSON",
    why=r"By default a quotation mark, a backslash and what is no ASCII are written as \x22 and "
    "the like, which JSON does not know. The reader of the log drops the line or stops: those of "
    "attacks and of odd clients are the ones that are lost.",
    fix="log_format NAME escape=json '{...}';",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_log_module.html#log_format",
        "nginx: src/http/modules/ngx_http_log_module.c, ngx_http_log_escape",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.11.8",
    about="Only formats that hold something a client or a server sends are spoken of.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "escape=json"),
    check=check,
)
