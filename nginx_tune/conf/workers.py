"""Worker settings of a configuration: number, descriptors, thread pools, need for one worker.

The pool ``default`` exists if it is declared or if a line selects it by its constant name; a name
with variables declares nothing. The master opens log files and listening sockets, and each worker
inherits all of them, including those of other servers. Live streams, UDP sessions, and timers and
modules of Lua may work only with a single worker.

Source: ngx_thread_pool.c, ngx_http_core_set_aio; ngx_init_cycle (``open_files``, ``listening``),
ngx_conf_open_file.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.listeners import SocketName, Wildcards, gives_options, listeners, socket_name
from nginx_tune.conf.scopes import http_directives, scopes
from nginx_tune.conf.served import sends_no_files, served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.upstreams import Pass, passes
from nginx_tune.conf.values import parameter, parse_count
from nginx_tune.conf.variables import Variables

MOST_PROCESSES = 1024
"""Maximum number of workers. Source: NGX_MAX_PROCESSES."""


def single_process(tree: ConfTree) -> Directive | None:
    """The line that makes nginx run as a single process; None if there is none.

    Source: main() and ngx_single_process_cycle(), which also ignores ``worker_rlimit_nofile`` and
    ``worker_cpu_affinity``.
    """
    line = tree.main.first("master_process")
    return line if line is not None and line.value.lower() == "off" else None


def workers_in(tree: ConfTree, automatic: int | None, *, by_default: int | None = 1) -> int | None:
    """The number of processes that serve; None if not known.

    ``automatic`` is the number for ``auto`` on the host, ``by_default`` the number without a line.
    """
    if tree.is_part:
        return None
    if single_process(tree) is not None:
        return 1
    line = tree.main.first("worker_processes")
    if line is None:
        return by_default
    number = automatic if line.value == "auto" else parse_count(line.value)
    return None if number is None else max(1, min(MOST_PROCESSES, number))


def connections_in(tree: ConfTree, by_default: int) -> int | None:
    """The ``worker_connections`` in effect; None if not known.

    Source: ngx_event_connections(), which rejects a second line.
    """
    if tree.is_part:
        return None
    blocks = [line.block for line in tree.main.all("events") if line.block is not None]
    lines = [directive for block in blocks for directive in block.all("worker_connections")]
    return parse_count(lines[-1].value) if lines else by_default


def open_file_caches(tree: ConfTree) -> dict[Directive, int]:
    """The maximum entries of a worker's open file cache, by line; each entry holds a descriptor."""
    sending = (scope for scope in scopes(tree) if not sends_no_files(scope))
    lines = dict.fromkeys(scope.effective("open_file_cache") for scope in sending)
    return {
        line: parse_count(parameter(line.args, "max") or "") or 0
        for line in lines
        if line is not None and line.value.lower() != "off"
    }


def open_files_share(tree: ConfTree) -> float:
    """The files that may be open for each connection slot: 0, 0.5 or 1.

    A connection that is sent a file, also from a cache, needs one more descriptor. A proxied
    request has two slots, its client and its upstream, and perhaps a temporary file. Generated
    responses have no file, and a QUIC stream has a slot without a descriptor, which makes up for
    its file.
    Source: ngx_http_upstream_send_response(), ngx_http_read_client_request_body(),
    ngx_quic_create_stream().
    """
    if any(address.is_quic for address in listeners(tree)):
        return 0
    every = scopes(tree)
    passed = passes(every, Variables(tree))
    taken = {one.scope.own for one in passed}
    rooted = (scope for scope in every if scope.effective("root") or scope.effective("alias"))
    if served_paths(tree) or not all(
        scope.own in taken or sends_no_files(scope) for scope in rooted
    ):
        return 1
    return 0 if all(map(_buffers_nothing, passed)) else 0.5


def files_a_connection(tree: ConfTree) -> int:
    """1 if a connection may also need a descriptor for a file, else 0.

    A proxied request has two connections, and a file only if something is buffered. With QUIC the
    result is 0: a stream uses a connection slot without a descriptor, so its file needs none beyond
    the number of slots. Source: ngx_http_upstream_send_response(),
    ngx_http_read_client_request_body(), ngx_quic_create_stream().
    """
    if any(address.is_quic for address in listeners(tree)):
        return 0
    passed = passes(scopes(tree), Variables(tree))
    return int(not passed or bool(served_paths(tree)) or not all(map(_buffers_nothing, passed)))


def _buffers_nothing(one: Pass) -> bool:
    if one.module in ("grpc", "memcached"):
        return True
    return all(one.value(name) == "off" for name in ("buffering", "request_buffering"))


