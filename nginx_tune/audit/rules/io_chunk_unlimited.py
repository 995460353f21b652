import re
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import DEFAULT_MARK, Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import Edit, add_after, set_arguments
from nginx_tune.documents.decisions import Evidence

LIMITED_SINCE = (1, 21, 4)
"""The first version with a default of 2m instead of no limit."""

_ZERO = re.compile(r"0+[kKmM]?")


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``sendfile on`` without a limit per call."""
    unset: dict[Directive, Directive] = {}
    explicit: dict[Directive, Directive] = {}
    for served in context.served:
        sendfile = served.scope.effective("sendfile")
        if sendfile is None or sendfile.value.lower() != "on":
            continue
        chunk = served.scope.effective("sendfile_max_chunk")
        if chunk is None:
            unset.setdefault(sendfile, served.place)
        elif _ZERO.fullmatch(chunk.value):
            explicit.setdefault(chunk, served.place)
    for chunk in explicit:
        yield _hit(
            chunk, f'"{chunk}" does not limit how much one sendfile() call sends', chunk.value
        )
    if not unset:
        return
    if context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
    elif context.version < LIMITED_SINCE:
        version = context.facts.nginx.nginx_version
        for sendfile in unset:
            yield _hit(
                sendfile,
                f"sendfile is on, and nginx {version} does not limit sendfile_max_chunk by default",
                f"unset in nginx {version}: 0{DEFAULT_MARK}",
            )


def fixes(_context: Context, hit: Hit) -> Iterator[Edit]:
    """Set the default of newer versions."""
    if hit.place.name == "sendfile":
        yield add_after(hit.place, "sendfile_max_chunk 2m;")
    else:
        yield set_arguments(hit.place, "2m")


def _hit(place: Directive, message: str, value: str) -> Hit:
    return Hit(
        place, message, [Evidence(fact="sendfile_max_chunk", value=value, provenance="declared")]
    )


_CONF = "events {} http { sendfile on; server { location / { root /srv/www; } } }"

RULE = Rule(
    id="io-chunk-unlimited",
    severity="warning",
    title="one sendfile() call has no size limit",
    why="A client that reads as fast as data arrives keeps the worker (with aio threads, the "
    "pool's thread) inside one sendfile() until the whole file is sent, and everyone else waits. "
    "The default is 2m since nginx 1.21.4; before, there was no limit.",
    fix="Set sendfile_max_chunk 2m; in http, or the smaller value that 'nginx-tune recommend' has "
    "for slow disks.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#sendfile_max_chunk",
        "nginx change log, 1.21.4",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example(_CONF, linux(version="1.18.0")),
    good=Example(_CONF, linux(version="1.22.1")),
    check=check,
    fixes=fixes,
)
