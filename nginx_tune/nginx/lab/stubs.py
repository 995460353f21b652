"""Stubs of the servers that a configuration uses: upstreams, resolvers, system logs.

The stub of HTTP servers is a bare nginx of the same build, so that it is never the bottleneck.
Other stubs are in ``stub_server``. Both kinds answer every request at once with 200 and a body of
``BODY_BYTES``. They end with the sandbox.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.host.programs import own_module, run_program, start_program, start_text_program
from nginx_tune.nginx.lab.network import make_certificate, open_outside
from nginx_tune.nginx.lab.operation import Outgoing, Stubs
from nginx_tune.nginx.lab.stub_server import BODY_BYTES, Endpoint

_LISTEN: dict[str, str] = {"http": "", "https": " ssl", "grpc": " http2", "grpcs": " ssl http2"}
_PATIENCE_SECONDS = 10.0


def start_stubs(
    wanted: Sequence[Outgoing],
    binary: str,
    directory: Path,
    cpus: Sequence[int],
    *,
    echoes: bool = False,
) -> Stubs:
    """Start the stubs of servers; with ``echoes``, HTTP stubs take upgraded connections."""
    echo = _start_echo(directory, cpus) if echoes and wanted else ""
    silent: dict[str, str] = {}
    sockets = {
        path: str(directory / f"socket-{number}")
        for number, path in enumerate(dict.fromkeys(s.path for s in wanted if s.path))
    }
    here = [s for s in wanted if s.is_here and (":" not in s.address or _has_ipv6())]
    there = [s for s in wanted if not s.is_here]
    # Not at the original path, where there may be a socket of the host.
    ours = [msgspec.structs.replace(s, path=sockets.get(s.path, "")) for s in here]
    started = _start(ours, binary, directory / "here", cpus, silent, echo=echo) if here else []
    answering = [s for s, own in zip(here, ours, strict=True) if own in started]
    if there:
        outside, reason = open_outside()
        if outside is None:
            silent |= {server.name: reason for server in there}
        else:
            for address in dict.fromkeys(s.answers_from for s in there if s.answers_from):
                with contextlib.suppress(UndecidedError):  # a kernel without IPv6
                    outside.take(address)
            answering += outside.run(
                lambda: _start(there, binary, directory / "there", cpus, silent, echo=echo)
            )
    reached = {server.path for server in answering}
    found = {path: ours for path, ours in sockets.items() if path in reached}
    return Stubs(answering=answering, silent=silent, sockets=found)


def _start(
    wanted: Sequence[Outgoing],
    binary: str,
    directory: Path,
    cpus: Sequence[int],
    silent: dict[str, str],
    *,
    echo: str,
) -> list[Outgoing]:
    """Start the stubs in this network, and return the servers whose stubs answer."""
    directory.mkdir(parents=True)
    places: dict[_Place, Outgoing] = {}
    for server in wanted:
        first = places.setdefault(_place(server), server)
        if first.protocol != server.protocol and server.name not in silent:
            where = "at its path" if server.path else "on its port"
            silent[server.name] = f"{first.protocol} is spoken {where}"
    answering: list[Outgoing] = []
    web = [server for server in places.values() if server.protocol in _LISTEN]
    others = [server for server in places.values() if server.protocol not in _LISTEN]
    for is_web, part in ((True, web), (False, others)):
        try:
            if part and is_web:
                _start_web(part, binary, directory, cpus, echo)
            elif part:
                _start_others(part, cpus)
        except (NginxTuneError, OSError) as error:
            reason = error.message if isinstance(error, NginxTuneError) else str(error)
            silent |= {server.name: reason for server in part}
            continue
        answering += part
    kinds = {(_place(server), server.protocol) for server in answering}
    return [server for server in wanted if (_place(server), server.protocol) in kinds]


_Place = tuple[str, int, str, bool]


def _place(server: Outgoing) -> _Place:
    """The place where a stub listens; datagrams have ports of their own."""
    is_datagram = not server.path and server.protocol in {"dns", "syslog"}
    return (server.address or server.answers_from, server.port, server.path, is_datagram)


def _start_echo(directory: Path, cpus: Sequence[int]) -> str:
    """Start the echo for upgraded connections, and return the path of its socket."""
    directory.mkdir(parents=True, exist_ok=True)
    path = str(directory / "echo")
    _run_stubs([Endpoint(protocol="echo", path=path)], cpus)
    return path


def _start_web(
    wanted: Sequence[Outgoing], binary: str, directory: Path, cpus: Sequence[int], echo: str
) -> None:
    conf = directory / "nginx.conf"
    tls = any(server.protocol in {"https", "grpcs"} for server in wanted)
    certificate = make_certificate(directory, names=["localhost"]) if tls else None
    secure = (
        f"ssl_certificate {certificate.certificate}; ssl_certificate_key {certificate.key};"
        if certificate
        else ""
    )
    listens = "".join(
        f" listen {place}{_LISTEN[server.protocol]};"
        for server in wanted
        for place in _places(server)
    )
    conf.write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log stderr error;\n"
        "events { worker_connections 8192; }\n"
        f"http {{ {_temporary_paths(binary, directory)} access_log off;\n"
        "keepalive_timeout 1h; keepalive_requests 1000000000;\n"
        f"server {{{listens} {secure} default_type application/octet-stream;\n"
        f"{_upgraded(echo) if echo else ''}"
        f'return 200 "{"x" * BODY_BYTES}"; }} }}\n'
    )
    stderr_path = directory / "stderr"
    with stderr_path.open("wb") as stderr:
        process = start_program(
            [binary, "-c", str(conf)],
            is_checked=True,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
        )
    _settle(process, cpus)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not _accepts(wanted[0]):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            lines = stderr_path.read_text(errors="replace").strip().splitlines()
            emergencies = [line for line in lines if "[emerg]" in line] or lines or ["no message"]
            raise UndecidedError(f"the stub ended: {emergencies[0].rpartition('] ')[2]}")
        time.sleep(0.01)


def _temporary_paths(binary: str, directory: Path) -> str:
    """Directives that put nginx's temporary directories into ours, as the host's are read-only."""
    flags = run_program([binary, "-V"], is_checked=True).stderr.decode(errors="replace")
    modules = [
        name
        for name in ("proxy", "fastcgi", "uwsgi", "scgi")
        if f"--without-http_{name}_module" not in flags
    ]
    return "".join(f"{name}_temp_path {directory}/{name};" for name in ("client_body", *modules))


def _upgraded(echo: str) -> str:
    """The directives in a server block that pass upgraded connections to the echo."""
    return (
        "if ($http_upgrade) { rewrite ^ /.upgraded last; }\n"
        f"location = /.upgraded {{ internal; proxy_pass http://unix:{echo}; proxy_read_timeout 1h;"
        " proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;"
        " proxy_set_header Connection upgrade; }\n"
    )


def _places(server: Outgoing) -> Iterable[str]:
    if server.path:
        return [f"unix:{server.path}"]
    if server.address:
        return [
            f"[{server.address}]:{server.port}"
            if ":" in server.address
            else f"{server.address}:{server.port}"
        ]
    both = [f"*:{server.port}", f"[::]:{server.port}"]
    return both if _has_ipv6() else both[:1]


def _has_ipv6() -> bool:
    """True if this thread's network has an IPv6 address."""
    with contextlib.suppress(OSError):
        return bool(Path("/proc/thread-self/net/if_inet6").read_text())
    return False


