"""Locations of a configuration that may get a cache, and changes to existing caches.

A cache distinguishes requests by server and URL. If the configuration shows that a response also
depends on the client or on anything else, it must not be shared. For example, a cached response of
``auth_request`` would admit the next client. Such a location gets no cache. The blocks around it
get no cache either, since the location would inherit it.

An existing cache keeps its zone name, its levels and its ``inactive`` time: another name or other
levels would lose every file. Its zone may grow, but never shrink.

Source: ngx_http_upstream_cache() in ngx_http_upstream.c. The subrequests of
        ngx_http_auth_request_module.c, SSI and ``error_page`` have the client's ``$request_uri``.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.conf.answer_bodies import stream_sign
from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import USUAL_PORT, listeners
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import Scope, http_directives, scopes, servers
from nginx_tune.conf.served import KEYS_PER_MEBIBYTE
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.values import is_alike, parse_bytes
from nginx_tune.conf.variables import Variables, variables_of
from nginx_tune.decide.cache_growth import (
    BY_KEYS,
    FILE_BYTES_FACT,
    MAY_HOLD_MORE,
    NOT_SCANNED,
    UNKNOWN_DISK,
)
from nginx_tune.decide.cache_layout import UNSEEN_ROOM
from nginx_tune.documents.decisions import Decision, Evidence, Setting
from nginx_tune.documents.units import bytes_text

_IN_THE_KEY = frozenset({
    "scheme", "host", "http_host", "server_name", "server_port", "proxy_port", "request_uri", "uri",
    "document_uri", "args", "query_string", "is_args", "https", "proxy_host", "request_method",
    "request_filename", "document_root", "http_accept_encoding",
})  # fmt: skip
"""Variables that the cache key determines (``KEY_AMONG_OTHERS``). ``$request_method`` counts too,
since a cache stores only GET, and treats HEAD as GET."""
_OF_THE_REQUEST = frozenset({
    "remote_addr", "realip_remote_addr", "remote_port", "proxy_protocol_addr", "http_upgrade",
    "proxy_add_x_forwarded_for", "request_id", "msec", "time_local", "time_iso8601", "connection",
})  # fmt: skip
"""Variables that differ between requests and are sent to servers only for their logs."""
_SENT_ALONG = frozenset({
    "user-agent", "referer", "accept", "accept-encoding", "accept-language", "origin",
    "authorization", "x-request-id",
})  # fmt: skip
"""Headers that nginx passes on by default: setting one to the client's value changes nothing."""
_FORBIDS = frozenset({"cache-control", "set-cookie", "vary"})
"""Response headers with which a server forbids caching or declares variants."""
_HARMLESS = frozenset({"return", "access_log", "limit_rate", "expires", "add_header", "set"})
"""Directives in an ``if`` that do not change the upstream of a request."""
_AS_WHOM = ("proxy_bind", "proxy_ssl_certificate", "proxy_ssl_name")
_CAPTURE = re.compile(r"\(\?P?<(\w+)>")


