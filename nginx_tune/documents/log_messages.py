"""The messages of nginx's error log that name a cause, in one table.

A row has a regular expression for the message, without the connection number before it and the
request's details after it. It also has the level, cause, counters, advice, nginx's source file, and
the releases with the message. Verified in the sources of nginx 1.18.0 to 1.31.4.
"""

from typing import Literal, NamedTuple

from nginx_tune.documents.base import Natural, Part

Level = Literal["emerg", "alert", "crit", "error", "warn"]
Where = Literal["main", "pools", "zones", "requests", "upstreams", "limits"]
"""The log that gets the message. ``main``: the main context's log; ``pools`` and ``zones``: the
same log, if there are thread pools or shared zones. ``requests``: the log of any request;
``upstreams``: of a proxied request; ``limits``: of a request under a limit."""


class LoggedMessage(Part, frozen=True, kw_only=True):
    """Lines of error logs with a message of the table."""

    id: str
    name: str = ""
    """The subject: a zone, a pool, an address."""
    lines: Natural


class LogMessage(NamedTuple):
    """A message, or a kind of failed system call."""

    id: str
    pattern: str
    """A pattern that matches from the message's start; its group ``name`` is the subject."""
    level: Level
    cause: str
    """An id of ``observation``; empty for harmless messages."""
    counts: tuple[str, ...]
    """Fields of ``ServerMeasurement`` that count the message."""
    where: Where
    tells: str
    """The words that follow the number of lines."""
    change: str
    """The directive to change, or other advice."""
    source: str
    since: str = "1.18.0"
    """The first release with the message; 1.18.0 for older messages too."""
    older: str = ""
    """The level in older releases, such as ``alert before 1.23.2``."""
    errors: tuple[int, ...] = ()
    """Error numbers of failed calls: of any call, or of the calls that the pattern matches."""


_FILES = "src/os/unix/ngx_files.c"
_CONNECT = "src/event/ngx_event_connect.c"
_UPSTREAM = "src/http/ngx_http_upstream.c"
_CALL = r"\w+\(\)(?: to [^\"]+?)? failed \("
_PEER = r"(?: to| from|reading) upstream$"
"""The end of the messages that count. Messages on upgraded connections, which close by design, end
in other words."""


def _zone(id_: str, words: str, change: str, source: str, *, what: str = "node",
          level: Level = "alert", since: str = "1.18.0",
          older: str = "") -> LogMessage:  # fmt: skip
    return LogMessage(
        id_,
        rf'(?:could not allocate {what}|ngx_slab_alloc\(\) failed: no memory) in {words} '
        r'"(?P<name>[^"]*)"',
        level, "shared-zone-full", ("zones_exhausted",), "zones",
        f"found no room in the {words}", change, source, since, older,
    )  # fmt: skip


def _failed(id_: str, pattern: str, tells: str, change: str, source: str, *,
            level: Level = "error", timeouts: bool = False) -> LogMessage:  # fmt: skip
    counts = ("upstream_failures", "upstream_timeouts") if timeouts else ("upstream_failures",)
    return LogMessage(id_, pattern, level, "failing-upstream", counts, "upstreams", tells, change,
                      source)  # fmt: skip


