"""Where the rules about limits and listeners must speak, be silent, or say what they lack."""

from cases import outcome
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Cpu, Facts, Limits, Memory, Nginx
from nginx_tune.documents.facts_machine import Listener


def conf(server: str = "listen 80;", events: str = "", main: str = "", http: str = "") -> str:
    return f"{main} events {{ {events} }} http {{ {http} server {{ {server} root /srv; }} }}"


def _listening(**more: object) -> Facts:
    found = Listener(address="127.0.0.1", port=80, drops=100, of_nginx=True)
    return replace(linux(), listeners=[replace(found, **more)])


def _without_network(facts: Facts) -> Facts:
    """With no setting of nginx's network namespace."""
    return replace(facts, kernel=replace(facts.kernel, sysctls={"vm.swappiness": "60"}))


LOG = "error_log /main.log;"
CORES = linux(cpus=16)

CASES: dict[str, tuple[str, str, Facts | None, int | str]] = {
    "Debian's default under its unit's default limit": (
        "lim-nofile-lt-2x", conf(events="worker_connections 768;"), linux(), 1,
    ),
    "open files of a cache that no location fills": (
        "lim-nofile-lt-2x",
        conf("location / { return 204; }", http="open_file_cache max=200;"), linux(), 0,
    ),
    "open files of a cache that files fill": (
        "lim-nofile-lt-2x", conf(http="open_file_cache max=200;"), linux(), 1,
    ),
    "the same for the rule about that": (
        "lim-conn-exceeds-rlimit", conf(events="worker_connections 4096;"), linux(), 1,
    ),
    "limits nobody has read": (
        "lim-nofile-lt-2x", conf(events="worker_connections 4096;"), None, "limits.nofile_soft",
    ),
    "a limit that nobody has read": (
        "lim-nofile-not-raisable", conf(main="worker_rlimit_nofile 5000;"), None,
        "limits.nofile_hard",
    ),
    "the limit of the shell that reads": (
        "lim-nofile-not-raisable", conf(main="worker_rlimit_nofile 5000;"),
        Facts(limits=Limits(nofile_of="reader", nofile_hard=4096, can_raise=False)),
        "limits.nofile_hard",
    ),
    "a server of files with the default": ("lim-conn-default", conf(), None, 0),
    "memory nobody has read": (
        "lim-conn-memory", conf(main="worker_processes 2;"), replace(CORES, memory=Memory()),
        "memory.total_bytes",
    ),
    "facts without logs": ("lim-conn-exhausted-seen", conf(main=LOG), CORES, 0),
    "one worker on one CPU": ("lim-workers-one", conf(), linux(cpus=1), 0),
    "one worker said so": ("lim-workers-one", conf(main="worker_processes 1;"), CORES, 1),
    "Tengine starts a worker for each CPU": (
        "lim-workers-one", conf(), replace(CORES, nginx=Nginx(product="tengine")), 0,
    ),
    "a balancer of TCP only": (
        "lim-workers-one", "events {} stream { server { listen 1; proxy_pass b; } }", CORES, 0,
    ),
    "auto with one worker more than CPUs": (
        "lim-workers-cgroup", conf(main="worker_processes auto;"),
        linux(cpus=4, effective_cpus=3.0), 0,
    ),
    "auto with two workers more than CPUs": (
        "lim-workers-cgroup", conf(main="worker_processes auto;"),
        linux(cpus=5, effective_cpus=3.0), 1,
    ),
    "auto with a mask": (
        "lim-affinity-mismatch", conf(main="worker_cpu_affinity auto 0101;"),
        replace(CORES, cpu=Cpu(online=4, cpuset=2)), 0,
    ),
    "auto in a cpuset": (
        "lim-affinity-mismatch", conf(main="worker_cpu_affinity auto;"),
        replace(CORES, cpu=Cpu(online=4, cpuset=2)), 1,
    ),
    "the default where the kernel allows 128": (
        "ls-backlog-capped", conf("listen 80; listen 81;"),
        linux(sysctls={"net.core.somaxconn": "128"}), 1,
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
    "a switch of a network namespace that nobody asked": (
        "ls-reuseport-reload-loss", conf("listen 80 reuseport;"),
        _without_network(linux(features={"tcp_migrate_req": True})),
        "kernel.sysctls[net.ipv4.tcp_migrate_req]",
    ),
    "drops at every address of IPv6": (
        "ls-backlog-overflow-seen", conf("listen [::]:80;"), _listening(address="::"), 1,
    ),
    "a few drops in the life of a socket": (
        "ls-backlog-overflow-seen", conf(), _listening(address="0.0.0.0", drops=99), 0,
    ),
    "drops of another program": (
        "ls-backlog-overflow-seen", conf(), _listening(address="0.0.0.0", of_nginx=False), 0,
    ),
    "a version that cannot test": (
        "ls-reuseport-old-bugs", conf("listen 80 reuseport;", main="worker_processes 4;"),
        linux(version="1.12.2"), 1,
    ),
    "QUIC with one worker": (
        "ls-quic-no-reuseport", conf("listen 443 quic;"), linux(version="1.26.3"), 0,
    ),
    "rcvbuf of a QUIC listener": ("ls-sndbuf-fixed", conf("listen 443 quic rcvbuf=4m;"), None, 0),
    "http2 of listen in a version nobody has asked for": (
        "ls-http2-param", conf("listen 443 ssl http2;"), None, "nginx.nginx_version",
    ),
}  # fmt: skip


@each_row("name", CASES)
def test_case(name: str) -> None:
    rule, text, facts, expected = CASES[name]
    assert outcome(rule, text, facts) == expected


def _nearly_full() -> Facts:
    facts = linux()
    network = replace(facts.network, conntrack_entries=240_000, conntrack_limit=262_144)
    return replace(facts, network=network)


ANSWERS = conf(
    'listen 80; location / { proxy_pass http://a; } location /b { return 429 "no more requests."; }'
)
PASSING = "listen 80; location / { proxy_pass http://127.0.0.1:81; %s}"
UNBUFFERED = "proxy_buffering off; proxy_request_buffering off;"
FULL = "worker_connections 1024;"
QUIC = conf("listen 443 quic;")
SSL_UPSTREAM = conf("location / { proxy_pass https://a.example; }")
DECLARED = replace(Facts(), nginx=Nginx(product="nginx", nginx_version="1.26.3"))


@each_row(
    ("rule", "text", "facts", "said"),
    [
        ("lim-conntrack-full", ANSWERS, _nearly_full(), "one entry for many requests."),
        ("lim-nofile-lt-2x", conf(events=FULL), linux(), "1024 connections (with a file for each)"),
        (
            "lim-nofile-lt-2x", conf(PASSING % "", events=FULL), linux(),
            "1024 connections (with a temporary file for each proxied request) need about 1555",
        ),
        (
            "lim-nofile-lt-2x", conf(PASSING % UNBUFFERED, events=FULL), linux(),
            "1024 connections need about 1043",
        ),
        (
            "lim-nofile-lt-2x", conf("listen 80; location / { return 200; }", events=FULL), linux(),
            "1024 connections need about 1043",
        ),
        (
            "lim-workers-cgroup", conf(main="worker_processes auto;"),
            linux(cpus=8, effective_cpus=2.5), "may use only 2.5 CPUs",
        ),
        ("lim-workers-one", conf(), linux(cpus=2, effective_cpus=1.5), "one of 1.5 CPUs"),
        ("log-debug-prod", conf(main="error_log /e debug;"), None, "advice if nginx is built"),
        (
            "cf-parameter-unknown", QUIC, linux(version="1.26.3"),
            'emerg "the "quic" parameter requires ngx_http_v3_module". Remove the whole line',
        ),
        ("cf-parameter-unknown", QUIC, linux(version="1.22.1"), "Remove the whole line"),
        ("vr-known-vulnerability", SSL_UPSTREAM, DECLARED, "1.29.5 or later, or to a package"),
        ("vr-known-vulnerability", SSL_UPSTREAM, DECLARED, "nginx.nginx_version is declared"),
        (
            "vr-known-vulnerability", SSL_UPSTREAM, linux(version="1.26.3"),
            "nginx.nginx_version is measured",
        ),
    ],
)  # fmt: skip
def test_a_finding_says(rule: str, text: str, facts: Facts | None, said: str) -> None:
    rules = [one for one in ALL if one.id == rule]
    (found, *_) = audit(parse_text(text), facts, rules).findings
    origins = (f"{one.fact} is {one.provenance}" for one in found.evidence)
    whole = " ".join((found.severity, found.message, found.why, found.fix, *origins))
    assert said in whole


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
            name, value = one.fix.removeprefix("Set ").split(";")[0].split()
            lines[name] = value
    raise AssertionError([one.fix for one in found])