class SharedAnswers:
    """The locations of a configuration that give all clients the same response."""

    def __init__(self, tree: ConfTree) -> None:
        self._variables = Variables(tree)
        every = scopes(tree)
        self._asked = dict(_asked_beside(tree, every))
        self._alike = _servers_alike(tree)
        self._maps: dict[str, list[Directive]] = {}
        for line in http_directives(tree):
            if line.name == "map" and len(line.args) > 1:
                self._maps.setdefault(line.args[1].lstrip("$").lower(), []).append(line)
        self._passing = [
            scope for scope in every if scope.own.block and scope.own.block.first("proxy_pass")
        ]

    def hindrance(self, scope: Scope) -> Directive | None:
        """The line that rules out a cache for a location or an inner location, or None."""
        return self._hindered.get(scope.own)

    @cached_property
    def _hindered(self) -> dict[Directive, Directive]:
        """Locations that get no cache and the blocks around them, each with the line at fault."""
        found: dict[Directive, Directive] = {}
        for scope in self._passing:
            line = self._own(scope)
            if line is not None:
                for around in scope.chain:
                    found.setdefault(around, line)
        return found

    def _own(self, scope: Scope) -> Directive | None:
        led = (self._asked.get(around) for around in scope.chain)
        return (
            next(filter(None, led), None)
            or _by_name(scope)
            or line_that_says_no(scope)
            or stream_sign(scope)
            or self._by_conditions(scope)
            or self._told_apart(scope)
            or signed(scope)
            or (scope.server if scope.server in self._alike else None)
        )

    def _by_conditions(self, scope: Scope) -> Directive | None:
        """The ``if``, ``rewrite`` or ``try_files`` that leads one URL to several places."""
        for level in scope.chain:
            if level.name == "if" and not self._is_in_key(level.args, scope):
                return level
            if level.name not in ("server", "location"):
                continue
            for line in level.block or Block([]):
                words: Sequence[str] = ()
                if line.name == "rewrite":
                    words = line.args[1:2]
                elif line.name == "try_files" or (line.name == "if" and _leads_elsewhere(line)):
                    words = line.args
                if not self._is_in_key(words, scope):
                    return line
        return None

    def _told_apart(self, scope: Scope) -> Directive | None:
        """The line that makes the upstream or its request depend on more than the cache key.

        None if there is none.
        """
        for name in ("proxy_pass", *_AS_WHOM):
            line = scope.effective(name) if name != "proxy_pass" else scope.sets(name)
            if line is not None and not self._is_in_key(line.args[:1], scope):
                return line
        for line in scope.effective_all("proxy_set_header"):
            if not self._tells_nothing(line, scope):
                return line
        ignored = scope.effective("proxy_ignore_headers")
        if ignored is not None and _FORBIDS & {arg.lower() for arg in ignored.args}:
            return ignored
        return None

    def _tells_nothing(self, line: Directive, scope: Scope) -> bool:
        """True if a request header depends only on the cache key, or is only for servers' logs."""
        name = line.value.lower()
        if name.startswith(("if-", "range")):
            return False  # the cached response would be partial or empty
        if name == "connection":  # an upgrade would get a cached page
            return " ".join(line.args[1:]).lower() in ("", "close", "keep-alive")
        same = f"http_{name.replace('-', '_')}" if name in _SENT_ALONG else ""
        return all(
            variable in _OF_THE_REQUEST or variable == same or self._is_one(variable, scope)
            for variable in variables_of(" ".join(line.args[1:]))
        )

    def _is_in_key(self, words: Sequence[str], scope: Scope) -> bool:
        """True if a text is the same in all requests for one URL of one host."""
        return all(self._is_one(name, scope) for name in variables_of(" ".join(words)))

    def _is_one(self, name: str, scope: Scope, seen: frozenset[str] = frozenset()) -> bool:
        if name in _IN_THE_KEY or name.isdigit() or name in _captures(scope):
            return True
        values = self._variables.possible(f"${name}", scope)
        if values.complete and len(values.known) == 1:
            return True
        tables = self._maps.get(name, [])
        if name in seen or len(tables) != 1 or _is_set(name, scope):
            return False
        words = [tables[0].args[0], *(" ".join(line.args) for line in tables[0].block or ())]
        used = variables_of(" ".join(words))
        return all(self._is_one(variable, scope, seen | {name}) for variable in used)


def _by_name(scope: Scope) -> Directive | None:
    """The line of a named or internal location, which keeps the URL of the original request.

    Source: ngx_http_named_location(), from error_page, try_files, X-Accel-Redirect and scripts.
    """
    is_named = any(level.args[-1:] and level.args[-1].startswith("@") for level in scope.chain)
    return scope.own if is_named else scope.sets("internal")


def _captures(scope: Scope) -> set[str]:
    """Names of the captures in regular expressions of server names and locations."""
    texts = [arg for level in scope.chain if level.name == "location" for arg in level.args]
    names = scope.server.block.all("server_name") if scope.server.block else ()
    texts += [arg for line in names for arg in line.args]
    return {found.lower() for text in texts for found in _CAPTURE.findall(text)}


def _is_set(name: str, scope: Scope) -> bool:
    lines = (line for level in scope.chain for line in (level.block or Block([])).walk())
    return any(line.name == "set" and line.value.lstrip("$").lower() == name for line in lines)


def _leads_elsewhere(condition: Directive) -> bool:
    """True if an ``if`` may change the location or upstream of a request."""
    return any(line.name not in _HARMLESS for line in condition.block or ())


def _asked_beside(tree: ConfTree, every: Sequence[Scope]) -> Iterator[tuple[Directive, Directive]]:
    """The locations of subrequests (``auth_request``, ``mirror``), each with the line for it."""
    matcher = LocationMatcher(tree)
    for scope in every:
        for line in [*scope.effective_all("auth_request"), *scope.effective_all("mirror")]:
            path = line.value.partition("?")[0]
            if path.startswith("/") and "$" not in path:
                found = matcher.location_of(scope.server, path)
                if found is not None:
                    yield found, line


