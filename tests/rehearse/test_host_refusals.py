"""What this host refuses of a new configuration: held against the real nginx, started with it."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from nginx_versions import find_nginx
from started import number_in, reload, until, workers_of

from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.host.live import LiveHost
from nginx_tune.host.live_network import BoundSocket, Holder
from nginx_tune.nginx.lab.network import make_certificate
from nginx_tune.nginx.reload.address import Binding, bindings_of, in_the_way, may_share
from nginx_tune.nginx.reload.host_refusals import masters_of, refused_here, taken_here
from nginx_tune.nginx.subject import ConfigurationFiles

SERVES = "location / { return 204; }"


def conf(place: Path, name: str, *, listen: str = "", http: str = "", top: str = "") -> Path:
    temporary = " ".join(
        f"{one}_temp_path {place}/{one};"
        for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        if f"{one}_temp_path" not in http
    )
    pid = "" if "pid " in top else f"pid {place}/{name}.pid;"
    log = "" if "error_log" in top else f"error_log {place}/{name}.log;"
    file = place / f"{name}.conf"
    access = "" if "access_log" in http else "access_log off;"
    file.write_text(
        f"user root; {pid} {log} {top}\nevents {{}}\nhttp {{ {temporary} {access}\n{http}\n"
        f"server {{ listen unix:{place}/{name}.own;\n{listen}\n{SERVES} }} }}\n"
    )
    return file


def tree(file: Path) -> ConfTree:
    return read_tree(str(file), ConfigurationFiles(LiveHost()), prefix=str(file.parent))


def refusals(old: Path, new: Path) -> list[str]:
    found = refused_here(tree(old), tree(new), [])
    assert found.notes == []
    return [one.answer_clause(str) for one in found.refusals]


def program() -> list[str]:
    """One that speaks QUIC."""
    root = Path(find_nginx("1.30").program).parent
    loader = next(root.glob("usr/lib/*/ld-linux*"))
    nginx = root / "usr/sbin/nginx"
    return [str(loader), "--library-path", str(loader.parent), str(nginx)]


def is_refused(run: subprocess.Popen[str]) -> bool:
    """Whether it ends, having tried to bind for 2.5 s; it serves in the foreground else."""
    until(lambda: run.poll() is not None or workers_of(run.pid))
    ended = run.poll() is not None
    run.terminate()
    _, said = run.communicate()
    assert ("emerg" in said) is ended, said
    return ended


def start(place: Path, new: Path) -> subprocess.Popen[str]:
    command = [*program(), "-c", str(new), "-p", str(place), "-g", "daemon off;"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def holder(
    stack: ExitStack, address: str, *, udp: bool = False, options: tuple[int, ...] = (),
    only6: int | None = None,
) -> int:  # fmt: skip
    """A port that somebody else holds.

    Of UDP: one that no connection has over TCP, not even for its minute after its end, when
    nothing could listen there (``ls-port-ephemeral``).
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = stack.enter_context(
        socket.socket(family, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
    )
    for option in options:
        one.setsockopt(socket.SOL_SOCKET, option, 1)
    if only6 is not None:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only6)
    if not udp:
        one.bind((address, 0))
        one.listen()
        return int(one.getsockname()[1])
    with socket.create_server((address, 0), family=family) as free:
        one.bind(free.getsockname())
        return int(free.getsockname()[1])


REUSES, SHARES = socket.SO_REUSEADDR, socket.SO_REUSEPORT
EVERY = "0.0.0.0"  # what is tried
HELD: dict[str, tuple[dict[str, object], str]] = {
    "same": ({"address": "127.0.0.1"}, "listen 127.0.0.1:{port};"),
    "another address": ({"address": "127.0.0.1"}, "listen 127.0.0.2:{port};"),
    "ours a wildcard": ({"address": "127.0.0.1"}, "listen {port};"),
    "theirs a wildcard": ({"address": EVERY}, "listen 127.0.0.1:{port};"),
    "theirs with REUSEADDR": (
        {"address": EVERY, "options": (REUSES,)}, "listen 127.0.0.1:{port};"),
    "only ours shares": ({"address": EVERY}, "listen {port} reuseport;"),
    "only theirs shares": ({"address": EVERY, "options": (SHARES,)}, "listen {port};"),
    "both share": ({"address": EVERY, "options": (SHARES,)}, "listen {port} reuseport;"),
    "theirs of both families": ({"address": "::", "only6": 0}, "listen {port};"),
    "theirs of IPv6 alone": ({"address": "::", "only6": 1}, "listen {port};"),
    "ours of IPv6": ({"address": EVERY}, "listen [::]:{port};"),
    "ours of both families": ({"address": EVERY}, "listen [::]:{port} ipv6only=off;"),
    "ours of both, theirs one": (
        {"address": "127.0.0.1"}, "listen [::]:{port} ipv6only=off;"),
    "covered by our wildcard": (
        {"address": "127.0.0.1"}, "listen [::1]:{port}; listen [::]:{port};"),
    "UDP alone": ({"address": EVERY, "udp": True}, "listen {port};"),
    "QUIC": ({"address": EVERY, "udp": True}, "listen {port} quic;"),
    "QUIC, REUSEADDR": (
        {"address": EVERY, "udp": True, "options": (REUSES,)}, "listen {port} quic;"),
    "QUIC, both share": (
        {"address": EVERY, "udp": True, "options": (SHARES,)}, "listen {port} quic reuseport;"),
    "TCP alone": ({"address": EVERY}, "listen {port} quic;"),
}  # fmt: skip


