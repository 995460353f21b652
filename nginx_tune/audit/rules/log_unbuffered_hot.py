from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.paths import log_directory
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import disk_classes_of, storage_of
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts_storage import NETWORK_FILESYSTEMS


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Unbuffered access logs on storage where every write may block."""
    by_directory: dict[str, list[Directive]] = {}
    for line in context.client_lines("access_log"):
        directory = None if _is_buffered(line) else log_directory(context, line)
        if directory is not None:
            by_directory.setdefault(directory, []).append(line)
    missing: list[str] = []
    for directory, lines in by_directory.items():
        is_remote = _is_remote(context, directory)
        if is_remote is None:
            missing.append(f"storage.paths[{directory}]")
            continue
        for line in lines if is_remote else ():
            yield Hit(
                line,
                f"each request writes a line to {directory} over the network",
                [written(line), Evidence(fact=f"storage of {directory}", value="network")],
            )
    if missing:
        yield MissingFacts(tuple(missing))


def _is_buffered(line: Directive) -> bool:
    return any(argument.startswith(("buffer=", "gzip")) for argument in line.args[1:])


def _is_remote(context: Context, directory: str) -> bool | None:
    entry = storage_of(directory, context.facts)
    if entry is None:
        return None
    return entry.filesystem in NETWORK_FILESYSTEMS or "network" in disk_classes_of(
        directory, context.facts
    )


_CONF = "events {} http { access_log /mnt/logs/access.log combined%s; server { return 204; } }"
_HOST = linux(disks={"/mnt/logs": ("nbd0", "network")})

RULE = Rule(
    id="log-unbuffered-hot",
    severity="advice",
    title="each request writes to a log over the network",
    why="Without a buffer each request ends with a write() in the event loop. On a local disk it "
    "goes to the page cache and takes a microsecond or two; on a network file system it may block, "
    "with all connections of the worker.",
    fix="Use access_log PATH FORMAT buffer=64k flush=1s; or log to a local disk or to syslog. A "
    "crash loses the lines of the last second.",
    sources=("https://nginx.org/en/docs/http/ngx_http_log_module.html#access_log",),
    proof="source-only",
    about="No command measures the request rate for the audit, so only network storage is "
    "reported. With a known rate nginx-tune recommend (decision access-log) judges whether a "
    "buffer pays off on a local disk.",
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % " buffer=64k flush=1s", _HOST),
    check=check,
)
