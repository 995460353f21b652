"""``io-sendfile-defeated``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import covering
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.documents.decisions import Evidence

LARGE_FILE_BYTES = 1 << 20

_FILTERS = {"gzip": "gzip_types", "ssi": "ssi_types", "sub_filter": "sub_filter_types"}
"""Filters that read bodies, with what they are for when it is every type."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Filters for every type of file over large files."""
    if context.names.isdisjoint(_FILTERS.values()):
        return
    told: set[Directive] = set()
    missing: dict[str, None] = {}
    for served in context.served:
        line = _filter_of_everything(served.scope)
        if line is None or line in told or served.scope.value("sendfile") != "on":
            continue
        dataset = covering(served.path, context.facts.datasets)
        if dataset is None or (dataset.sizes is None and dataset.files != 0):
            missing[f"datasets[{served.root}].sizes"] = None
        elif dataset.sizes is not None and dataset.sizes.mean_bytes >= LARGE_FILE_BYTES:
            told.add(line)
            yield Hit(
                line,
                f"{line.name.removesuffix('_types')} takes every file under {served.path} "
                "through memory",
                [
                    written(line),
                    Evidence(
                        fact=f"datasets[{dataset.path}].sizes.mean_bytes",
                        value=dataset.sizes.mean_bytes,
                        unit="bytes",
                    ),
                ],
            )
    if missing:
        yield MissingFacts(tuple(missing))


def _filter_of_everything(scope: Scope) -> Directive | None:
    for name, types in _FILTERS.items():
        on, line = scope.value(name, "off") != "off", scope.effective(types)
        if on and line is not None and "*" in line.args:
            return line
    return None


_CONF = """
events { }
http { sendfile on; server { location / { root /srv/media; gzip on; gzip_types %s; } } }
"""
_HOST = linux(datasets={"/srv/media": (256, 0.1)}, mean_file_bytes=4 << 20)

RULE = Rule(
    id="io-sendfile-defeated",
    severity="advice",
    title="a filter for every type takes large files through memory",
    why="gzip, ssi and sub_filter need a body in memory, so a response of a type that they are for "
    "is read into buffers and sendfile is not used: for media that costs CPU and changes nothing.",
    fix="Name the types that gain by it, or switch the filter off where large files are served.",
    sources=("nginx: src/core/ngx_output_chain.c; filter_need_in_memory in the filter modules",),
    proof="source-only",
    bad=Example(_CONF % "*", _HOST),
    good=Example(_CONF % "text/css application/javascript", _HOST),
    check=check,
)
