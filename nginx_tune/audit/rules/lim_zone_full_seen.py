import re
from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.processes import lines_seen, main_logs
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.facts import ErrorLog
from nginx_tune.documents.log_messages import MESSAGES_BY_ID, LoggedMessage

_DECLARING = re.compile(
    r"(?:proxy|fastcgi|uwsgi|scgi)_cache_path|limit_(?:req|conn)_zone|ssl_session_cache|"
    r"ssl_ocsp_cache|zone|sticky|\w+_zone"
)


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Zones of the configuration that the error logs report as full."""
    if not context.has_facts and not context.tree.is_part:
        logs = main_logs(context)
        if isinstance(logs, MissingFacts) and any(_zones(context)):
            yield logs
        return
    for log in context.facts.error_logs:
        for message in log.messages:
            row = MESSAGES_BY_ID.get(message.id)
            if row is None or row.cause != "shared-zone-full":
                continue
            place = _declaring_line(context, message)
            if place is not None:
                yield Hit(
                    place,
                    f'zone "{message.name}" was full: {message.lines:,} {row.tells}',
                    [lines_seen(log, f'"{message.name}" full', message.lines)],
                    fix=f"{row.change}.",
                )


def _zones(context: Context) -> Iterator[Directive]:
    """The lines that declare a zone."""
    names = frozenset(filter(_DECLARING.fullmatch, context.names))
    if names:
        yield from (
            directive
            for directive in context.tree.main.walk()
            if directive.name in names and directive.args
        )


def _declaring_line(context: Context, message: LoggedMessage) -> Directive | None:
    """The line that sets the size of the zone."""
    named = re.compile(rf"(?:keys_zone=|zone=|shared:){re.escape(message.name)}:.*")
    for line in _zones(context) if message.name else ():
        if any(named.fullmatch(arg) for arg in line.args):
            return line
        if line.name == "zone" and line.args[0] == message.name and len(line.args) > 1:
            return line
    return None


_CONF = (
    "error_log /var/log/nginx/error.log; events {} http { proxy_cache_path /c keys_zone=x:32k; }"
)


def _log(name: str) -> ErrorLog:
    message = LoggedMessage(id="cache-keys-zone", name=name, lines=1731)
    return ErrorLog(path="/var/log/nginx/error.log", messages=[message])


RULE = Rule(
    id="lim-zone-full-seen",
    severity="error",
    title="a shared memory zone has been full",
    why="If an entry finds no room, even after nginx has evicted what it may, the operation fails: "
    "500 for a cache key, 503 for limit_req and limit_conn, a full handshake for a TLS session.",
    fix="Increase the size where the zone is declared.",
    sources=(
        "nginx: src/http/ngx_http_file_cache.c, ngx_http_file_cache_exists",
        "nginx: src/core/ngx_slab.c, ngx_slab_alloc_pages",
    ),
    proof="source-only",
    about="Only the end of each error log is read. After a zone was enlarged, its old lines count "
    "until the log is rotated. Facts without error logs (those of inspect) give no finding; "
    "--facts live and --pid read them. nginx-tune explain shared-zone-full lists the messages.",
    bad=Example(_CONF, replace(linux(), error_logs=[_log("x")])),
    good=Example(_CONF, replace(linux(), error_logs=[_log("y")])),
    check=check,
)