LOG_MESSAGES = (
    LogMessage(
        "pool-overflow", r'thread pool "(?P<name>[^"]{1,200})" queue overflow: -?\d+ tasks waiting',
        "error", "pool-queue-overflow", ("pool_overflow",), "pools",
        "tasks were refused by the full queue of a thread pool",
        "max_queue and threads of thread_pool", "src/core/ngx_thread_pool.c"),
    LogMessage(
        "connections-exhausted", r"(?P<name>\d{1,10}) worker_connections are not enough$",
        "alert", "connections-exhausted", ("connections_exhausted",), "main",
        "connections were closed: all worker_connections were in use", "worker_connections",
        "src/core/ngx_connection.c"),
    LogMessage(
        "connections-reused", r"\d{1,10} worker_connections are not enough, reusing connections",
        "warn", "connections-exhausted", ("connections_reused",), "main",
        "times idle connections were closed to make room", "worker_connections",
        "src/core/ngx_connection.c", since="1.19.2"),
    LogMessage(
        "operation-too-slow", r"(?:thread|aio) operation took too long", "alert", "",
        ("operations_too_slow",), "requests", "operations on files took more than a minute",
        "the disk", "src/http/ngx_http_copy_filter_module.c", since="1.25.4"),
    LogMessage(
        "limit-req", r'limiting requests, excess: \d+\.\d+ by zone "(?P<name>[^"]*)"',
        "error", "refused-by-limit", ("refused_by_limit",), "limits",
        "requests were refused by limit_req", "rate and burst of limit_req",
        "src/http/modules/ngx_http_limit_req_module.c"),
    LogMessage(
        "limit-conn", r'limiting connections by zone "(?P<name>[^"]*)"', "error",
        "refused-by-limit", ("refused_by_limit",), "limits",
        "connections were refused by limit_conn", "limit_conn",
        "src/http/modules/ngx_http_limit_conn_module.c"),
    LogMessage(
        "body-too-large", r"client intended to send too large (?:chunked )?body", "error",
        "refused-by-limit", ("refused_by_limit",), "limits",
        "requests had a body larger than client_max_body_size", "client_max_body_size",
        "src/http/ngx_http_core_module.c"),
    # Shared memory zones.
    _zone("cache-keys-zone", "cache keys zone",
          "a larger size in keys_zone=NAME:SIZE of proxy_cache_path (fastcgi_, uwsgi_ and "
          "scgi_cache_path alike): a megabyte holds some 8,000 keys",
          "src/http/ngx_http_file_cache.c"),
    _zone("limit-req-zone", "limit_req zone", "a larger size in zone=NAME:SIZE of limit_req_zone",
          "src/http/modules/ngx_http_limit_req_module.c"),
    _zone("limit-conn-zone", "limit_conn_zone",
          "a larger size in zone=NAME:SIZE of limit_conn_zone",
          "src/http/modules/ngx_http_limit_conn_module.c", level="crit"),
    _zone("ssl-session-cache", "SSL session shared cache",
          "a larger size in ssl_session_cache shared:NAME:SIZE (a megabyte holds some 4,000 "
          "sessions), or a shorter ssl_session_timeout", "src/event/ngx_event_openssl.c",
          what="new session", level="warn", older="alert before 1.23.2"),
    _zone("ssl-ocsp-cache", "OCSP cache", "a larger size in ssl_ocsp_cache shared:NAME:SIZE",
          "src/event/ngx_event_openssl_stapling.c", what="new entry", since="1.19.0"),
    LogMessage(
        "sticky-zone-full",
        r'could not allocate node in sticky session zone "(?P<name>[^"]*)", expiring', "warn",
        "shared-zone-full", ("zones_exhausted",), "zones",
        "sessions replaced others in the full sticky session zone",
        "a larger size in zone=NAME:SIZE of sticky learn",
        "src/http/modules/ngx_http_upstream_sticky_module.c", since="1.29.6"),
    _zone("sticky-zone", "sticky session zone", "a larger size in zone=NAME:SIZE of sticky learn",
          "src/http/modules/ngx_http_upstream_sticky_module.c", since="1.29.6"),
    _zone("upstream-zone", "upstream zone",
          "a larger size in zone NAME SIZE of the upstream: servers of names that are resolved "
          "anew take room too", "src/http/modules/ngx_http_upstream_zone_module.c", level="crit"),
    LogMessage(
        "other-zone",
        r"(?:ngx_slab_alloc\(\) failed: no memory|could not allocate [a-z ]{1,40})"
        r'(?: in [\w ]{1,60})? "(?P<name>[^"]*)"', "crit",
        "shared-zone-full", ("zones_exhausted",), "zones", "found no room in the shared zone",
        "a larger size where the zone is declared", "src/core/ngx_slab.c"),
    LogMessage(
        "unnamed-zone", r"ngx_slab_alloc\(\) failed: no memory$", "crit", "shared-zone-full",
        ("zones_exhausted",), "zones", "found no room in a shared zone",
        "a larger size where a module declares its zone", "src/core/ngx_slab.c"),
    # Calls of any kind that the kernel refused.
    LogMessage(
        "read-error", "", "crit", "disk-read-errors", ("read_errors",),
        "requests", "calls failed with an input/output error", "the disk", _FILES, errors=(5,)),
    LogMessage(
        "descriptors-of-process", "", "crit", "descriptors-exhausted",
        ("descriptors_exhausted",), "requests",
        "calls got no descriptor (Too many open files)", "worker_rlimit_nofile",
        "src/event/ngx_event_accept.c", errors=(24,)),
    LogMessage(
        "descriptors-of-host", "", "crit", "descriptors-exhausted",
        ("descriptors_exhausted",), "requests",
        "calls got no descriptor (Too many open files in system)", "the host's fs.file-max",
        "src/event/ngx_event_accept.c", errors=(23,)),
    LogMessage(
        "epoll-watches", r"epoll_ctl\(", "alert", "descriptors-exhausted",
        ("descriptors_exhausted",), "requests",
        "connections could not be watched: no space for more epoll watches",
        "the host's fs.epoll.max_user_watches", "src/event/modules/ngx_epoll_module.c",
        errors=(28,)),
    LogMessage(
        "no-space", "", "crit", "no-space-left", ("space_exhausted",),
        "requests", "writes found no space left on the device",
        "max_size and min_free of proxy_cache_path, the temp paths, the logs' rotation", _FILES,
        errors=(28,)),
    LogMessage(
        "no-quota", "", "crit", "no-space-left", ("space_exhausted",),
        "requests", "writes exceeded the user's disk quota", "the quota, or max_size of "
        "proxy_cache_path", _FILES, errors=(122,)),
    LogMessage(
        "short-write", r'\w+\(\) (?:(?:to )?"[^"]*" )?(?:has written only|was incomplete:) '
        r"-?\d+ of \d+", "crit",
        "no-space-left", ("space_exhausted",), "requests", "writes were cut short",
        "the space on that device", _FILES),
    LogMessage(
        "no-memory", "", "crit", "memory-exhausted",
        ("memory_exhausted",), "requests", "calls got no memory",
        "the memory limit of nginx's unit or container; fewer or smaller buffers",
        "src/os/unix/ngx_alloc.c", errors=(12,105)),
    LogMessage(
        "worker-killed", r"(?:worker|cache manager|cache loader) process \d+ exited on signal "
        r"(?P<name>\d+)", "alert", "worker-crashed", ("workers_crashed",), "main",
        "processes ended on a signal (9: killed, by the OOM killer mostly; 11, 6: a fault)",
        "the memory limit, or the module that the core dump names", "src/os/unix/ngx_process.c"),
    LogMessage(
        "worker-fatal", r"worker process \d+ exited with fatal code (?P<name>\d+)", "alert",
        "worker-crashed", ("workers_crashed",), "main",
        "processes ended and are not started again",
        "the fault that the preceding line names", "src/os/unix/ngx_process.c"),
    # Missing local ports, then other failures of upstreams.
    LogMessage(
        "ports-used-up-ipv6", r"connect\(\) to (?P<name>\[[^ ]*) failed \((?:99|49): ", "crit",
        "local-ports-exhausted", ("ports_exhausted",), "upstreams",
        "connections to an upstream got no local port",
        "keepalive in the upstream", _CONNECT),
    _failed("no-ipv6-address", r"connect\(\) to (?P<name>\[[^ ]*) failed \((?:99|49): ",
            "connections found no IPv6 address of this host",
            "127.0.0.1 for localhost, or ipv6=off of resolver", _CONNECT, level="crit"),
    LogMessage(
        "ports-used-up", r"connect\(\) to (?P<name>[^ ]*) failed \((?:99|49): ", "crit",
        "local-ports-exhausted", ("ports_exhausted",), "upstreams",
        "connections to an upstream got no local port (Cannot assign requested address)",
        "keepalive in the upstream", _CONNECT),
    LogMessage(
        "bound-ports-used-up", r"bind\((?P<name>[^ ]*)\) failed \((?:98|48): ", "crit",
        "local-ports-exhausted", ("ports_exhausted",), "upstreams",
        "connections found no free port at the address of proxy_bind",
        "keepalive in the upstream, or several addresses for proxy_bind", _CONNECT),
    _failed("bind-not-ours", r"bind\((?P<name>[^ ]*)\) failed \((?:99|49): ",
            "connections were to use a source address that this host does not have", "proxy_bind",
            _CONNECT, level="crit"),
    _failed("no-live-upstreams", r"no live upstreams while connecting to upstream$",
            "requests found every server of the upstream marked as failed",
            "max_fails and fail_timeout of its servers, and why they fail", _UPSTREAM),
    _failed("upstream-backlog", rf"connect\(\) to (?P<name>unix:[^ ]*) failed \(11: .*{_PEER}",
            "connections met a full listen queue of the upstream's socket",
            "the upstream's backlog (listen.backlog, somaxconn) and its processes "
            "(pm.max_children)", _CONNECT),
    _failed("upstream-socket", rf"connect\(\) to (?P<name>unix:[^ ]*) failed \((?:2|13): .*{_PEER}",
            "connections failed: the socket file is missing, or nginx's user may not use it",
            "the path and the permissions of the upstream's socket", _CONNECT, level="crit"),
    _failed("upstream-refused", rf"connect\(\)(?: to \S+)? failed \((?:111|61): .*{_PEER}",
            "connections were refused", "whether the upstream runs, and listens there", _UPSTREAM),
    _failed("upstream-unreachable",
            rf"connect\(\)(?: to \S+)? failed \((?:100|101|112|113|51|64|65): .*{_PEER}",
            "upstreams were not reachable", "the route or the firewall to the upstream", _CONNECT),
    _failed("upstream-connect-timeout", rf"upstream timed out \(.* while connecting{_PEER}",
            "connections to an upstream took longer than proxy_connect_timeout",
            "the upstream's listen queue, or proxy_connect_timeout", _UPSTREAM, timeouts=True),
    _failed("upstream-send-timeout", rf"upstream timed out \(.* while sending .*{_PEER}",
            "requests were not read by the upstream within "
            "proxy_send_timeout", "proxy_send_timeout", _UPSTREAM,
            timeouts=True),
    _failed("upstream-read-timeout", rf"upstream timed out \(.*{_PEER}",
            "answers did not come within proxy_read_timeout",
            "the upstream's work, or proxy_read_timeout", _UPSTREAM, timeouts=True),
    LogMessage(
        "upgraded-timeout", r"upstream timed out \(", "error", "", ("upstream_timeouts",),
        "upstreams", "upgraded connections were silent for proxy_read_timeout",
        "proxy_read_timeout", _UPSTREAM),
    _failed("upstream-closed", rf"upstream prematurely closed .*{_PEER}",
            "upstreams closed the connection before the end of their answer",
            "the upstream's idle time, to more than keepalive_timeout in the upstream block; see "
            "its own log", _UPSTREAM),
    _failed("upstream-header-too-big", rf"upstream sent too big header.*{_PEER}",
            "answers had a header larger than the buffer",
            "proxy_buffer_size, and proxy_buffers to four of that size", _UPSTREAM),
    _failed("upstream-invalid", r"upstream sent (?:invalid|no valid|unsupported|unexpected|"
            rf"duplicate|more data than|too many|too large) .*{_PEER}",
            "answers violated the protocol", "whether proxy_pass has the upstream's protocol",
            "src/http/modules/ngx_http_proxy_module.c"),
    _failed("upstream-tls", r"(?:(?:SSL_do_handshake\(\) failed|peer closed connection in SSL "
            r"handshake).* while SSL handshaking to upstream$|upstream SSL certificate )",
            "TLS handshakes with an upstream failed",
            "proxy_ssl_name, proxy_ssl_server_name, proxy_ssl_trusted_certificate, "
            "proxy_ssl_protocols", _UPSTREAM),
    _failed("upstream-reset", rf"{_CALL}(?:104|54|32): .*{_PEER}",
            "connections were reset by an upstream",
            "the upstream's idle time, to more than keepalive_timeout in the upstream block; see "
            "its own log", "src/os/unix/ngx_recv.c"),
    _failed("upstream-call", rf"{_CALL}.*{_PEER}", "calls failed while talking to an upstream",
            "the fault that the lines name", _UPSTREAM),
    LogMessage(
        "not-resolved", r"(?:service )?(?P<name>\S+)(?: of \S+)? could not be resolved \(",
        "error", "", ("resolver_failures",), "upstreams", "names could not be resolved",
        "resolver and resolver_timeout", _UPSTREAM),
    # Data that is moved to a disk: harmless unless there is much of it.
    LogMessage(
        "response-spilled", r"an upstream response is buffered to a temporary file", "warn",
        "spilled-to-disk", ("spilled_to_disk",), "upstreams",
        "answers did not fit their buffers and went to a temporary file",
        "proxy_buffers and proxy_busy_buffers_size, or proxy_max_temp_file_size 0", _UPSTREAM),
    LogMessage(
        "body-spilled", r"a client request body is buffered to a temporary file", "warn",
        "spilled-to-disk", ("spilled_to_disk",), "requests",
        "request bodies did not fit their buffer and went to a temporary file",
        "client_body_buffer_size, or proxy_request_buffering off",
        "src/http/ngx_http_request_body.c"),
)  # fmt: skip
"""The messages in the order of the search; the first match counts. The kernel has the same error
for a missing port and a missing address, so the host's addresses decide on ``no-ipv6-address``."""

MESSAGES_BY_ID = {message.id: message for message in LOG_MESSAGES}