@pytest.mark.needs("root", "nginx", "nginx-1.30")
def test_the_ports_that_others_hold_are_those_that_nginx_cannot_bind(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, names=["a"])
    tls = f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key};"
    with ExitStack() as stack:
        started: dict[str, tuple[subprocess.Popen[str], list[str]]] = {}
        for number, (name, (held, listen)) in enumerate(HELD.items()):
            port = holder(stack, **held)  # type: ignore[arg-type]
            old = conf(tmp_path, f"old{number}", http=tls)
            new = conf(tmp_path, f"new{number}", listen=listen.format(port=port), http=tls)
            found = [one for one in refusals(old, new) if f":{port}" in one]
            started[name] = (start(tmp_path, new), found)
        wrong = {
            name: said for name, (one, said) in started.items() if is_refused(one) != bool(said)
        }
        assert not wrong
        said = started["theirs a wildcard"][1][0]
    assert f"(process {os.getpid()}) holds 0.0.0.0:" in said
    assert ".conf:6: bind() to 127.0.0.1:" in said
    assert sum(bool(found) for _, found in started.values()) > len(started) // 3


PLACES = {
    "a log": ("http", "access_log {place}/none/a.log;", True),
    "a log in a location": ("listen", "location /x {{ access_log {place}/none/a.log; }}", True),
    "a log by a variable": ("http", "access_log {place}/none/$host.log;", False),
    "a log that is a directory": ("http", "access_log {place}/there;", True),
    "a link to nowhere": ("http", "access_log {place}/link;", True),
    "a log elsewhere": ("http", "access_log syslog:server=unix:/none/log;", False),
    "a log that is there": ("http", "access_log {place}/there/a.log;", False),
    "an error log": ("top", "error_log {place}/none/e.log;", True),
    "an error log of a server": ("listen", "error_log {place}/none/e.log;", True),
    "a pid": ("top", "pid {place}/none/pid;", True),
    "a lock file": ("top", "lock_file {place}/none/lock;", False),
    "a cache two levels down": (
        "http", "proxy_cache_path {place}/none/c keys_zone=z:1m;", True),
    "a cache one level down": ("http", "proxy_cache_path {place}/c keys_zone=z:1m;", False),
    "bodies": ("http", "client_body_temp_path {place}/none/b;", True),
    "a file for a directory": ("http", "access_log {place}/file/a.log;", True),
    "a socket where a file is": ("listen", "listen unix:{place}/file;", True),
    "a socket in no directory": ("listen", "listen unix:{place}/none/s;", True),
    "a socket": ("listen", "listen unix:{place}/there/s;", False),
    "an address of nobody": ("listen", "listen 203.0.113.9:18641;", True),
    "an address of nobody, IPv6": ("listen", "listen [2001:db8::9]:18642;", True),
    "an address of the loopback net": ("listen", "listen 127.9.8.7:18643;", False),
}  # fmt: skip


