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
"""Filters that read bodies, and the directive with their types."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Body filters for every type in locations with large files."""
    if context.names.isdisjoint(_FILTERS.values()):
        return
    reported: set[Directive] = set()
    missing: dict[str, None] = {}
    for served in context.served:
        line = _catch_all_filter(served.scope)
        if line is None or line in reported or served.scope.value("sendfile") != "on":
            continue
        dataset = covering(served.path, context.facts.datasets)
        if dataset is None or (dataset.sizes is None and dataset.files != 0):
            missing[f"datasets[{served.root}].sizes"] = None
        elif dataset.sizes is not None and dataset.sizes.mean_bytes >= LARGE_FILE_BYTES:
            reported.add(line)
            yield Hit(
                line,
                f"{line.name.removesuffix('_types')} reads every file under {served.path} into "
                "memory, so sendfile is not used",
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


def _catch_all_filter(scope: Scope) -> Directive | None:
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
    title="a filter for every type reads large files into memory",
    why="gzip, ssi and sub_filter need the body in memory, so responses of their types are read "
    "into buffers and sendfile is not used. For media that costs CPU and changes nothing.",
    fix="List the types that benefit, or turn the filter off where large files are served.",
    sources=("nginx: src/core/ngx_output_chain.c; filter_need_in_memory in the filter modules",),
    proof="source-only",
    bad=Example(_CONF % "*", _HOST),
    good=Example(_CONF % "text/css application/javascript", _HOST),
    check=check,
)
