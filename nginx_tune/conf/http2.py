"""Effects of HTTP/2 on a configuration that was written for HTTP/1.1.

Connection limits: over HTTP/2 and HTTP/3, each request in flight counts for ``limit_conn``.

Unbuffered uploads: the flow-control window is unlimited for a body that nginx buffers. For an
unbuffered one, it opens only as the upstream takes data: 64 KiB per round trip, so 0.8 MB/s at
80 ms. HTTP/1.1 can use the whole TCP window. ``grpc_pass`` never buffers, but its clients need
HTTP/2 anyway. Source: ngx_http_v2_read_request_body (``no_flow_control`` applies to buffered bodies
only), ngx_http_v2_read_unbuffered_request_body.

Headers: over HTTP/1.1, nginx reads them into ``client_header_buffer_size``, then into
``large_client_header_buffers``. Each line must fit into one buffer; the defaults allow 8 KiB per
line and 33 KiB in all. Over HTTP/2, ``http2_max_field_size`` limits a field as sent (4 KiB), and
``http2_max_header_size`` all decompressed fields of a request (16 KiB). Beyond that, nginx closes
the connection, with all requests on it. Since 1.19.7, ``large_client_header_buffers`` replaces
both.
Source: ngx_http_alloc_large_header_buffer(), ngx_http_v2_state_field_len(),
ngx_http_v2_state_process_header(), ngx_http_v2_merge_srv_conf(); nginx change log, 1.19.7.

Ciphers: HTTP/2 requires an ephemeral key exchange and an AEAD. If a TLS 1.2 handshake chose another
cipher, a client may close the connection, and browsers do (``INADEQUATE_SECURITY``). Source: RFC
9113, section 9.2.2 and appendix A; openssl-ciphers(1) for the words of a list.

Variables: a request is evaluated twice, for a client over HTTP/1.1 and for the same one over
HTTP/2. ``map`` and ``set`` are followed. An unknown value is the same placeholder both times, so
that only the protocol can make texts differ.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, http_blocks, http_directives
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.values import parse_bytes, parse_count
from nginx_tune.conf.variables import MOST_STEPS, VARIABLE, read_map, variables_of

PAGE_STREAMS = 32
"""Concurrent requests of a browser for an ordinary page over HTTP/2."""


class CountedLimit(NamedTuple):
    """A connection limit in effect."""

    scope: Scope
    line: Directive
    most: int
    """Maximum number of concurrent connections for each value of the key."""


def counted_limits(found: Iterable[Scope]) -> Iterator[CountedLimit]:
    """The connection limits in effect, without those in a dry run.

    Source: ngx_http_limit_conn_handler().
    """
    for scope in found:
        if scope.value("limit_conn_dry_run") == "on":
            continue
        for line in scope.effective_all("limit_conn"):
            most = parse_count(line.args[1]) if len(line.args) > 1 else None
            if most is not None:
                yield CountedLimit(scope, line, most)


def zone_keys(tree: ConfTree, name: str) -> dict[str, str]:
    """The key of each zone, by zone name. ``name`` is ``limit_conn_zone`` or ``limit_req_zone``."""
    return {
        arg.removeprefix("zone=").partition(":")[0]: line.value
        for line in http_directives(tree)
        if line.name == name
        for arg in line.args[1:]
        if arg.startswith("zone=")
    }


ENOUGH_BYTES = 512 << 10
"""A window for 6 MB/s at 80 ms, which is more than most clients can send."""
_PREREAD_BYTES = 64 << 10
"""Default of ``http2_body_preread_size``. Source: ngx_http_v2_module.c."""
_BUFFER_BYTES = 16 << 10
"""Default of ``client_body_buffer_size`` on 64-bit machines."""
_MOST_BYTES = 1 << 20
"""Default of ``client_max_body_size``."""
_MODULES = ("proxy", "fastcgi", "uwsgi", "scgi")


class HeldUpload(NamedTuple):
    """The line that turns off buffering of request bodies, and the flow-control window."""

    line: Directive
    window_bytes: int


def held_uploads(found: Iterable[Scope]) -> Iterator[HeldUpload]:
    """The uploads that have to wait a round trip for each flow-control window over HTTP/2."""
    for scope in found:
        line = _unbuffered(scope)
        if line is None:
            continue
        window = max(
            _size(scope, "http2_body_preread_size", _PREREAD_BYTES),
            _size(scope, "client_body_buffer_size", _BUFFER_BYTES),
        )
        most = _size(scope, "client_max_body_size", _MOST_BYTES)
        if window < ENOUGH_BYTES and (most > window or most == 0):
            yield HeldUpload(line, window)


def _unbuffered(scope: Scope) -> Directive | None:
    """The ``*_request_buffering off`` line in effect where a scope passes the client's body on.

    None if buffering is on, or if no body is passed on.

    Source: ngx_http_proxy_handler and the other modules' (``request_body_no_buffering``).
    """
    for module in _MODULES:
        line = scope.effective(f"{module}_request_buffering")
        if line is None or line.value.lower() != "off" or scope.sets(f"{module}_pass") is None:
            continue
        is_passed = scope.value(f"{module}_pass_request_body", "on") == "on"
        if is_passed and not (module == "proxy" and scope.effective("proxy_set_body")):
            return line
    return None


def _size(scope: Scope, name: str, default: int) -> int:
    line = scope.effective(name)
    size = None if line is None else parse_bytes(line.value)
    return default if size is None else size


ONE_LIMIT_SINCE = (1, 19, 7)
"""The first version in which ``large_client_header_buffers`` limits HTTP/2 headers."""
FIELD_SIZE = "http2_max_field_size"
HEADER_SIZE = "http2_max_header_size"
FIRST_BUFFER = "client_header_buffer_size"
LARGE_BUFFERS = "large_client_header_buffers"
_FIRST_BYTES = 1 << 10
_LARGE = (4, 8 << 10)
"""nginx's defaults. Source: ngx_http_core_merge_srv_conf()."""
_PSEUDO_FIELDS_BYTES = 34
"""``:method``, ``:path``, ``:scheme``, ``https`` and ``:authority``, absent in HTTP/1.1."""
_STEP_BYTES = 1 << 10