@pytest.mark.needs("root", "nginx", "nginx-1.30")
def test_the_places_that_are_missing_are_those_that_nginx_cannot_open(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("none/further")
    started = {}
    for number, (name, (where, text, _)) in enumerate(PLACES.items()):
        old = conf(tmp_path, f"old{number}")
        line = text.format(place=tmp_path)
        new = conf(tmp_path, f"new{number}", **{where: line})
        found = refusals(old, new)
        assert refusals(new, new) == [], "what was there before is no matter of the change"
        started[name] = (start(tmp_path, new), found)
    wrong = {
        name: (said, PLACES[name])
        for name, (one, said) in started.items()
        if not (is_refused(one) == bool(said) == PLACES[name][2])
    }
    assert not wrong
    assert f"mkdir -p {tmp_path}/none" in started["a log"][1][0]


@pytest.fixture
def port_of_ours(tmp_path: Path) -> Iterator[int]:
    with ExitStack() as stack:
        yield holder(stack, "127.0.0.1")


def test_what_the_nginx_itself_holds_is_no_hindrance(tmp_path: Path, port_of_ours: int) -> None:
    """It may run the new configuration already; and what the old one names it takes over."""
    old = conf(tmp_path, "old")
    new = conf(tmp_path, "new", listen=f"listen 127.0.0.1:{port_of_ours};")
    assert len(taken_here(tree(old), tree(new), []).refusals) == 1
    assert not taken_here(tree(old), tree(new), [os.getpid()]).refusals
    assert not taken_here(tree(new), tree(new), []).refusals


def test_a_socket_file_that_the_nginx_itself_listens_at_is_no_hindrance(tmp_path: Path) -> None:
    """What lies there and has no listener, or one of somebody else, is."""
    paths = [tmp_path / name for name in ("own", "closed", "deaf")]
    listen = " ".join(f"listen unix:{path};" for path in paths)
    old, new = conf(tmp_path, "old"), conf(tmp_path, "new", listen=listen)
    with ExitStack() as stack:
        own, closed, deaf = (
            stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(len(paths))
        )
        for one, path in zip((own, closed, deaf), paths, strict=True):
            one.bind(str(path))
        own.listen()
        closed.listen()
        closed.close()
        for masters, refused in (([os.getpid()], paths[1:]), ([os.getppid()], paths), ([], paths)):
            found = refused_here(tree(old), tree(new), masters).refusals
            assert [one.text.split()[2] for one in found] == [f"unix:{path}" for path in refused]


@pytest.mark.needs("root", "nginx", "nginx-1.30")
def test_nginx_takes_a_socket_file_over_that_it_listens_at(tmp_path: Path) -> None:
    old, new = conf(tmp_path, "old"), conf(tmp_path, "new", listen=f"listen unix:{tmp_path}/s;")
    run = start(tmp_path, new)
    try:
        master = number_in(tmp_path / "new.pid")
        until(lambda: workers_of(master))
        assert [one.text.split()[2] for one in refused_here(tree(old), tree(new), []).refusals] == [
            f"unix:{tmp_path}/new.own", f"unix:{tmp_path}/s",
        ]  # fmt: skip
        assert refused_here(tree(old), tree(new), [master]).refusals == []
        reload(master)
        assert "emerg" not in (tmp_path / "new.log").read_text()
        assert run.poll() is None
    finally:
        run.terminate()
        run.communicate()


def test_masters_are_known_by_their_main_file(tmp_path: Path) -> None:
    main, link = tmp_path / "nginx.conf", tmp_path / "link.conf"
    main.touch()
    link.symlink_to(main)
    running = [(7, str(link)), (8, "/elsewhere.conf"), (9, None)]
    assert masters_of(running, {str(main)}) == [7]


def test_in_doubt_a_socket_may_be_shared() -> None:
    """Another user may not look at the options of a socket."""
    theirs = BoundSocket("tcp", EVERY, 80, 1, 33, False)
    unknown = Holder(7, "other")
    shares = Binding("tcp", EVERY, 80, reuses_port=True)
    assert may_share(shares, theirs, unknown, 33)
    assert not may_share(shares, theirs, unknown, 0), "each user's own"
    assert not may_share(Binding("tcp", EVERY, 80), theirs, unknown, 33)
    datagrams = theirs._replace(kind="udp")
    assert may_share(Binding("udp", EVERY, 80), datagrams, unknown, 0)
    assert not may_share(
        Binding("udp", EVERY, 80), datagrams, unknown._replace(reuses_address=False), 0
    )
    mapped = theirs._replace(address="::ffff:127.0.0.1")
    assert in_the_way(Binding("tcp", "127.0.0.1", 80), [mapped]) == [mapped]


def test_a_server_without_listen_and_a_range_of_ports_are_sockets_too(tmp_path: Path) -> None:
    file = tmp_path / "nginx.conf"
    file.write_text(
        "events {} http { server { } server { listen 127.0.0.1:9000-9002; listen a.test:81; } }\n"
        "stream { server { listen 53 udp; proxy_pass a; } server { listen [::1]:25; } }\n"
    )
    assert [one.name + one.kind for one in bindings_of(tree(file))] == [
        "0.0.0.0:80tcp", "127.0.0.1:9000tcp", "127.0.0.1:9001tcp", "127.0.0.1:9002tcp",
        "[::1]:25tcp", "0.0.0.0:53udp",
    ]  # fmt: skip
