from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Access logs whose file name depends on the request."""
    reported: set[Directive] = set()
    if not any("$" in line.value for line in context.client_lines("access_log")):
        return
    for scope in context.scopes_with("access_log"):
        if scope.value("open_log_file_cache", "off") != "off":
            continue
        for line in scope.effective_all("access_log"):
            if "$" in line.value and not line.value.startswith("syslog:") and line not in reported:
                reported.add(line)
                yield Hit(
                    line,
                    "the log file is opened and closed for each line",
                    [written(line), default("open_log_file_cache", "off")],
                )


_CONF = """
events {}
http { %s server { access_log /var/log/nginx/$host.log; return 204; } }
"""

RULE = Rule(
    id="log-var-path",
    severity="warning",
    title="a log with variables in its name is opened for each line",
    why="Each request opens the file, writes a line and closes it, in the event loop. Such a log "
    "cannot have a buffer either: nginx refuses to start with one.",
    fix="Set open_log_file_cache max=1000 inactive=20s valid=1m min_uses=2; or use a fixed name "
    "with the variable in the log format, or one access_log per value with if=.",
    sources=("https://nginx.org/en/docs/http/ngx_http_log_module.html#open_log_file_cache",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="nginx writes such a log only while the request's root directory exists. After a "
    "rotation, a cached log is written under its old name until valid expires.",
    bad=Example(_CONF % ""),
    good=Example(_CONF % "open_log_file_cache max=1000 inactive=20s valid=1m min_uses=2;"),
    check=check,
)
