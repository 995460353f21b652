from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.audit.storage import storage_of
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import Served
from nginx_tune.documents.facts_storage import is_shared_folder


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``tcp_nopush on`` that no scope with sendfile inherits."""
    if "tcp_nopush" not in context.names:
        return
    lines: dict[Directive, Directive | None] = {}
    working: set[Directive] = set()
    serving = {served.scope.chain for served in context.served if not _is_shared(context, served)}
    for scope in context.scopes:
        line = scope.effective("tcp_nopush")
        if line is not None and line.value.lower() == "on":
            if scope.chain in serving:
                lines.setdefault(line, scope.effective("sendfile"))
            if scope.value("sendfile") == "on":
                working.add(line)
    for line, sendfile in lines.items():
        if line not in working:
            yield Hit(
                line,
                "tcp_nopush has no effect without sendfile",
                [
                    written(line),
                    default("sendfile", "off") if sendfile is None else written(sendfile),
                ],
            )


def _is_shared(context: Context, served: Served) -> bool:
    """True if sendfile must be off there (io-sendfile-shared-folder)."""
    entry = storage_of(served.path, context.facts)
    return entry is not None and is_shared_folder(entry.filesystem)


_CONF = "events { } http { tcp_nopush on; %s server { location / { root /srv/www; } } }"

RULE = Rule(
    id="io-nopush-no-sendfile",
    severity="info",
    title="tcp_nopush without sendfile",
    why="nginx corks a socket only to send a header together with the start of a file that "
    "sendfile sends.",
    fix="Set sendfile on; or remove tcp_nopush.",
    sources=("https://nginx.org/en/docs/http/ngx_http_core_module.html#tcp_nopush",),
    proof="source-only",
    whole_tree=True,
    bad=Example(_CONF % ""),
    good=Example(_CONF % "sendfile on;"),
    check=check,
)