_UNSAID = frozenset({(USUAL_PORT, USUAL_PORT)})


def _servers_alike(tree: ConfTree) -> set[Directive]:
    """Servers that a cache key cannot distinguish: same name and port on different addresses."""
    ports = _ports(tree)
    names = {
        server: {(_first_name(server), port) for port in ports.get(server, _UNSAID)}
        for _, server in servers(tree)
    }
    counted = Counter(pair for pairs in names.values() for pair in pairs)
    return {server for server, pairs in names.items() if any(counted[pair] > 1 for pair in pairs)}


def _first_name(server: Directive) -> str:
    """The value of ``$server_name``: the first name. Source: ngx_http_core_server_name()."""
    line = server.block.first("server_name") if server.block else None
    return "" if line is None else line.value.lower()


def _ports(tree: ConfTree) -> dict[Directive, set[tuple[int, int]]]:
    """The values of ``$server_port`` for each server, as ranges; 0 for a Unix socket."""
    found: dict[Directive, set[tuple[int, int]]] = {}
    for listener in listeners(tree):
        for server in listener.servers:
            found.setdefault(server, set()).add((listener.socket.first, listener.socket.last))
    return found


_WHO_ASKS = re.compile(
    r"auth_(?!basic_user_file|request_set|jwt_key_\w+)\w+|ssl_verify_client|js_access|testcookie"
    r"|\w*_by_lua\w*|more_(?:set|clear)_input_headers"
)
"""Directives of nginx, third-party modules and scripts that make responses depend on the client."""
_PUT_TOGETHER = ("ssi", "slice")
"""Directives that build a page from several requests with one ``$request_uri`` or key."""
_NO = ("proxy_method", "proxy_set_body", "add_before_body", "add_after_body", "proxy_store")
"""Directives that change the request or response, or already store the response."""
_ON_THE_WAY = ("proxy_buffering", "proxy_pass_request_body")
"""Directives whose ``off`` means that responses are only passed through."""
_NOT_KEPT = re.compile(r"private|no-store|no-cache", re.IGNORECASE)
_SIGNED = re.compile(r"amazonaws\.com|storage\.googleapis\.com|\bminio\b", re.IGNORECASE)
"""Servers that expect signed requests; a cache would change their method and headers."""


def line_that_says_no(scope: Scope) -> Directive | None:
    """A directive in effect that rules out a cache; None if there is none.

    In a location without a cache, ``proxy_cache off`` and similar lines rule it out too.
    """
    for name in sorted(scope.tree.names):
        is_asking = _WHO_ASKS.fullmatch(name) is not None
        line = scope.effective(name) if is_asking or name in _PUT_TOGETHER else None
        if line is not None and line.value.lower() not in ("off", "0"):
            return line
        if name.startswith(("proxy_cache", "proxy_no_cache")) and name != "proxy_cache_path":
            line = scope.effective(name)
            if line is not None:
                return line
    for name in _ON_THE_WAY:
        line = scope.effective(name)
        if line is not None and line.value.lower() == "off":
            return line
    return next(filter(None, map(scope.effective, _NO)), None) or _forbids_caching(scope)


def _forbids_caching(scope: Scope) -> Directive | None:
    """The line that tells clients not to cache a response; None if there is none."""
    for line in scope.effective_all("add_header"):
        if line.value.lower() == "cache-control" and _NOT_KEPT.search(" ".join(line.args[1:])):
            return line
    expires = scope.effective("expires")
    if expires is not None and expires.value.lower().startswith(("epoch", "-")):
        return expires
    return None


def signed(scope: Scope) -> Directive | None:
    """The line that shows signed requests (S3, a container registry); None if there is none.

    A cache turns HEAD into GET and removes ``Range``, which breaks the signature. Source:
    ngx_http_upstream_cache(), ngx_http_proxy_cache_headers.
    """
    whole = scope.effective("client_max_body_size")
    if whole is not None and whole.value in ("0", "0k", "0m", "0g"):
        return whole
    places = [level for level in scope.chain if level.name == "location" and level.args]
    lines = [scope.sets("proxy_pass"), *scope.effective_all("proxy_set_header")]
    names = (line for line in lines if line is not None and _SIGNED.search(" ".join(line.args)))
    return next(names, None) or next((p for p in places if p.args[-1].startswith("/v2/")), None)


_OWN = ("levels", "inactive")
_BY_HAND = ("loader_files", "manager_files")
"""Parameters of the cache loader and manager; they stay as the operator set them."""
_MEBIBYTE = 1 << 20