class HeaderBuffers(NamedTuple):
    """The buffers for the headers of a request over HTTP/1.1."""

    first_bytes: int = _FIRST_BYTES
    large_count: int = _LARGE[0]
    large_bytes: int = _LARGE[1]

    @property
    def as_http2_sizes(self) -> dict[str, int]:
        """The lowest HTTP/2 limits that accept all that HTTP/1.1 accepts, in whole KiB."""
        most = self.first_bytes + self.large_count * self.large_bytes + _PSEUDO_FIELDS_BYTES
        return {
            FIELD_SIZE: max(self.first_bytes, self.large_bytes),
            HEADER_SIZE: -(-most // _STEP_BYTES) * _STEP_BYTES,
        }


def header_buffers(scope: Scope) -> HeaderBuffers:
    """The header buffers of a server; nginx's defaults if not set or not parsable."""
    first = scope.effective(FIRST_BUFFER)
    first_bytes = None if first is None else parse_bytes(first.value)
    large = scope.effective(LARGE_BUFFERS)
    words = ("", "") if large is None else (*large.args, "", "")[:2]
    count, each = parse_count(words[0]), parse_bytes(words[1])
    return HeaderBuffers(
        _FIRST_BYTES if first_bytes is None else first_bytes,
        *(_LARGE if count is None or each is None else (count, each)),
    )


Http2Fault = Literal["only", "first"]
"""``only``: HTTP/2 forbids every cipher in the list; ``first``: HTTP/2 forbids the cipher that the
server prefers."""
_SEPARATORS = re.compile(r"[:, ]+")
_EPHEMERAL = frozenset({"ECDHE", "EECDH", "KEECDH", "KECDHE", "ECDH", "DHE", "EDH", "KDHE", "KEDH"})
_AEAD = frozenset({"AESGCM", "AESCCM", "AESCCM8", "CHACHA20", "ARIAGCM", "GCM", "CCM", "CCM8"})
_NO_EPHEMERAL = frozenset({"RSA", "KRSA", "PSK", "KPSK", "SRP"})
_NO_AEAD = frozenset({"SHA", "SHA1", "SHA256", "SHA384", "MD5", "LOW", "MEDIUM", "EXP", "EXPORT"})
_NOT_OFFERED = (
    "3DES", "DES", "RC4", "CAMELLIA", "SEED", "IDEA", "ARIA", "NULL", "PSK", "SRP", "ADH", "AECDH",
    "EXP", "LOW", "MEDIUM", "DHE-", "EDH", "KRB5", "GOST",
)  # fmt: skip
"""Words for ciphers that no browser offers: their position in the list does not matter."""


class _Word(NamedTuple):
    """One word of a cipher list: properties of its first cipher, and the certificates it needs."""

    is_permitted: bool
    is_offered: bool
    keys: frozenset[str]


def http2_fault(ciphers: str, *, server_chooses: bool) -> Http2Fault | None:
    """The fault of a cipher list for HTTP/2 over TLS 1.2; None if there is none."""
    written = [word for word in _SEPARATORS.split(ciphers) if word]
    out = {word[1:].upper() for word in written if word[0] in "!-"}
    kept = [word for word in written if word[0] not in "!-+@" and not word.startswith("TLS_")]
    if any("=" in word for word in kept):  # a profile that the host defines
        return None
    words = [_word(word.upper(), out) for word in kept]
    if not words:
        return None
    if not any(word.is_permitted for word in words):
        return "only"
    if not server_chooses:
        return None
    for key in ("RSA", "ECDSA"):
        usable = [word for word in words if key in word.keys and word.is_offered]
        if usable and not usable[0].is_permitted:
            return "first"
    return None


def _word(word: str, out: set[str]) -> _Word:
    is_offered = not word.startswith(_NOT_OFFERED)
    if "-" in word:
        parts = set(word.split("-"))
        permitted = bool(parts & _EPHEMERAL and parts & (_AEAD | {"POLY1305"}))
        keys = frozenset({"ECDSA"} if "ECDSA" in parts else {"RSA"})
        return _Word(permitted and not out & parts, is_offered, keys)
    parts = set(word.split("+"))
    # A word for several ciphers begins with an ephemeral AEAD, in OpenSSL's own order.
    permitted = not parts & (_NO_EPHEMERAL | _NO_AEAD) and is_offered
    keys = frozenset({"RSA"} if parts & _NO_EPHEMERAL or "ARSA" in parts else {"RSA", "ECDSA"})
    return _Word(permitted and not _takes_away(out), is_offered, keys)


def _takes_away(out: set[str]) -> bool:
    """True if the exclusions leave no ephemeral AEAD cipher."""
    return bool(out & {"ECDHE", "EECDH", "KEECDH", "KECDHE", "ECDH", "AESGCM", "AEAD"})


SpokenVersion = Literal["HTTP/1.1", "HTTP/2.0"]

_OLD: SpokenVersion = "HTTP/1.1"
_NEW: SpokenVersion = "HTTP/2.0"
SPOKEN: dict[str, dict[SpokenVersion, str]] = {
    "server_protocol": {_OLD: "HTTP/1.1", _NEW: "HTTP/2.0"},
    "request": {_OLD: "GET / HTTP/1.1", _NEW: "GET / HTTP/2.0"},
    "http_connection": {_OLD: "keep-alive", _NEW: ""},
    "http2": {_OLD: "", _NEW: "h2"},
    "ssl_alpn_protocol": {_OLD: "http/1.1", _NEW: "h2"},
}
"""Values in an ordinary request of a browser. HTTP/2 has no ``Connection`` (RFC 9113, 8.2.2).
Requests with ``Upgrade`` still come over HTTP/1.1: browsers open a separate connection for them,
because nginx does not support extended CONNECT (RFC 8441)."""
_UNKNOWN = "\0"
"""Prefix of the placeholder for an unknown value; no configuration contains it."""
_MOST_DEEP = 40
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
_UNARY = 2
_BINARY = 3
FaultOutcome = bool | tuple[str, ...]


class ProtocolVariables:
    """Compares texts and conditions of a tree over HTTP/1.1 and over HTTP/2."""

    def __init__(self, tree: ConfTree) -> None:
        self._steps = 0
        self._tables: dict[str, Directive] = {}
        self._found: dict[tuple[str, SpokenVersion, Directive, Directive | None], str] = {}
        for http in http_blocks(tree):
            for table in http.block or Block([]):
                name = table.args[1] if len(table.args) > 1 else ""
                if table.name in ("map", "split_clients") and table.block is not None:
                    self._tables[name.lstrip("$").lower()] = table
        self._made = _made_of_spoken(tree, self._tables)

    def made_differs(self, text: str, scope: Scope) -> bool:
        """True if variables of ``map`` and ``set`` in the text have other values over HTTP/2.

        nginx's own variables, such as ``$server_protocol``, are not compared.
        """
        made = variables_of(text) & self._made
        old, new = ([self._whole(f"${n}", one, scope) for n in made] for one in (_OLD, _NEW))
        return old != new

    def answers_differ(self, condition: Sequence[str], scope: Scope) -> bool:
        """True if the condition of an ``if`` may be true over only one of the protocols."""
        words = _inside(condition)
        if not variables_of(" ".join(words)) & (self._made | SPOKEN.keys()):
            return False
        old, new = (self._outcome(words, one, scope) for one in (_OLD, _NEW))
        return old != new

    def _whole(self, text: str, protocol: SpokenVersion, scope: Scope) -> str:
        self._steps = 0
        return self._text(text, protocol, scope, ())

    def _outcome(self, words: Sequence[str], protocol: SpokenVersion, scope: Scope) -> FaultOutcome:
        """The result, or the words if unknown. Source: ngx_http_rewrite_if_condition()."""
        texts = [self._whole(one, protocol, scope) for one in words]
        if len(words) == 1:
            return (*texts,) if _UNKNOWN in texts[0] else texts[0] not in ("", "0")
        if len(words) == _UNARY:
            return (*texts,)
        if len(words) != _BINARY:
            return False
        left, operator, right = texts[0], words[1], texts[2]
        if "~" in operator:
            right = words[2]  # in a regular expression, "$" is the end
        if _UNKNOWN in left or _UNKNOWN in right:
            return (left, operator, right)
        holds = _matches(left, right, ignores="*" in operator) if "~" in operator else left == right
        return holds is not operator.startswith("!")

    def _text(self, text: str, protocol: SpokenVersion, scope: Scope, seen: tuple[str, ...]) -> str:
        return VARIABLE.sub(
            lambda match: self._variable((match[1] or match[2]).lower(), protocol, scope, seen),
            text,
        )

    def _variable(
        self, name: str, protocol: SpokenVersion, scope: Scope, seen: tuple[str, ...]
    ) -> str:
        self._steps += 1
        if name in SPOKEN:
            return SPOKEN[name][protocol]
        if (
            name not in self._made
            or name in seen
            or len(seen) > _MOST_DEEP
            or self._steps > MOST_STEPS
        ):
            return _unknown(name)
        location = next(
            (directive for directive in reversed(scope.chain) if directive.name == "location"), None
        )
        key = (name, protocol, scope.server, location)
        if key not in self._found:
            self._found[key] = self._worked_out(name, protocol, scope, (*seen, name))
        return self._found[key]

    def _worked_out(
        self, name: str, protocol: SpokenVersion, scope: Scope, seen: tuple[str, ...]
    ) -> str:
        sets, may_run = _sets(name, scope)
        values = [self._text(directive.args[1], protocol, scope, seen) for directive in sets]
        if values and not may_run:
            return values[-1]
        if name in self._tables:
            values.append(self._looked_up(self._tables[name], protocol, scope, seen))
        return values[0] if len(set(values)) == 1 else _unknown(name, values)

    def _looked_up(
        self, table: Directive, protocol: SpokenVersion, scope: Scope, seen: tuple[str, ...]
    ) -> str:
        """The value from a table; empty without a match or default. Source: ngx_http_map_find()."""
        key = self._text(table.args[0], protocol, scope, seen)
        entries, patterns, default = read_map(table)
        every = [*entries.values(), *patterns, *([default] if default else [])]
        if table.name != "map" or _UNKNOWN in key:
            values = (self._text(directive.value, protocol, scope, seen) for directive in every)
            return _unknown(key, values)
        entry = entries.get(key.lower()) or next(
            (pattern for pattern in patterns if pattern.args and _is_meant(pattern.name, key)),
            default,
        )
        return "" if entry is None else self._text(entry.value, protocol, scope, seen)


def _made_of_spoken(tree: ConfTree, tables: Mapping[str, Directive]) -> set[str]:
    """The variables of ``map`` and ``set`` that may have another value over HTTP/2."""
    sources: dict[str, set[str]] = {}
    for name, table in tables.items():
        texts = [table.args[0], *(directive.value for directive in table.block or ())]
        sources.setdefault(name, set()).update(*map(variables_of, texts))
    for line in http_directives(tree) if "set" in tree.names else ():
        if line.name == "set" and len(line.args) > 1:
            name = line.args[0].lstrip("$").lower()
            sources.setdefault(name, set()).update(variables_of(line.args[1]))
    found: set[str] = set()
    while more := {n for n, of in sources.items() if of & (found | SPOKEN.keys())} - found:
        found |= more
    return found


def _sets(name: str, scope: Scope) -> tuple[list[Directive], bool]:
    """The ``set`` lines of a variable for a request, and True if any is in an ``if``."""
    location = next(
        (directive for directive in reversed(scope.chain) if directive.name == "location"), None
    )
    found: list[Directive] = []
    may_run = False
    for level in filter(None, (scope.server, location)):
        for line in level.block or ():
            inner = line.block.all("set") if line.name == "if" and line.block else []
            for directive in [line] if line.name == "set" else inner:
                if len(directive.args) > 1 and directive.args[0].lstrip("$").lower() == name:
                    found.append(directive)
                    may_run |= line is not directive
    return found, may_run


def _unknown(name: str, values: Iterable[str] = ()) -> str:
    """A placeholder of fixed length for a value that may be any of ``values``."""
    parts = _UNKNOWN.join((name, *values))
    return _UNKNOWN + hashlib.sha256(parts.encode(errors="surrogatepass")).hexdigest()


def _is_meant(pattern: str, key: str) -> bool:
    if pattern.startswith("~"):
        return _matches(key, pattern.lstrip("~*"), ignores=pattern.startswith("~*"))
    return False  # host names with an asterisk


def _matches(text: str, pattern: str, *, ignores: bool) -> bool:
    """True if an expression matches; false for one that Python cannot compile."""
    try:
        flags = re.IGNORECASE if ignores else 0
        return re.search(_NAMED_GROUP.sub("(?P<", pattern), text, flags) is not None
    except re.error:
        return False


def _inside(condition: Sequence[str]) -> list[str]:
    """The words inside the parentheses; an empty word in quotes counts."""
    words = list(condition)
    if words and words[0].startswith("("):
        words[:1] = [words[0][1:]] if words[0] != "(" else []
    if words and words[-1].endswith(")"):
        words[-1:] = [words[-1][:-1]] if words[-1] != ")" else []
    return words
