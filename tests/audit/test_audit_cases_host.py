"""Where the rules about limits and listeners must speak, be silent, or say what they lack."""

from __future__ import annotations

from cases import outcome
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Cpu, ErrorLog, Facts, Kernel, Memory, Nginx
from nginx_tune.documents.facts_machine import Listener


def conf(server: str = "listen 80;", events: str = "", main: str = "", http: str = "") -> str:
    return f"{main} events {{ {events} }} http {{ {http} server {{ {server} root /srv; }} }}"


def _listening(**more: object) -> Facts:
    found = Listener(address="127.0.0.1", port=80, drops=100, of_nginx=True)
    return replace(linux(), listeners=[replace(found, **more)])


def _without_network(facts: Facts) -> Facts:
    """With no setting of nginx's network namespace."""
    return replace(facts, kernel=replace(facts.kernel, sysctls={"vm.swappiness": "60"}))


PORTS_GIVEN = linux(
    sysctls={
        "net.ipv4.ip_local_port_range": "32768\t60999", "net.ipv4.ip_local_reserved_ports": "",
    }
)  # fmt: skip
PART = "location / { proxy_pass http://b; }"
LOG = "error_log /main.log;"
CORES = linux(cpus=16)

CASES: dict[str, tuple[str, str, Facts | None, int | str]] = {
    "Debian's default under its unit's default limit": (
        "lim-nofile-lt-2x",
        conf(events="worker_connections 768;"),
        linux(),
        1,
    ),
    "nginx's default under the usual limit": ("lim-nofile-lt-2x", conf(), linux(), 0),
    "open files of a cache that no location fills": (
        "lim-nofile-lt-2x",
        conf("location / { return 204; }", http="open_file_cache max=200;"),
        linux(),
        0,
    ),
    "open files of a cache that files fill": (
        "lim-nofile-lt-2x",
        conf(http="open_file_cache max=200;"),
        linux(),
        1,
    ),
    "connections that are more than the limit": (
        "lim-nofile-lt-2x",
        conf(events="worker_connections 4096;"),
        linux(),
        0,
    ),
    "the same for the rule about that": (
        "lim-conn-exceeds-rlimit",
        conf(events="worker_connections 4096;"),
        linux(),
        1,
    ),
    "limits nobody has read": (
        "lim-nofile-lt-2x",
        conf(events="worker_connections 4096;"),
        None,
        "limits.nofile_soft",
    ),
    "a part says nothing about the main file": ("lim-nofile-lt-2x", PART, linux(), 0),
    "a number that is none": ("lim-nofile-lt-2x", conf(main="worker_rlimit_nofile x;"), linux(), 0),
    "root may raise its limit": (
        "lim-nofile-not-raisable",
        conf(main="worker_rlimit_nofile 600000;"),
        linux(nofile=(1024, 4096), can_raise=True),
        0,
    ),
    "nobody may open more than fs.nr_open": (
        "lim-nofile-not-raisable",
        conf(main="worker_rlimit_nofile 2000000;"),
        linux(nofile=(1024, 4096), can_raise=True),
        1,
    ),
    "a limit that nobody has read": (
        "lim-nofile-not-raisable",
        conf(main="worker_rlimit_nofile 5000;"),
        None,
        "limits.nofile_hard",
    ),
    "512 connections on purpose": (
        "lim-conn-default",
        conf("location / { proxy_pass http://b; }", "worker_connections 512;"),
        None,
        0,
    ),
    "a server of files with the default": ("lim-conn-default", conf(), None, 0),
    "the host is the limit where there is no group": (
        "lim-conn-memory",
        conf(events="worker_connections 500000;", main="worker_processes 64;"),
        linux(cache_gib=0),
        1,
    ),
    "memory nobody has read": (
        "lim-conn-memory",
        conf(main="worker_processes 2;"),
        replace(CORES, memory=Memory()),
        "memory.total_bytes",
    ),
    "the cache manager has 512 of its own": (
        "lim-conn-exhausted-seen",
        conf(events="worker_connections 1024;", main=LOG),
        replace(CORES, error_logs=[ErrorLog(path="/main.log", connections_exhausted={"512": 9})]),
        0,
    ),
    "facts without logs": ("lim-conn-exhausted-seen", conf(main=LOG), CORES, 0),
    "facts with another log": (
        "lim-conn-exhausted-seen",
        conf(main=LOG),
        replace(CORES, error_logs=[ErrorLog(path="/b")]),
        "error_logs[/main.log]",
    ),
    "no facts at all": ("lim-conn-exhausted-seen", conf(main=LOG), None, "error_logs[/main.log]"),
    "one worker on one CPU": ("lim-workers-one", conf(), linux(cpus=1), 0),
    "one worker where a quota leaves one CPU": (
        "lim-workers-one",
        conf(),
        linux(cpus=16, effective_cpus=0.5),
        0,
    ),
    "one worker said so": ("lim-workers-one", conf(main="worker_processes 1;"), CORES, 1),
    "Tengine starts a worker for each CPU": (
        "lim-workers-one",
        conf(),
        replace(CORES, nginx=Nginx(product="tengine")),
        0,
    ),
    "a balancer of TCP only": (
        "lim-workers-one",
        "events {} stream { server { listen 1; proxy_pass b; } }",
        CORES,
        0,
    ),
    "auto with all CPUs": ("lim-workers-cgroup", conf(main="worker_processes auto;"), CORES, 0),
    "auto with half a CPU more": (
        "lim-workers-cgroup",
        conf(main="worker_processes auto;"),
        linux(cpus=2, effective_cpus=1.5),
        0,
    ),
    "auto with one worker more than CPUs": (
        "lim-workers-cgroup",
        conf(main="worker_processes auto;"),
        linux(cpus=4, effective_cpus=3.0),
        0,
    ),
    "auto with two workers more than CPUs": (
        "lim-workers-cgroup",
        conf(main="worker_processes auto;"),
        linux(cpus=5, effective_cpus=3.0),
        1,
    ),
    "auto of a C library that sees the cpuset": (
        "lim-workers-cgroup",
        conf(main="worker_processes auto;"),
        replace(CORES, cpu=Cpu(online=16, effective=4.0, auto_workers=4)),
        0,
    ),
    "auto on CPUs nobody has counted": (
        "lim-workers-cgroup",
        conf(main="worker_processes auto;"),
        None,
        "cpu.online",
    ),
    "one mask for all": (
        "lim-affinity-mismatch",
        conf(main="worker_processes 4; worker_cpu_affinity 1111;"),
        CORES,
        0,
    ),
    "auto with a mask": (
        "lim-affinity-mismatch",
        conf(main="worker_cpu_affinity auto 0101;"),
        replace(CORES, cpu=Cpu(online=4, cpuset=2)),
        0,
    ),
    "auto in a cpuset": (
        "lim-affinity-mismatch",
        conf(main="worker_cpu_affinity auto;"),
        replace(CORES, cpu=Cpu(online=4, cpuset=2)),
        1,
    ),
    "a zone that nobody uses": (
        "lim-zone-too-small",
        conf(http="limit_conn_zone $binary_remote_addr zone=a:32k;"),
        CORES,
        0,
    ),
    "a zone of limit_req": (
        "lim-zone-too-small",
        conf(
            "limit_req zone=a; limit_conn b 9;",
            http="limit_req_zone $uri zone=a:32k rate=1r/s; limit_conn_zone $uri zone=b:10m;",
        ),
        CORES,
        0,
    ),
    "a small limit over HTTP/1": ("lim-conn-h2", conf("listen 80; limit_conn a 2;"), None, 0),
    "a small limit over HTTP/3": ("lim-conn-h2", conf("listen 443 quic; limit_conn a 2;"), None, 1),
    "a small limit that only logs": (
        "lim-conn-h2",
        conf("listen 443 http2; limit_conn a 2; limit_conn_dry_run on;"),
        None,
        0,
    ),
    "HTTP/2 of another server of the address": (
        "lim-conn-h2",
        (
            "events {} http { server { listen 443 ssl http2; } server { listen 443 ssl;"
            " limit_conn a 2; } }"
        ),
        None,
        1,
    ),
    "the default where the kernel allows 128": (
        "ls-backlog-capped",
        conf("listen 80; listen 81;"),
        linux(sysctls={"net.core.somaxconn": "128"}),
        1,
    ),
    "a short queue on purpose": (
        "ls-backlog-capped",
        conf("listen 80 backlog=100;"),
        linux(sysctls={"net.core.somaxconn": "128"}),
        0,
    ),
    "a kernel nobody has asked": (
        "ls-backlog-capped",
        conf(),
        None,
        "kernel.sysctls[net.core.somaxconn]",
    ),
    "a usual port where all are given out": (
        "ls-port-ephemeral",
        conf("listen 80; listen 8080; listen [::]:8080;"),
        linux(
            sysctls={
                "net.ipv4.ip_local_port_range": "1024\t65535",
                "net.ipv4.ip_local_reserved_ports": "",
            }
        ),
        2,
    ),
    "the same port of two servers": (
        "ls-port-ephemeral",
        "events {} http { server { listen 8080; } server { listen *:8080; } }",
        linux(
            sysctls={
                "net.ipv4.ip_local_port_range": "1024\t65535",
                "net.ipv4.ip_local_reserved_ports": "",
            }
        ),
        1,
    ),
    "ports that are reserved": (
        "ls-port-ephemeral",
        conf("listen 8080; listen 9149;"),
        linux(
            sysctls={
                "net.ipv4.ip_local_port_range": "1024\t65535",
                "net.ipv4.ip_local_reserved_ports": "8080,9148-9150",
            }
        ),
        0,
    ),
    "one of a range of ports that is not reserved": (
        "ls-port-ephemeral",
        "events {} stream { server { listen 9147-9150; proxy_pass 10.0.0.1:53; } }",
        linux(
            sysctls={
                "net.ipv4.ip_local_port_range": "1024\t65535",
                "net.ipv4.ip_local_reserved_ports": "8080,9148-9150",
            }
        ),
        1,
    ),
    "ports beside those that are given out": (
        "ls-port-ephemeral",
        conf("listen 443 ssl; listen 32767; listen 61000; listen unix:/run/a;"),
        linux(
            sysctls={
                "net.ipv4.ip_local_port_range": "32768\t60999",
                "net.ipv4.ip_local_reserved_ports": "",
            }
        ),
        0,
    ),
    "a port where nobody knows what is given out": (
        "ls-port-ephemeral",
        conf("listen 8080;"),
        linux(),
        "kernel.sysctls[net.ipv4.ip_local_port_range]",
    ),
    "a port beside those of facts that are older": (
        "ls-port-ephemeral",
        conf("listen 8080;"),
        linux(sysctls={"net.ipv4.ip_local_port_range": "32768\t60999"}),
        0,
    ),
    "a port of those of facts that are older": (
        "ls-port-ephemeral",
        conf("listen 50051;"),
        linux(sysctls={"net.ipv4.ip_local_port_range": "32768\t60999"}),
        "kernel.sysctls[net.ipv4.ip_local_reserved_ports]",
    ),
    "a row of a map that is called listen": (
        "ls-port-ephemeral",
        "events {} http { map $a $b { listen 50051; } server { listen 80; } }",
        PORTS_GIVEN,
        0,
    ),
    "a switch of a network namespace that nobody asked": (
        "ls-reuseport-reload-loss",
        conf("listen 80 reuseport;"),
        _without_network(linux(features={"tcp_migrate_req": True})),
        "kernel.sysctls[net.ipv4.tcp_migrate_req]",
    ),
    "a kernel without that switch": (
        "ls-reuseport-reload-loss",
        conf("listen 80 reuseport;"),
        _without_network(linux(features={"tcp_migrate_req": False})),
        0,
    ),
    "every network is everybody": (
        "lim-deny-lost",
        conf("deny all; location / { allow 0.0.0.0/0; allow ::/0; }"),
        None,
        0,
    ),
    "a limit by a variable of a server": (
        "lim-key-forged",
        conf(
            "set $k $remote_addr; if ($http_x_forwarded_for) { set $k $http_x_forwarded_for; }"
            " limit_req zone=z;",
            http="limit_req_zone $k zone=z:1m rate=1r/s;",
        ),
        None,
        1,
    ),
    "a zone that nothing is limited by": (
        "lim-key-forged",
        conf(http="limit_req_zone $http_x_forwarded_for zone=z:1m rate=1r/s;"),
        None,
        0,
    ),
    "an answer of a location for requests of others": (
        "lim-return-first",
        conf(
            "location @a { deny all; return 200; } location /b { internal; deny all; return 200; }"
        ),
        None,
        0,
    ),
    "a port that is never given out": (
        "ls-port-ephemeral",
        conf("listen 443;"),
        None,
        0,
    ),
    "drops at another address of the port": (
        "ls-backlog-overflow-seen",
        conf(),
        _listening(address="127.0.0.1"),
        0,
    ),
    "drops at every address": (
        "ls-backlog-overflow-seen",
        conf(),
        _listening(address="0.0.0.0"),
        1,
    ),
    "drops at every address of IPv6": (
        "ls-backlog-overflow-seen",
        conf("listen [::]:80;"),
        _listening(address="::"),
        1,
    ),
    "a few drops in the life of a socket": (
        "ls-backlog-overflow-seen",
        conf(),
        _listening(address="0.0.0.0", drops=99),
        0,
    ),
    "drops of another program": (
        "ls-backlog-overflow-seen",
        conf(),
        _listening(address="0.0.0.0", of_nginx=False),
        0,
    ),
    "QUIC has reuseport and TCP has not": (
        "ls-reuseport-sibling",
        conf("listen 443 quic reuseport; listen 443 ssl;"),
        None,
        0,
    ),
    "both families of another port": (
        "ls-reuseport-sibling",
        conf("listen 80 reuseport; listen [::]:81;"),
        None,
        0,
    ),
    "options once and many plain lines": (
        "ls-reuseport-twice",
        (
            "events {} http { server { listen 80 reuseport; } server { listen 80 default_server; }"
            " server { listen 80 ssl; } }"
        ),
        None,
        0,
    ),
    "the same address written in two ways": (
        "ls-reuseport-twice",
        "events {} http { server { listen 80 reuseport; } server { listen *:80 backlog=9; } }",
        None,
        1,
    ),
    "one port of a range has options, and both lines of another": (
        "ls-reuseport-twice",
        (
            "events {} http { server { listen 8000-8003 reuseport; listen 127.1:80 bind; } "
            "server { listen 8001-8002 reuseport; listen 127.0.0.1 bind; } }"
        ),
        None,
        2,
    ),
    "what a name stands for is not known": (
        "ls-reuseport-twice",
        "events {} http { server { listen localhost:80 bind; } server { listen 127.1:80 bind; } }",
        None,
        0,
    ),
    "a range in a server of one of its ports": (
        "cf-listen-twice",
        (
            "events {} http { server { listen 8000-8003; listen 08001; listen 8002; listen [::1]; "
            "listen [0::1]:80; } }"
        ),
        None,
        3,
    ),
    "ranges beside each other": (
        "cf-listen-twice",
        "events {} http { server { listen 8000-8003; listen 8004-8005; listen 127.1:8001; } }",
        None,
        0,
    ),
    "two defaults of one socket": (
        "cf-listen-twice",
        (
            "events {} http { server { listen 8000-8003 default_server; } "
            "server { listen *:8003 default_server; } }"
        ),
        None,
        1,
    ),
    "QUIC and TCP are two sockets": (
        "ls-reuseport-twice",
        conf("listen 443 quic reuseport; listen 443 reuseport ssl;"),
        None,
        0,
    ),
    "a kernel without the switch": (
        "ls-reuseport-reload-loss",
        conf("listen 80 reuseport;"),
        replace(CORES, kernel=Kernel(system="Linux", sysctls={"net.core.somaxconn": "4096"})),
        0,
    ),
    "a version that cannot test": (
        "ls-reuseport-old-bugs",
        conf("listen 80 reuseport;", main="worker_processes 4;"),
        linux(version="1.12.2"),
        1,
    ),
    "QUIC with one worker": (
        "ls-quic-no-reuseport",
        conf("listen 443 quic;"),
        linux(version="1.26.3"),
        0,
    ),
    "QUIC with as many workers as nobody knows": (
        "ls-quic-no-reuseport",
        conf("listen 443 quic;", main="worker_processes auto;"),
        None,
        "cpu.online",
    ),
    "accept_mutex on a kernel that wakes all": (
        "ls-accept-mutex-redundant",
        conf(events="accept_mutex on;"),
        linux(features={"epollexclusive": False}),
        0,
    ),
    "accept_mutex off": ("ls-accept-mutex-redundant", conf(events="accept_mutex off;"), CORES, 0),
    "multi_accept with one worker": ("ls-multi-accept", conf(events="multi_accept on;"), None, 0),
    "rcvbuf of a QUIC listener": ("ls-sndbuf-fixed", conf("listen 443 quic rcvbuf=4m;"), None, 0),
    "http2 of listen before 1.25.1": (
        "ls-http2-param",
        conf("listen 443 ssl http2;"),
        linux(version="1.24.0"),
        0,
    ),
    "http2 of listen in a version nobody has asked for": (
        "ls-http2-param",
        conf("listen 443 ssl http2;"),
        None,
        "nginx.nginx_version",
    ),
}