def _accepts(server: Outgoing) -> bool:
    with contextlib.suppress(OSError):
        if server.path:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(server.path)
        else:
            place = (server.address or "127.0.0.1", server.port)
            socket.create_connection(place, timeout=1.0).close()
        return True
    return False


def _start_others(wanted: Sequence[Outgoing], cpus: Sequence[int]) -> None:
    endpoints = [
        Endpoint(
            protocol=server.protocol,  # type: ignore[arg-type]  # not of the web's
            address=server.address or server.answers_from,
            port=server.port,
            path=server.path,
        )
        for server in wanted
    ]
    _run_stubs(endpoints, cpus)


def _run_stubs(endpoints: Sequence[Endpoint], cpus: Sequence[int]) -> None:
    process = start_text_program(
        own_module("nginx_tune.nginx.lab.stub_server", msgspec.json.encode(endpoints).decode()),
        is_checked=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _settle(process, cpus)
    if process.stdout is None or process.stdout.readline() != "ready\n":
        process.kill()
        errors = "" if process.stderr is None else process.stderr.read().strip()
        why = errors.splitlines()[-1] if errors else "no message"
        raise UndecidedError(f"the stub has exited: {why}")


def _settle(process: subprocess.Popen[bytes] | subprocess.Popen[str], cpus: Sequence[int]) -> None:
    """Move the process to the CPUs of the clients, away from nginx's."""
    if cpus:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, cpus)
