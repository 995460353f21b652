from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.paths import CLIENT_BODY, temp_path
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import storage_of
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.served import MODULES
from nginx_tune.conf.upstreams import Pass
from nginx_tune.conf.values import parse_bytes
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import PathStorage, Storage
from nginx_tune.documents.units import bytes_text, nginx_size

_RESPONSE_BYTES = 1 << 30
"""The default of ``proxy_max_temp_file_size`` and its counterparts."""
_BODY_BYTES = 1 << 20
"""The default of ``client_max_body_size``."""


class _File(NamedTuple):
    """The largest temporary file of a location."""

    what: str
    directory: str | None
    """The directory of the files; None if the build is not known."""
    most_bytes: int
    line: Directive | None
    name: str


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Temporary files that may not fit on their disk."""
    reported: set[str] = set()
    missing: dict[str, None] = {}
    for passed in context.passes:
        for file in _files(context, passed):
            if file.directory is None:
                yield MissingFacts(("nginx.flags", "nginx.prefix"))
                return
            entry = storage_of(file.directory, context.facts)
            free = None if entry is None else entry.available_bytes
            if entry is None:
                missing[f"storage.paths[{file.directory}]"] = None
            elif free is not None and free < file.most_bytes and file.directory not in reported:
                reported.add(file.directory)
                yield _hit(passed, file, file.directory, free)
    if missing:
        yield MissingFacts(tuple(missing))


def _hit(passed: Pass, file: _File, directory: str, free: int) -> Hit:
    return Hit(
        file.line or passed.place,
        f"one {file.what} may take {nginx_size(file.most_bytes)} in {directory}, which has "
        f"{bytes_text(free)} free",
        [
            default(file.name, nginx_size(file.most_bytes))
            if file.line is None
            else written(file.line),
            Evidence(fact=f"free under {directory}", value=free, unit="bytes"),
        ],
    )


def _files(context: Context, passed: Pass) -> Iterator[_File]:
    """The temporary files that a location may write: request bodies and the rest of responses."""
    if passed.module not in MODULES:
        return
    for what, name, directory, setting, most_bytes in (
        ("request", "request_buffering", CLIENT_BODY, "client_max_body_size", _BODY_BYTES),
        (
            "response", "buffering", passed.module, f"{passed.module}_max_temp_file_size",
            _RESPONSE_BYTES,
        ),
    ):  # fmt: skip
        line = passed.scope.effective(setting)
        size = most_bytes if line is None else parse_bytes(line.value)
        if passed.value(name, "on") == "on" and size:
            path = temp_path(context, passed.scope, directory)
            yield _File(what, path, size, line, setting)


_CONF = """
events {}
http { proxy_temp_path /var/spool/nginx; client_body_temp_path /var/spool/nginx/body;
server { location / {
    proxy_pass http://10.0.0.1; %s
} } }
"""
_SMALL = PathStorage(
    path="/var/spool/nginx", filesystem="ext4", size_bytes=1 << 30, available_bytes=300 << 20
)
_HOST = replace(linux(), storage=Storage(paths=[_SMALL]))

RULE = Rule(
    id="px-temp-space",
    severity="advice",
    title="a temporary file may not fit on its disk",
    why="Request bodies, and the part of a response that a slow client has not read yet, are "
    "stored in temporary files. When the file system is full, the write fails (28: No space left "
    "on device): clients get 500, or a truncated response.",
    fix="Lower proxy_max_temp_file_size (with 0, data beyond the buffers waits in the upstream) or "
    "client_max_body_size, or move proxy_temp_path and client_body_temp_path to a disk with space.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_max_temp_file_size",
        "nginx: src/core/ngx_file.c, ngx_write_chain_to_temp_file",
    ),
    proof="source-only",
    about="Compares the space that is free now with one file of the maximum size; several clients "
    "need several. Not reported if the free space is not known (inspect reads it).",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "proxy_max_temp_file_size 64m;", _HOST),
    check=check,
)