@each_row("name", CASES)
def test_case(name: str) -> None:
    rule, text, facts, expected = CASES[name]
    assert outcome(rule, text, facts) == expected


LIMITS = tuple(rule for rule in ALL if rule.id.startswith(("lim-", "io-open-cache-fd")))


@each_row("connections", [512, 1024, 4096, 65_536])
@each_row("workers", ["1", "auto"])
@each_row("quota", [1.0, 3.5, 16.0])
def test_the_numbers_of_fixes_are_the_last_word(
    connections: int, workers: str, quota: float
) -> None:
    """Each fix names a number; a configuration that follows them has nothing left to fix."""
    host = linux(cpus=16, effective_cpus=quota)
    lines = {"worker_processes": workers}
    for _ in range(3):
        main = " ".join(f"{name} {value};" for name, value in lines.items())
        found = audit(
            parse_text(conf(main=main, events=f"worker_connections {connections};")), host, LIMITS
        ).findings
        if not found:
            return
        for one in found:
            name, value = one.fix.split(";")[0].split()
            lines[name] = value
    raise AssertionError([one.fix for one in found])


def test_the_worst_place_of_a_line_counts() -> None:
    """That of a server which goes through the list to its beginning, whichever comes first."""
    text = (
        "events {} http { set_real_ip_from ::/0; real_ip_header X-Forwarded-For;"
        " server { listen 80; } server { listen 81; real_ip_recursive on; }"
        " server { listen 82; } }"
    )
    found = audit(parse_text(text), None).findings
    assert [one.severity for one in found if one.rule == "lim-real-ip-any"] == ["warning"]
