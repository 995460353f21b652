import posixpath
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import HTTP_CONTEXTS, http_lines, judges_names
from nginx_tune.audit.hit import Hit, MissingFacts, counted, default, hit_at, written
from nginx_tune.audit.processes import events_directive
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_variables import is_fixed_variable, made_variables, makes_variable
from nginx_tune.conf.listeners import Wildcards
from nginx_tune.conf.patterns import pattern_fault, patterns_of
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.table_lines import map_keys, table_faults
from nginx_tune.conf.upstreams import is_tls_url
from nginx_tune.conf.values import is_open, parameter, parse_bytes, parse_count, parse_seconds

_KEEPALIVE_OFF = (1, 29, 7)
"""The first release in which ``keepalive 0`` turns kept connections off."""
_CONNECTIONS = 512
"""nginx's default of ``worker_connections``."""
_NOT_OF_LINUX = frozenset({"kqueue", "eventport", "/dev/poll", "iocp", "win32"})
_BUCKET = "map_hash_bucket_size"
_CACHE_LINE_BYTES = 64
_BUCKET_OVERHEAD_BYTES = 18
"""Bytes of a bucket beside its key. Source: NGX_HASH_ELT_SIZE, ngx_hash_init."""
_GZIP_BUFFER = "64k"
"""The buffer of a log with ``gzip`` and no ``buffer``. Source: ngx_http_log_set_log."""
_FIX_BUCKET = "Set map_hash_bucket_size {} before the first map."


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Each kind of line or block that nginx rejects."""
    if context.tree.is_template or not judges_names(context):
        return
    for kind in _KINDS:
        yield from kind(context)


def _blocks(context: Context, name: str) -> Iterator[tuple[Directive, list[Directive]]]:
    """Each block of that name with its lines."""
    for block in context.lines_by_name.get(name, ()):
        if block.block is not None and block.args:
            yield block, list(block.block)


def _patterns(context: Context) -> Iterator[Hit]:
    """Regular expressions that no PCRE compiles. Source: ngx_regex_compile."""
    found = [
        (line, pattern)
        for kind, lines in context.kinds.items()
        if kind.context in HTTP_CONTEXTS
        for line in lines
        for pattern in patterns_of(kind.name, line.args)
    ]
    found += [
        (line, line.name[1:].removeprefix("*"))
        for _, lines in _blocks(context, "map")
        for line in lines
        if line.name.startswith("~")
    ]
    for line, pattern in found:
        if fault := pattern_fault(pattern):
            yield hit_at(line, f"the regular expression has {fault}")


def _tables(context: Context) -> Iterator[Hit]:
    """Lines of map, geo and split_clients."""
    for name in ("map", "geo", "split_clients"):
        for block, _ in _blocks(context, name):
            for line, message, earlier in table_faults(block):
                yield (
                    hit_at(line, message)
                    if earlier is None
                    else Hit(line, message, [written(earlier)])
                )


def _own_variables(context: Context) -> Iterator[Hit]:
    """Lines that set a variable of nginx. Source: ngx_http_add_variable."""
    for kind, lines in context.kinds.items():
        if kind.context not in HTTP_CONTEXTS:
            continue
        for line in lines:
            name = next(filter(is_fixed_variable, made_variables(line)), None)
            if name and (makes_variable(line) or any(patterns_of(line.name, line.args))):
                yield hit_at(line, f'"${name}" is a variable of nginx, which no line may set')


def _keys_of_certificates(context: Context) -> Iterator[Hit]:
    """Servers with fewer keys than certificates, or that verify clients without a CA.

    Source: ngx_http_ssl_merge_srv_conf.
    """
    reported: set[Directive] = set()
    for scope in context.scopes_with("ssl_certificate"):
        certificates = scope.effective_all("ssl_certificate")
        if scope.kind != "server" or not certificates or certificates[-1] in reported:
            continue
        reported.add(certificates[-1])
        if len(scope.effective_all("ssl_certificate_key")) < len(certificates):
            evidence = [written(certificates[-1]), default("ssl_certificate_key", "none")]
            yield Hit(certificates[-1], "this certificate has no ssl_certificate_key", evidence)
        verify = scope.effective("ssl_verify_client")
        if verify is not None and verify.value in {"on", "optional"} and verify not in reported:
            authorities = ("ssl_client_certificate", "ssl_trusted_certificate")
            if all(scope.effective(name) is None for name in authorities):
                reported.add(verify)
                evidence = [written(verify), default(authorities[0], "none")]
                yield Hit(verify, "clients are verified without ssl_client_certificate", evidence)


def _verified_upstreams(context: Context) -> Iterator[Hit]:
    """Upstreams that are verified without a CA. Source: ngx_http_proxy_set_ssl."""
    for module in ("proxy", "grpc", "uwsgi"):
        for scope in context.scopes_that_set(f"{module}_pass"):
            place, verify = scope.sets(f"{module}_pass"), scope.effective(f"{module}_ssl_verify")
            name = f"{module}_ssl_trusted_certificate"
            if verify is None or verify.value != "on" or place is None:
                continue
            if is_tls_url(place.value) and scope.effective(name) is None:
                evidence = [written(verify), default(name, "none")]
                yield Hit(place, f"this upstream is verified without {name}", evidence)


def _stored_and_cached(context: Context) -> Iterator[Hit]:
    """A block that both stores and caches responses. Source: ngx_http_proxy_cache."""
    for module in ("proxy", "fastcgi", "uwsgi", "scgi"):
        for block in context.blocks_that_set(f"{module}_store"):
            pair = [block[name][0] for name in (f"{module}_store", f"{module}_cache")
                    if name in block and block[name][0].value != "off"]  # fmt: skip
            if len(pair) > 1:
                message = f"{module}_store does not work beside {module}_cache"
                yield Hit(pair[0], message, [written(pair[1])])


def _contradictions(context: Context) -> Iterator[Hit]:
    """Blocks that mirror requests and do not, or that check links in both ways.

    Source: ngx_http_mirror, ngx_http_secure_link_merge_conf.
    """
    for block in context.blocks_that_set("mirror"):
        off = next((line for line in block["mirror"] if line.value == "off"), None)
        other = next((line for line in block["mirror"] if line is not off), None)
        if off is not None and other is not None:
            yield Hit(off, "mirror off stands beside another mirror", [written(other)])
    for block in context.blocks_that_set("secure_link_secret"):
        for name in ("secure_link", "secure_link_md5"):
            if name in block:
                secret = block["secure_link_secret"][0]
                message = f"secure_link_secret does not work beside {name}"
                yield Hit(secret, message, [written(block[name][0])])
                break


def _long_keys(context: Context) -> Iterator[Hit]:
    """Keys that do not fit into a bucket, and a bucket size after the first map.

    Source: ngx_http_map_block, ngx_hash_init. The sizes are those of 64-bit machines whose cache
    lines have 64 bytes.
    """
    if context.facts.kernel.machine not in {None, "x86_64", "aarch64"}:
        return
    maps = [line for line in http_lines(context, "map") if line.block is not None]
    size = next(iter(http_lines(context, _BUCKET)), None)
    if not maps:
        return
    if size is not None:
        ordered = (line for line in context.tree.main.walk() if line is size or line is maps[0])
        if next(ordered) is not size:
            yield Hit(size, f"{_BUCKET} must stand before the first map", [written(maps[0])])
            return
    bucket = parse_bytes(size.value) if size is not None else _CACHE_LINE_BYTES
    if bucket is None:
        return
    most = _in_cache_lines(bucket) - _BUCKET_OVERHEAD_BYTES
    for block in maps:
        long = next(((line, length) for line, length in map_keys(block) if length > most), None)
        if long is not None:
            yield Hit(
                long[0],
                f"this key has {long[1]} bytes, and a bucket of the map holds up to {most}",
                [written(size) if size else default(_BUCKET, f"{_CACHE_LINE_BYTES}")],
                fix=_FIX_BUCKET.format(_in_cache_lines(_longest(maps) + _BUCKET_OVERHEAD_BYTES)),
            )


def _longest(maps: list[Directive]) -> int:
    return max(length for block in maps for _, length in map_keys(block))


def _in_cache_lines(size_bytes: int) -> int:
    return -(-size_bytes // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES


def _log_buffers(context: Context) -> Iterator[Hit]:
    """Access logs with two kinds of buffer. Source: ngx_http_log_set_log."""
    first_lines: dict[str, Directive] = {}
    for line in http_lines(context, "access_log"):
        buffer = _buffer(line)
        if buffer is None or is_open(line.value):
            continue
        earlier = first_lines.setdefault(line.value, line)
        if _buffer(earlier) != buffer:
            place = f"{earlier.file}:{earlier.line}"
            yield Hit(line, f"this log has another buffer at {place}", [written(earlier)])


def _buffer(line: Directive) -> tuple[int | None, float | None, str] | None:
    """The bytes, the seconds until a flush and the gzip level of a log line; None without them."""
    words = line.args[2:]
    levels = [arg.partition("=")[2] or "1" for arg in words if arg.partition("=")[0] == "gzip"]
    size, flush = parameter(words, "buffer"), parameter(words, "flush")
    if size is None and not levels:
        return None
    level = levels[-1].lstrip("0") if levels else ""
    return parse_bytes(size or _GZIP_BUFFER), parse_seconds(flush or "0"), level


def _modules(context: Context) -> Iterator[Hit]:
    """Modules loaded after a block that counts them, or twice. Source: ngx_load_module."""
    first, loaded = None, dict[str, Directive]()
    for line in context.tree.main:
        if line.name in {"events", "http", "stream", "mail"} and line.block is not None:
            first = first or line
        elif line.name == "load_module" and not is_open(line.value):
            if first is not None:
                yield Hit(line, f"this module is loaded after {first.name}", [written(first)])
            earlier = loaded.setdefault(posixpath.basename(line.value), line)
            if earlier is not line:
                place = f"{earlier.file}:{earlier.line}"
                yield Hit(line, f"this module is already loaded at {place}", [written(earlier)])


def _tls(context: Context) -> Iterator[Hit]:
    """Servers of a TLS address without a certificate. Source: ngx_http_ssl_init."""
    reported: set[Directive] = set()
    for listener in context.tls_listeners:
        first = listener.default
        if first.effective("ssl_certificate") is not None:
            continue
        rejects = _rejects(first)
        without = [first] if not rejects else [
            scope for scope in listener.servers
            if scope.effective("ssl_certificate") is None and not _rejects(scope)
        ]  # fmt: skip
        for scope in without:
            places = zip(listener.listener.lines, listener.listener.servers, strict=True)
            place = next((line for line, server in places if server is scope.server), None)
            if place is not None and place not in reported:
                reported.add(place)
                message = f"{listener.listener.address} has TLS, and this server has no certificate"
                yield Hit(place, message, [written(place), default("ssl_certificate", "none")])


def _rejects(scope: Scope) -> bool:
    return scope.value("ssl_reject_handshake") == "on"


def _not_of_this_nginx(context: Context) -> Iterator[Hit]:
    """Words of another system or of nginx Plus.

    Source: ngx_event_use, ngx_http_core_listen, ngx_http_upstream_random.
    """
    use = events_directive(context, "use")
    if use is not None and use.value in _NOT_OF_LINUX and context.is_linux:
        yield Hit(use, f'Linux does not have "{use.value}"', [written(use)])
    for line in context.lines_by_name.get("listen", ()) if context.is_linux else ():
        if any(arg.startswith("setfib=") for arg in line.args[1:]):
            yield Hit(line, 'Linux does not have "setfib="', [written(line)])
    is_plain = context.facts.nginx.product is not None
    for line in context.lines_by_name.get("random", ()) if is_plain else ():
        if any(arg.startswith("least_time") for arg in line.args[1:]):
            yield Hit(line, '"least_time" is a method of nginx Plus', [written(line)])


def _connections(context: Context) -> Iterator[Hit]:
    """Fewer connections than listening sockets. Source: ngx_event_init_conf."""
    named = [found.socket for found in context.listeners if not is_open(found.address)]
    named = [one for one in named if one.family in {"inet", "inet6", "unix"}]
    covering = Wildcards(named)
    sockets = sum(len(one.ports) or 1 for one in set(named) if not covering.cover(one))
    events = context.tree.main.first("events")
    if events is None or events.block is None:
        return
    line = events.block.first("worker_connections")
    limit = _CONNECTIONS if line is None else parse_count(line.value)
    if limit is not None and limit <= sockets:
        evidence = default("worker_connections", f"{limit}") if line is None else written(line)
        yield Hit(
            line or events,
            f"{limit} connections for a worker are not enough for {sockets} listening sockets",
            [evidence, counted("listening sockets", sockets)],
            fix=f"Set worker_connections above {sockets}; thousands are usual.",
        )


def _no_connections(context: Context) -> Iterator[Hit | MissingFacts]:
    """``keepalive 0``. Source: ngx_http_upstream_keepalive."""
    for upstream in context.upstreams.values():
        line = upstream.block.first("keepalive")
        if line is None or parse_count(line.value) != 0:
            continue
        if context.version is None:
            yield MissingFacts(("nginx.nginx_version",))
        elif context.version < _KEEPALIVE_OFF:
            yield Hit(
                line,
                "nginx takes keepalive 0 from 1.29.7 on",
                [written(line)],
                fix="Remove the line: without it no connection is kept.",
            )


_KINDS = (
    _patterns,
    _tables,
    _own_variables,
    _tls,
    _keys_of_certificates,
    _verified_upstreams,
    _stored_and_cached,
    _log_buffers,
    _modules,
    _not_of_this_nginx,
    _contradictions,
    _long_keys,
    _connections,
    _no_connections,
)
_CONF = "events {} http { server { location ~ %s { } } }"

RULE = Rule(
    id="cf-lines-refused",
    severity="error",
    title="lines that nginx rejects for their content",
    why='nginx does not start: emerg "pcre2_compile() failed", "conflicting parameter" of a map, '
    '"percent total is greater", "invalid network", "the duplicate variable", "no ssl_certificate '
    'is defined", "no ssl_certificate_key", "is incompatible with proxy_cache", "already defined '
    'with conflicting parameters", "is specified too late", "worker_connections are not '
    'enough", "could not build map_hash" or "invalid value" of keepalive.',
    fix="Correct the line that the finding names.",
    sources=(
        "nginx: src/core/ngx_regex.c, ngx_regex_compile; pcre2pattern(3)",
        "nginx: src/http/modules/ngx_http_map_module.c, ngx_http_map",
        "nginx: src/core/ngx_hash.c, ngx_hash_init",
        "nginx: src/http/modules/ngx_http_mirror_module.c, ngx_http_mirror",
        "nginx: src/http/modules/ngx_http_split_clients_module.c, ngx_conf_split_clients_block",
        "nginx: src/http/modules/ngx_http_geo_module.c, ngx_http_geo_cidr_value",
        "nginx: src/http/modules/ngx_http_ssl_module.c, ngx_http_ssl_init",
        "nginx: src/http/modules/ngx_http_ssl_module.c, ngx_http_ssl_merge_srv_conf",
        "nginx: src/http/ngx_http_variables.c, ngx_http_add_variable",
        "nginx: src/http/modules/ngx_http_log_module.c, ngx_http_log_set_log",
        "nginx: src/core/nginx.c, ngx_load_module",
        "nginx: src/event/ngx_event.c, ngx_event_init_conf",
        "nginx: src/http/modules/ngx_http_upstream_keepalive_module.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="A regular expression is judged by what PCRE and PCRE2 both reject: a group or class "
    "that does not end, a quantifier with nothing before it, an invalid group name. Patterns with "
    "quoted parts, verbs, comments, conditions or free spacing are not judged. Of the listening "
    "sockets, only those of http with an address count. A key that is too long is reported for "
    "x86-64 and ARM64, also if the machine is not known.",
    bad=Example(_CONF % r"^/(a|b\.png$"),
    good=Example(_CONF % r"^/(a|b)\.png$"),
    check=check,
)
