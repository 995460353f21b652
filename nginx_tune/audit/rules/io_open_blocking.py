from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import covering, is_cold, sizes_missing
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import Served
from nginx_tune.documents.decisions import Evidence

MANY_FILES = 100_000
"""Number of files from which their inodes and directories may not stay in memory."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Very many cold files that are opened in the event loop."""
    reported: set[Directive] = set()
    unknown: list[Served] = []
    for served in context.served:
        if (
            served.via == "cache"
            or served.place in reported
            or served.scope.value("open_file_cache", "off") != "off"
        ):
            continue
        dataset = covering(served.path, context.facts.datasets)
        if dataset is not None and dataset.complete and (dataset.files or 0) < MANY_FILES:
            continue
        cold = is_cold(served, context.facts, context.total)
        if cold is None:
            unknown.append(served)
        elif cold and dataset is not None and (dataset.files or 0) >= MANY_FILES:
            reported.add(served.place)
            yield Hit(
                served.place,
                f"open() of one of {dataset.files} files under {served.path} can block a worker",
                [
                    default("open_file_cache", "off"),
                    Evidence(fact=f"datasets[{dataset.path}].files", value=dataset.files),
                ],
            )
    if unknown:
        yield sizes_missing(unknown, context.facts, context.total)


_CONF = """
worker_rlimit_nofile 32768;
events { worker_connections 4096; }
http { server { location / { root /srv/media; aio threads; %s } } }
"""
_HOST = linux(datasets={"/srv/media": (256, 0.1)})

RULE = Rule(
    id="io-open-blocking",
    severity="advice",
    title="opening files blocks the worker",
    why="Thread pools handle reads and sendfile, but never open() or stat(). With very many files, "
    "their directories and inodes come from the disk too, and the worker waits for them.",
    fix="Set open_file_cache max=10000 inactive=60s; for files that are requested repeatedly, "
    "raise worker_rlimit_nofile by as much, and compare. Until open_file_cache_valid expires (60 s "
    "by default; 3s is short) clients get the old version of a replaced or removed file, so do not "
    "use it where files change in use.",
    sources=(
        "github.com/nginx/nginx issue 417",
        "Cloudflare blog 2018: How we scaled nginx and saved the world 54 years every day",
    ),
    proof="source-only",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "open_file_cache max=10000 inactive=60s;", _HOST),
    check=check,
)