def descriptors_in(tree: ConfTree) -> int | None:
    """The descriptors set by ``worker_rlimit_nofile``; None without a line."""
    line = tree.main.first("worker_rlimit_nofile")
    if line is None or single_process(tree) is not None:
        return None
    return parse_count(line.value)


_LOGS = frozenset({"access_log", "error_log"})
_NO_FILES = ("off", "stderr", "memory:")


class KeptOpen(NamedTuple):
    """Numbers of descriptors that a worker inherits, by kind."""

    logs: int
    sockets: int
    """One socket per address and port. With ``reuseport``, each worker has as many sockets as there
    are workers (ngx_clone_listening; none is closed)."""


def kept_open(tree: ConfTree) -> KeptOpen:
    """Descriptors of distinct log files in all blocks and modules, and of listening sockets."""
    if not tree.names & {"access_log", "error_log", "open_log_file_cache", "listen"}:
        return KeptOpen(0, 0)
    files: set[str] = set()
    for_names = 0
    for line in tree.main.walk():
        if line.name in _LOGS and line.args:
            files |= {one for one in [_file(line, tree)] if one}
        elif line.name == "open_log_file_cache":
            # Logs with variables in their names are opened at run time; this is their cache.
            for_names += parse_count(parameter(line.args, "max") or "") or 0
    sockets = sum(_count_of(address.socket) for address in listeners(tree) if address.has_socket)
    return KeptOpen(len(files) + for_names, sockets + _other_sockets(tree))


def _file(line: Directive, tree: ConfTree) -> str:
    """A key for a log's descriptor; empty for a log without one."""
    path = line.value
    if path.startswith("syslog:"):  # one socket per line (ngx_syslog_process_conf)
        return f"{line.file}:{line.start} {path}"
    if path.startswith(_NO_FILES) or "$" in path:
        return ""
    return tree.opened_name(path)


def _other_sockets(tree: ConfTree) -> int:
    """The number of sockets of ``stream`` and ``mail``."""
    found = {
        (socket_name(line.value), "udp" in line.args[1:])
        for module in ("stream", "mail")
        for part in tree.main.all(module)
        for line in (part.block or Block([])).walk()
        if line.name == "listen" and line.args
    }
    return sum(_count_of(name) for name, _ in found)


def _count_of(name: SocketName) -> int:
    """The number of sockets: one per port of a range."""
    return len(name.ports) or 1


DEFAULT = "default"
DEFAULT_THREADS = 32
DEFAULT_QUEUE = 65536


class Pool(NamedTuple):
    """A declared pool; numbers are None if the line does not have them."""

    name: str
    threads: int | None
    max_queue: int | None
    directive: Directive


def declared_pools(tree: ConfTree) -> dict[str, Pool]:
    """The ``thread_pool`` lines of the main context by name."""
    pools = {}
    for directive in tree.main.all("thread_pool"):
        values = dict(arg.split("=", 1) for arg in directive.args[1:] if "=" in arg)
        pools[directive.value] = Pool(
            directive.value,
            _number(values.get("threads")),
            _number(values.get("max_queue", str(DEFAULT_QUEUE))),
            directive,
        )
    return pools


def asked_pool(aio: Directive | None) -> str | None:
    """The pool name (variables unexpanded) of an ``aio`` line; None without ``threads``."""
    if aio is None or not aio.args:
        return None
    kind, equals, name = aio.args[0].partition("=")
    if kind != "threads":
        return None
    return name if equals else DEFAULT


def aio_lines(tree: ConfTree) -> list[tuple[Directive, str]]:
    """Every ``aio threads`` line inside http with its pool name."""
    return [
        (directive, name)
        for directive in http_directives(tree)
        if directive.name == "aio" and (name := asked_pool(directive)) is not None
    ]


def pool_names(tree: ConfTree) -> set[str]:
    """The pools that exist when nginx runs."""
    names = set(declared_pools(tree))
    if any(name == DEFAULT for _, name in aio_lines(tree)):
        names.add(DEFAULT)
    return names


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else None


_LUA = re.compile(r"[a-z_]+_by_lua(?:_block|_file)?")
_AT_START = re.compile(r"init_worker_by_lua(?:_block|_file)?")


class OneWorker(NamedTuple):
    """A line that works only with a single worker."""

    why: str
    is_broken: bool
    """True if more workers would give wrong responses; otherwise the operator must decide."""


