from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.documents.decisions import Evidence

TESTED_SAFELY = (1, 13, 4)
"""The first version whose configuration test does not touch reuseport sockets."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``reuseport`` in versions that lose connections with it or ignore it."""
    lines = [line for listener in context.listeners if (line := listener.reuseport) is not None]
    if not lines or context.is_linux is False:
        return
    if context.version is None:
        yield MissingFacts(("nginx.nginx_version",))
        return
    version = Evidence(fact="nginx.nginx_version", value=context.facts.nginx.nginx_version)
    if context.version < TESTED_SAFELY:
        yield Hit(
            lines[0],
            "in this version nginx -t can reset connections of the running server",
            [written(lines[0]), version],
        )
    elif _comes_too_late(context):
        yield Hit(
            lines[0],
            "this version ignores reuseport if worker_processes comes after it",
            [written(lines[0]), version],
            fix="Move worker_processes to the top of the main file, or update nginx.",
        )


def _comes_too_late(context: Context) -> bool:
    """True if ``worker_processes`` comes after http."""
    names = [directive.name for directive in context.tree.main]
    return (
        "worker_processes" in names
        and "http" in names
        and names.index("worker_processes") > names.index("http")
    )


_CONF = "events { } http { server { listen 80 reuseport; return 204; } } worker_processes 4;"

RULE = Rule(
    id="ls-reuseport-old-bugs",
    severity="warning",
    title="a version with known reuseport bugs",
    why="Before nginx 1.13.4 a configuration test opened its own reuseport sockets, received "
    "connections of live clients and dropped them. Before 1.15.2 the option was ignored if "
    "worker_processes came after listen.",
    fix="Update nginx to 1.15.2 or later; until then test configurations on another host.",
    sources=("nginx change log, 1.13.4 and 1.15.2",),
    proof="source-only",
    since="1.9.1",
    until="1.15.2",
    about="Older than any version that the tests run on.",
    seen="Built from source: while 1.9.1 and 1.13.3 served, each nginx -t opened three more "
    "sockets, and 25 tests lost 49 of 3,249 and 25 of 1,669 connections; 1.13.4 lost none. Up to "
    "1.15.1 three workers shared one socket if worker_processes came last "
    "(benchmarks/versions.py).",
    bad=Example(_CONF, linux(version="1.14.2")),
    good=Example("worker_processes 4; " + _CONF.partition("worker_")[0], linux(version="1.14.2")),
    check=check,
)
