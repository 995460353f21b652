"""The parameters of directives that take many: of which version each is, tried on real ones.

Source: ngx_http_core_listen, ngx_http_upstream_server, ngx_http_file_cache_set_slot; a test tries
        each on every version that is at hand.
"""

from __future__ import annotations

from collections.abc import Mapping

Version = tuple[int, ...]

_ALWAYS: Version = (0,)
COMMERCIAL: Version = (9999,)
"""Only the commercial nginx, and forks, have it."""

_LISTEN: Mapping[str, Version] = {
    **dict.fromkeys(
        [
            "default_server",
            "default",
            "bind",
            "setfib=",
            "fastopen=",
            "backlog=",
            "rcvbuf=",
            "sndbuf=",
            "accept_filter=",
            "deferred",
            "ipv6only=",
            "reuseport",
            "ssl",
            "http2",
            "spdy",
            "so_keepalive=",
            "proxy_protocol",
        ],
        _ALWAYS,
    ),
    "quic": (1, 25, 0),
    "http3": COMMERCIAL,
    "multipath": (1, 29, 7),
}
_SERVER: Mapping[str, Version] = {
    **dict.fromkeys(
        ["weight=", "max_conns=", "max_fails=", "fail_timeout=", "backup", "down"], _ALWAYS
    ),
    "resolve": (1, 27, 3),
    "service=": (1, 27, 3),
    **dict.fromkeys(["route=", "drain", "slow_start=", "id=", "sid="], COMMERCIAL),
}
_CACHE_PATH: Mapping[str, Version] = {
    **dict.fromkeys(
        [
            "levels=",
            "use_temp_path=",
            "keys_zone=",
            "inactive=",
            "max_size=",
            "loader_files=",
            "loader_sleep=",
            "loader_threshold=",
            "manager_files=",
            "manager_sleep=",
            "manager_threshold=",
        ],
        _ALWAYS,
    ),
    "min_free=": (1, 19, 1),
    **dict.fromkeys(["purger=", "purger_files=", "purger_sleep=", "purger_threshold="], COMMERCIAL),
}

PARAMETERS: Mapping[tuple[str, str], Mapping[str, Version]] = {
    ("listen", "server"): _LISTEN,
    ("server", "upstream"): _SERVER,
    **{
        (f"{module}_cache_path", "http"): _CACHE_PATH
        for module in ("proxy", "fastcgi", "uwsgi", "scgi")
    },
}
"""By the directive and its context; the first argument is no parameter."""


def parameter_since(directive: str, context: str, argument: str) -> Version | None:
    """The first version that has the parameter; null for one that nobody has."""
    known = PARAMETERS[directive, context]
    name, equals, _ = argument.partition("=")
    return known.get(name + equals)
