from collections.abc import Iterator
from typing import NamedTuple

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.values import parse_bytes, parse_count
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.units import nginx_size

_PROTOCOLS = ("proxy", "fastcgi", "uwsgi", "scgi")
_SIZED = ("buffer_size", "busy_buffers_size", "temp_file_write_size", "max_temp_file_size")
_PAGES = (4096, 16384, 65536)
_SMALL_PAGES = frozenset({"x86_64", "i686", "i386", None})
"""Machines with pages of 4 KiB. An unknown one is taken for such a machine."""


_FIX_HEADERS = "Set large_client_header_buffers to 4 {}."
_LARGE_HEADER_BYTES = 8192
_POOL_BYTES = (256, 512)
"""The defaults of ``connection_pool_size`` on 32-bit and on 64-bit machines."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Sizes of buffers that contradict each other."""
    pages = _PAGES[:1] if context.facts.kernel.machine in _SMALL_PAGES else _PAGES
    yield from _header_buffers(context)
    reported: set[Directive] = set()
    for protocol in _PROTOCOLS:
        names = [f"{protocol}_{name}" for name in ("buffers", *_SIZED)]
        for scope in context.scopes_with(*names):
            buffers = _Buffers(protocol, scope)
            faults = [_fault_of(buffers, page) for page in pages]
            if all(faults) and faults[0] is not None and faults[0].place not in reported:
                reported.add(faults[0].place)
                yield Hit(faults[0].place, faults[0].message, buffers.evidence(pages[0]))


def _header_buffers(context: Context) -> Iterator[Hit]:
    """Buffers of a request's header below the pool. Source: ngx_http_core_merge_srv_conf."""
    is_wide = context.facts.kernel.machine in {None, "x86_64", "aarch64"}
    reported: set[Directive] = set()
    for scope in context.scopes_with("large_client_header_buffers", "connection_pool_size"):
        if scope.kind != "server":
            continue
        buffers = scope.effective("large_client_header_buffers")
        pool = scope.effective("connection_pool_size")
        each = parse_bytes(buffers.args[-1]) if buffers and buffers.args else _LARGE_HEADER_BYTES
        least = _POOL_BYTES[is_wide] if pool is None else parse_bytes(pool.value)
        place = buffers or pool
        if place is None or each is None or least is None or place in reported or each >= least:
            continue
        reported.add(place)
        yield Hit(
            place,
            f"large_client_header_buffers of {nginx_size(each)} are below connection_pool_size, "
            f"{nginx_size(least)}",
            [
                written(buffers) if buffers else default("large_client_header_buffers", "4 8k"),
                written(pool) if pool else default("connection_pool_size", nginx_size(least)),
            ],
            fix=_FIX_HEADERS.format(nginx_size(max(least, _LARGE_HEADER_BYTES))),
        )


class _Buffers(NamedTuple):
    """The buffers for the responses of a protocol in a scope."""

    protocol: str
    scope: Scope

    def line(self, name: str) -> Directive | None:
        return self.scope.effective(f"{self.protocol}_{name}")

    def evidence(self, page: int) -> list[Evidence]:
        """The lines in effect, or the defaults."""
        buffers, size = self.line("buffers"), self.line("buffer_size")
        found = [
            written(buffers)
            if buffers
            else default(f"{self.protocol}_buffers", f"8 {nginx_size(page)}"),
            written(size) if size else default(f"{self.protocol}_buffer_size", nginx_size(page)),
        ]
        others = [self.line(name) for name in _SIZED[1:]]
        return found + [written(line) for line in others if line is not None]


class _Fault(NamedTuple):
    """The line to change, and a reason."""

    place: Directive
    message: str


def _fault_of(buffers: _Buffers, page: int) -> _Fault | None:
    """The first contradiction with memory pages of that size.

    Source: ngx_http_proxy_merge_loc_conf().
    """
    protocol, many = buffers.protocol, buffers.line("buffers")
    lines = {name: buffers.line(name) for name in _SIZED}
    sizes = {name: parse_bytes(line.value) for name, line in lines.items() if line is not None}
    count = 8 if many is None else parse_count(many.value)
    each = parse_bytes(many.args[-1]) if many and many.args else page
    first = sizes.get("buffer_size", page)
    given = [line for line in (*lines.values(), many) if line is not None]
    if count is None or each is None or first is None or None in sizes.values() or not given:
        return None
    largest, rest = max(first, each), (count - 1) * each
    busy, written_at_once = (sizes.get(name, 2 * largest) or 0 for name in _SIZED[1:3])
    most, temporary = lines["busy_buffers_size"], lines["temp_file_write_size"]
    whole, spilled = lines["max_temp_file_size"], sizes.get("max_temp_file_size")
    if count < 2:  # noqa: PLR2004  # ngx_http_upstream: one is read while one is sent
        return _Fault(given[-1], f"{protocol}_buffers must be two or more")
    if busy < largest and most is not None:
        return _Fault(most, f"{most.name} must hold one buffer, {nginx_size(largest)}")
    if busy > rest:
        place = most or lines["buffer_size"] or given[-1]
        doubled = "" if most else f", twice the {protocol}_buffer_size,"
        return _Fault(
            place,
            f"busy buffers of {nginx_size(busy)}{doubled} are more than {protocol}_buffers without "
            f"one, {nginx_size(rest)}",
        )
    if written_at_once < largest and temporary is not None:
        return _Fault(temporary, f"{temporary.name} must hold one buffer, {nginx_size(largest)}")
    if whole is not None and spilled and spilled < largest:
        return _Fault(whole, f"{whole.name} must be 0 or hold one buffer, {nginx_size(largest)}")
    return None


_CONF = """
events {}
http {
    server {
        listen 80;
        location / { proxy_pass http://127.0.0.1:81; proxy_buffer_size 128k;%s }
    }
}
"""

RULE = Rule(
    id="cf-buffers-refused",
    severity="error",
    title="sizes of buffers that nginx rejects together",
    why='nginx does not start: emerg "proxy_busy_buffers_size" must be less than the size of all '
    '"proxy_buffers" minus one buffer. Busy buffers are twice proxy_buffer_size unless set, so a '
    "larger proxy_buffer_size alone is too much for the eight buffers of 4k. The buffers of a "
    "request's header must hold connection_pool_size.",
    fix="Set proxy_buffers to four buffers of proxy_buffer_size or more (proxy_buffers 4 128k;).",
    sources=(
        "nginx: src/http/modules/ngx_http_proxy_module.c, ngx_http_proxy_merge_loc_conf",
        "nginx: src/http/ngx_http_core_module.c, ngx_http_core_merge_srv_conf",
        "nginx: src/http/modules/ngx_http_fastcgi_module.c, ngx_http_fastcgi_merge_loc_conf",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="The defaults depend on the size of a memory page, which is 4k on x86 and is taken to be "
    "4k if the machine is not known. On other machines a line is reported only if nginx rejects it "
    "with each usual size (4k, 16k and 64k).",
    bad=Example(_CONF % ""),
    good=Example(_CONF % " proxy_buffers 4 128k;"),
    check=check,
)
