"""``io-open-blocking``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.coldness import coldness, offloads
from nginx_tune.audit.context import Context
from nginx_tune.audit.declared import default, written
from nginx_tune.audit.examples import linux
from nginx_tune.audit.rule import Example, Hit, Missing, Rule
from nginx_tune.audit.storage import covering
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence

MANY_FILES = 100_000
"""From here on their inodes and directories are no more sure to stay in memory."""


def check(context: Context) -> Iterator[Hit | Missing]:
    """Thread pools over many cold files whose open() stays in the event loop."""
    told: set[Directive] = set()
    missing: dict[str, None] = {}
    for served in context.served:
        aio = served.scope.effective("aio")
        if aio is None or aio in told or not offloads(served) or served.via == "cache":
            continue
        if served.scope.value("open_file_cache", "off") != "off":
            continue
        answer = coldness(served, context.facts, context.total)
        if isinstance(answer, Missing):
            missing.update(dict.fromkeys(answer.facts))
            continue
        dataset = covering(served.path, context.facts.datasets)
        if answer and dataset is not None and (dataset.files or 0) >= MANY_FILES:
            told.add(aio)
            yield Hit(
                aio,
                f"open() of {dataset.files} files under {served.path} is not offloaded",
                [
                    written(aio),
                    default("open_file_cache", "off"),
                    Evidence(fact=f"datasets[{dataset.path}].files", value=dataset.files),
                ],
            )
    if missing:
        yield Missing(tuple(missing))


_CONF = "events { } http { server { location / { root /srv/media; aio threads; %s } } }"
_HOST = linux(datasets={"/srv/media": (256, 0.1)})

RULE = Rule(
    id="io-open-blocking",
    severity="advice",
    title="opening files blocks, though reading them does not",
    why="Thread pools take reads and sendfile, never open() or stat(). With very many files "
    "their directories and inodes come from the disk too, and the worker waits for them.",
    fix="open_file_cache max=10000 inactive=60s; for the files that are asked for again (each "
    "takes a descriptor in every worker), and compare.",
    sources=(
        "github.com/nginx/nginx issue 417",
        "Cloudflare blog 2018: How we scaled nginx and saved the world 54 years every day",
    ),
    proof="source-only",
    since="1.7.11",
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "open_file_cache max=10000 inactive=60s;", _HOST),
    check=check,
)