def why_one_worker(tree: ConfTree) -> OneWorker | None:
    """The first line that would not work with several workers; None if there is none.

    Source: lua-nginx-module, Data Sharing within an Nginx Worker: each worker loads its own modules
    and runs ``init_worker_by_lua``; ``lua_shared_dict`` is shared by all.
    """
    if (line := streams_of_one_worker(tree)) is not None:
        return OneWorker(
            f"{_place(line)} lacks rtmp_auto_push on, so players on workers other than the "
            "publisher's get no stream",
            is_broken=True,
        )
    if (line := sessions_of_one_worker(tree)) is not None:
        return OneWorker(
            f"{_place(line)} is without reuseport, so that each worker would get some of a "
            "client's datagrams and begin sessions of its own",
            is_broken=True,
        )
    if (line := _first(tree, _AT_START)) is not None:
        return OneWorker(
            f"{line.file}:{line.line} {line.name} runs in each worker: its timers would run once "
            "per worker",
            is_broken=False,
        )
    if (line := _first(tree, _LUA)) is not None:
        return OneWorker(
            f"{line.file}:{line.line} {line.name}: each worker would have its own variables of "
            "Lua modules; only a lua_shared_dict is shared",
            is_broken=False,
        )
    return None


def _first(tree: ConfTree, name: re.Pattern[str]) -> Directive | None:
    names = frozenset(filter(name.fullmatch, tree.names))
    return (
        next((directive for directive in tree.main.walk() if directive.name in names), None)
        if names
        else None
    )


def _place(line: Directive) -> str:
    return f"{line.file}:{line.line} {line}"


def streams_of_one_worker(tree: ConfTree) -> Directive | None:
    """The ``rtmp`` block whose players must be on the publisher's worker; None if there is none.

    Source: nginx-rtmp-module, ngx_rtmp_auto_push_module.c: ``rtmp_auto_push on`` in main relays
    each stream to the other workers; it is off by default.
    """
    push = tree.main.first("rtmp_auto_push")
    if push is not None and push.value.lower() == "on":
        return None
    return tree.main.first("rtmp")


@dataclass
class _Address:
    """A UDP address, which several servers may share."""

    lines: list[Directive] = field(default_factory=list)
    kept: Directive | None = None
    """The line of a server on this address whose sessions have more than one exchange."""

    @property
    def has_options(self) -> bool:
        return any(map(gives_options, self.lines))

    @property
    def has_reuseport(self) -> bool:
        return any("reuseport" in line.args[1:] for line in self.lines)


def sessions_of_one_worker(tree: ConfTree) -> Directive | None:
    """The UDP ``listen`` whose sessions several workers would split; None if there is none.

    If workers share a socket, any of them may read the next datagram, and it knows only its own
    sessions. A client then has sessions in several workers, each with its own port to the upstream,
    which knows only the first port (OpenVPN, DTLS, SIP, TFTP). With ``reuseport``, each worker has
    its own socket, and the kernel keeps a client's address on one of them. Nothing is split if a
    server does not proxy (``return``), or if each exchange is a session.

    Source: ngx_event_recvmsg(), ngx_lookup_udp_connection() (each worker has its own tree of a
    listener's sessions), ngx_clone_listening(); socket(7), SO_REUSEPORT.
    """
    found: dict[SocketName, _Address] = {}
    for stream in tree.main.all("stream"):
        for server in _body(stream).all("server"):
            for line in _body(server).all("listen"):
                if "udp" in line.args[1:]:
                    address = found.setdefault(socket_name(line.value), _Address())
                    address.lines.append(line)
                    if address.kept is None and _keeps_sessions(server, stream):
                        address.kept = line
    for name, one in found.items():
        if one.kept and not any(socket.has_reuseport for socket in _sockets(name, found)):
            return one.kept
    return None


def _sockets(name: SocketName, found: dict[SocketName, _Address]) -> list[_Address]:
    """The sockets bound for an address: its own, or a wildcard without separate options.

    Source: ngx_stream_optimize_servers() (``bind_wildcard``).
    """
    own = found[name]
    if own.has_options:
        return [own]
    return [address for other, address in found.items() if Wildcards([other]).cover(name)] or [own]


def _keeps_sessions(server: Directive, stream: Directive) -> bool:
    """True if a client's next datagram belongs to the same session.

    Source: ngx_stream_proxy_test_finalize(): with ``proxy_requests 1`` the next datagram starts
    another session; with at most one response each, the session ends with the response.
    """
    if _body(server).first("proxy_pass") is None:
        return False
    requests, responses = (
        _body(server).first(name) or _body(stream).first(name)
        for name in ("proxy_requests", "proxy_responses")
    )
    if requests is not None and requests.value == "1":
        return False
    return responses is None or responses.value not in ("0", "1")


def _body(directive: Directive) -> Block:
    return directive.block if directive.block is not None else Block([])