def file_bytes(decision: Decision) -> Evidence | None:
    """The mean file size in a cache decision; None for other decisions."""
    return next((item for item in decision.evidence if item.fact == FILE_BYTES_FACT), None)


_OF_SIZE = (UNKNOWN_DISK, NOT_SCANNED, MAY_HOLD_MORE, BY_KEYS, "the disk has room")
_BOUNDS = frozenset({"max_size", "min_free", "inactive"})
"""Parameters that make nginx remove entries."""


class OwnCache(NamedTuple):
    """A setting as a change to an existing ``proxy_cache_path``."""

    setting: Setting
    enlarged: str = ""
    """The reason for a larger zone, with the new size; empty if the zone is not enlarged."""
    beyond: str = ""
    """The risk that no zone that fits into memory has enough keys; empty if there is none."""


def with_own_words(s: Setting, line: Directive, mean: Evidence | None) -> OwnCache:
    """The setting as a change to ``line``.

    An assumed object size neither enlarges the zone nor sets a limit. If the line has room for more
    keys than decided, no limit is set either, since the cache may already hold more.
    """
    own = {arg.partition("=")[0]: arg.partition("=")[2] for arg in line.args[1:]}
    decided = {arg.partition("=")[0]: arg.partition("=")[2] for arg in s.args[1:]}
    kept = {key: value for key, value in decided.items() if key not in _OWN or key in own}
    kept |= {
        key: value for key, value in own.items() if key in (*_OWN, *_BY_HAND) or key not in decided
    }
    is_assumed = mean is None or mean.provenance == "assumed"
    by_keys = is_assumed or _zone_bytes(own) > _zone_bytes(decided)
    guesses = (UNKNOWN_DISK, NOT_SCANNED, MAY_HOLD_MORE, *([BY_KEYS] if by_keys else []))
    if any(map(s.reason.startswith, guesses)):
        # The existing cache may be larger: an assumption must not delete what exceeds it.
        kept = {k: v for k, v in kept.items() if k not in _BOUNDS}
        kept |= {k: v for k, v in own.items() if k in _BOUNDS}
        s = replace(s, reason=_without_size(s.reason))
    if UNSEEN_ROOM in s.reason and "use_temp_path" not in own:
        # On a full disk, a response that is now sent whole and not cached would be truncated.
        kept.pop("use_temp_path", None)
        s = replace(s, reason=_without_size(s.reason, UNSEEN_ROOM))
    enlarged = beyond = ""
    if "keys_zone" in own:
        name, _, current = own["keys_zone"].partition(":")
        wanted = decided["keys_zone"].partition(":")[2]
        have, need = parse_bytes(current), parse_bytes(wanted)
        each = None if is_assumed or mean is None else mean.value
        kept["keys_zone"] = own["keys_zone"]
        most = parse_bytes(decided.get("max_size", "")) or 0
        if have and need and isinstance(each, int | float) and each > 0:
            zone = f"{line.file}:{line.line} keys_zone={own['keys_zone']}"
            room = f"{zone} holds {_keys(have)} keys, but max_size has room for "
            room += f"{math.ceil(most / each)} files of {bytes_text(each)}"
            if have < need and _keys(have) * each < most:
                kept["keys_zone"] = f"{name}:{wanted}"
                enlarged = f"{room}: enlarge it to {wanted}"
            reached = _keys(max(have, need)) * each
            if reached < most:
                beyond = (
                    f"{room}; memory allows {need // _MEBIBYTE}m for keys: lower max_size to "
                    f"{bytes_text(reached)}"
                )
    kept |= {
        key: own[key]
        for key, value in kept.items()
        if key in own and key != "keys_zone" and is_alike(own[key], value)
    }
    words = [f"{key}={value}" if value else key for key, value in kept.items()]
    return OwnCache(replace(s, args=[s.args[0], *words]), enlarged, beyond)


def _without_size(reason: str, *beginnings: str) -> str:
    """The text of a reason without the parts (separated by ``; ``) that are about the size."""
    left_out = beginnings or _OF_SIZE
    return "; ".join(part for part in reason.split("; ") if not part.startswith(left_out))


def _zone_bytes(words: dict[str, str]) -> int:
    return parse_bytes(words.get("keys_zone", "").partition(":")[2]) or 0


def _keys(zone_bytes: int) -> int:
    return zone_bytes * KEYS_PER_MEBIBYTE // _MEBIBYTE
