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
    """JSON log formats without JSON escaping."""
    formats = log_formats(context.tree)
    for line in http_lines(context.tree, "log_format"):
        if not line.args:
            continue
        log_format = formats[line.value]
        text = log_format.text.strip()
        is_json = text.startswith("{") and text.endswith("}") and '":' in text.replace(" ", "")
        if is_json and log_format.escape == "default" and _FROM_CLIENTS.search(text):
            yield Hit(
                line,
                f'lines of "{line.value}" are not valid JSON if a client sends a quotation mark',
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
    title="a JSON log without JSON escaping",
    why="By default nginx writes quotation marks, backslashes and non-ASCII bytes as \\x22 and the "
    "like, which is not valid JSON. The log reader drops the line or stops, and loses the lines of "
    "attacks and unusual clients in particular.",
    fix="Use log_format NAME escape=json '{...}';",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_log_module.html#log_format",
        "nginx: src/http/modules/ngx_http_log_module.c, ngx_http_log_escape",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    since="1.11.8",
    about="Only formats with values that a client or an upstream sends are reported.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "escape=json"),
    check=check,
)
