"""The kernel: release, features for nginx, sysctls and limits.

If systemd starts nginx, the limits on descriptors come from its unit files. Source:
systemd.unit(5) (search path, drop-ins, the last one wins), systemd.exec(5) (``LimitNOFILE=``),
systemd-system.conf(5) (``DefaultLimitNOFILE=``, 1024:524288 by default).
"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from nginx_tune.documents.facts import Kernel, Limits
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known, mapped, read_parsed
from nginx_tune.host.parse_proc import (
    UNLIMITED,
    DescriptorLimit,
    parse_capabilities,
    parse_integer,
    parse_open_files,
    parse_release,
    parse_status,
)

SYSCTLS = (
    "fs.file-max", "fs.nr_open", "kernel.io_uring_disabled", "kernel.task_delayacct",
    "net.core.default_qdisc", "net.core.netdev_max_backlog", "net.core.rmem_max",
    "net.core.somaxconn", "net.core.wmem_max", "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_fastopen", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_max_tw_buckets", "net.ipv4.tcp_migrate_req",
    "net.ipv4.tcp_notsent_lowat", "net.ipv4.tcp_rmem", "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies", "net.ipv4.tcp_tw_reuse", "net.ipv4.tcp_wmem",
    "net.ipv6.conf.all.disable_ipv6", "vm.dirty_background_bytes", "vm.dirty_background_ratio",
    "vm.dirty_bytes", "vm.dirty_ratio", "vm.min_free_kbytes", "vm.swappiness",
    "vm.vfs_cache_pressure",
)  # fmt: skip

NETWORK_SYSCTLS = (
    "net.core.somaxconn",
    *(name for name in SYSCTLS if name.startswith(("net.ipv4.", "net.ipv6."))),
)
"""Sysctls of each network namespace, all since Linux 4.15; other sysctls in ``net.core`` are
global. Source: net/ipv4/sysctl_net_ipv4.c."""

_SINCE = {"epollexclusive": (4, 5), "cachestat": (6, 5)}
"""The first kernel release with each feature (EPOLLEXCLUSIVE: epoll_ctl(2))."""

_BY_SYSCTL = {
    "task_delayacct": "kernel.task_delayacct",
    "tcp_migrate_req": "net.ipv4.tcp_migrate_req",
}
"""Features that a kernel has exactly if it has the sysctl."""


def read_kernel(host: Host) -> tuple[Kernel, Gaps]:
    """The release, features and sysctls, without sysctls that this kernel lacks."""
    gaps: Gaps = {}
    system = _read_name(host, "/proc/sys/kernel/ostype", "-s")
    release = _read_name(host, "/proc/sys/kernel/osrelease", "-r")
    sysctls = {}
    for name in SYSCTLS:
        value = attempt(_read_line, host, sysctl_path(name))
        if not isinstance(value, Missing):
            sysctls[name] = value
    features: dict[str, bool | None] = {}
    version = mapped(release, parse_release)
    for name, since in _SINCE.items():
        has = version if isinstance(version, Missing) else version >= since
        features[name] = known(has, gaps, f"/features/{name}")
    for name, sysctl in _BY_SYSCTL.items():
        there: bool | Missing = sysctl in sysctls if sysctls else Missing("no sysctl can be read")
        features[name] = known(there, gaps, f"/features/{name}")
    pressure = attempt(host.read_text, "/proc/pressure/io")
    features["psi"] = known(_has_file(pressure, system), gaps, "/features/psi")
    features["tls"] = known(_read_tls(host, release), gaps, "/features/tls")
    kernel = Kernel(
        system=known(system, gaps, "/system"),
        release=known(release, gaps, "/release"),
        machine=known(_read_name(host, "/proc/sys/kernel/arch", "-m"), gaps, "/machine"),
        features=dict(sorted(features.items())),
        sysctls=sysctls,
    )
    return kernel, gaps


def of_network(kernel: Kernel, asked: Listening | Missing) -> tuple[Kernel, Gaps]:
    """The kernel's facts as they apply to an nginx in another network namespace.

    A sysctl that the namespace lacks is global; older kernels have more such sysctls. If the
    namespace's sysctls are unknown, network sysctls are left out.
    """
    if isinstance(asked, Missing) or asked.sysctls is None:
        reason = asked.reason if isinstance(asked, Missing) else "it was not asked"
        kept = {name: text for name, text in kernel.sysctls.items() if name not in NETWORK_SYSCTLS}
        if not isinstance(asked, Missing) and asked.somaxconn is not None:
            kept["net.core.somaxconn"] = str(asked.somaxconn)
        note = f"nginx has a network namespace of its own, whose settings are not known: {reason}"
        return replace(kernel, sysctls=dict(sorted(kept.items()))), {"/sysctls": note}
    theirs = {name: " ".join(text.split()) for name, text in asked.sysctls.items()}
    return replace(kernel, sysctls=dict(sorted({**kernel.sysctls, **theirs}.items()))), {}


def read_limits(host: Host, *, process: str = "self") -> tuple[Limits, Gaps]:
    """The descriptor limits of a process (a pid or ``self``) and of the system."""
    gaps: Gaps = {}
    files = read_parsed(host, f"/proc/{process}/limits", parse_open_files)
    limits = Limits(
        nofile_soft=known(mapped(files, lambda f: f.soft), gaps, "/nofile_soft"),
        nofile_hard=known(mapped(files, lambda f: f.hard), gaps, "/nofile_hard"),
        nr_open=known(_read_integer(host, "fs.nr_open"), gaps, "/nr_open"),
        file_max=known(_read_integer(host, "fs.file-max"), gaps, "/file_max"),
        can_raise=known(_read_can_raise(host, process), gaps, "/can_raise"),
    )
    return limits, gaps


def of_nginx(host: Host, limits: Limits, *, is_running: bool) -> Limits:
    """The limits of the running nginx, else of its systemd unit, else of this process."""
    if is_running:
        return replace(limits, nofile_of="nginx")
    unit = read_unit_limits(host)
    if isinstance(unit, Missing):
        return replace(limits, nofile_of="reader")
    return replace(limits, nofile_soft=unit.soft, nofile_hard=unit.hard, nofile_of="unit")


def _read_can_raise(host: Host, process: str) -> bool | Missing:
    """True for a process that may raise its hard limits; an ordinary reader's rights say nothing.

    Source: kernel/sys.c do_prlimit() uses capable(), which checks the initial user namespace: the
            one that maps every user to itself.
    """
    text = attempt(host.read_text, f"/proc/{process}/status")
    status = {} if isinstance(text, Missing) else parse_status(text)
    if process == "self" and status.get("Uid", "0 0").split()[1:2] != ["0"]:
        return Missing("an ordinary user read it, who may do less than nginx's master")
    mask = text if isinstance(text, Missing) else status.get("CapEff")
    if not isinstance(mask, str):
        return mask or Missing("/proc/PID/status has no capabilities")
    capabilities = parse_capabilities(mask)
    if isinstance(capabilities, Missing):
        return capabilities
    if "sys_resource" not in capabilities:
        return False
    users = attempt(host.read_text, f"/proc/{process}/uid_map")
    return users if isinstance(users, Missing) else users.split() == ["0", "0", "4294967295"]


def sysctl_path(name: str) -> str:
    """The file of a sysctl."""
    return "/proc/sys/" + name.replace(".", "/")


def _read_line(host: Host, path: str) -> str:
    return " ".join(host.read_text(path).split())


def _read_integer(host: Host, sysctl: str) -> int | Missing:
    return read_parsed(host, sysctl_path(sysctl), parse_integer)


def _read_name(host: Host, path: str, option: str) -> str | Missing:
    """A name from its file in /proc (for the hardware since Linux 6.1), else from uname."""
    name = attempt(_read_line, host, path)
    if not isinstance(name, Missing):
        return name
    run = attempt(host.run, ["uname", option])
    return name if isinstance(run, Missing) else run.stdout.strip() or name


def _has_file(content: str | Missing, system: str | Missing) -> bool | Missing:
    """True if a file of /proc exists; Missing if all of /proc is unreadable."""
    if isinstance(content, Missing) and isinstance(system, Missing):
        return content
    return not isinstance(content, Missing)


def _read_tls(host: Host, release: str | Missing) -> bool | Missing | None:
    """True if kernel TLS is present or can be loaded.

    Source: net/tls/tls_proc.c; the first use of the ULP loads the module, but
    unprivileged workers lack the right to load it (net/ipv4/tcp_ulp.c).
    """
    if not isinstance(attempt(host.read_text, "/proc/net/tls_stat"), Missing):
        return True
    protocols = attempt(host.read_text, "/proc/sys/net/ipv4/tcp_available_ulp")
    if not isinstance(protocols, Missing) and "tls" in protocols.split():
        return True
    if isinstance(release, Missing):
        return release
    if not re.fullmatch(r"[\w.+~-]+", release):
        return Missing("the kernel release is not a file name")
    modules = attempt(host.list_dir, f"/lib/modules/{release}/kernel/net")
    if not isinstance(modules, Missing):
        return "tls" in modules
    if isinstance(attempt(host.list_dir, "/sys/module"), Missing):
        return Missing("neither /proc/net/tls_stat nor the directory of modules can be seen")
    if isinstance(attempt(host.read_text, "/proc/modules"), Missing):
        return False  # a kernel without modules, and without TLS
    return Missing(f"not loaded, and /lib/modules/{release} cannot be seen")


BOOTED = "/run/systemd/system"
"""A directory that exists under systemd: sd_booted(3)."""
UNIT = "nginx.service"
_ADMINISTRATOR = "/etc/systemd"
_PLACES = ("/usr/lib/systemd", "/lib/systemd", "/usr/local/lib/systemd", "/run/systemd")
"""Directories in ascending precedence; ``_ADMINISTRATOR`` overrides all of these."""
_EVERY = (*_PLACES, _ADMINISTRATOR)
_DEFAULT = DescriptorLimit(1024, 524_288)


def read_unit_limits(host: Host) -> DescriptorLimit | Missing:
    """The limits of systemd's unit nginx.service; Missing without systemd or without the unit."""
    if isinstance(attempt(host.list_dir, BOOTED), Missing):
        return Missing("systemd is not the running init")
    texts = [text for place in _EVERY if (text := _text(host, f"{place}/system/{UNIT}"))]
    if not texts:
        return Missing(f"no {UNIT} can be read")
    limits = _DEFAULT
    main = [text for place in _EVERY if (text := _text(host, f"{place}/system.conf"))][-1:]
    for text in (*main, *_drop_ins(host, [f"{place}/system.conf.d" for place in _EVERY])):
        limits = limits_in(text, "Manager", "DefaultLimitNOFILE", limits, _DEFAULT)
    manager = limits
    names = [f"{place}/system/{unit}.d" for unit in ("service", UNIT) for place in _EVERY]
    for text in (texts[-1], *_drop_ins(host, names)):
        limits = limits_in(text, "Service", "LimitNOFILE", limits, manager)
    return limits


def limits_in(
    text: str, section: str, key: str, before: DescriptorLimit, otherwise: DescriptorLimit
) -> DescriptorLimit:
    """The limits after reading a unit file: its last valid assignment counts.

    Without one they are ``before``; an empty assignment resets them to ``otherwise``.
    """
    found, current = before, ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            current = line.strip("[]")
        name, separator, value = line.partition("=")
        if not separator or current != section or name.strip() != key:
            continue
        soft, colon, hard = value.strip().partition(":")
        ends = [_count(soft), _count(hard if colon else soft)]
        if not value.strip():
            found = otherwise
        elif ends[0] is not None and ends[1] is not None:
            found = DescriptorLimit(ends[0], ends[1])
    return found


def _count(text: str) -> int | None:
    if text.strip() == "infinity":
        return UNLIMITED
    return int(text) if text.strip().isascii() and text.strip().isdigit() else None


def _drop_ins(host: Host, directories: list[str]) -> Iterator[str]:
    """The texts of drop-ins by name; a later directory's file replaces one of the same name."""
    by_name: dict[str, str] = {}
    for directory in directories:
        names = attempt(host.list_dir, directory)
        for name in [] if isinstance(names, Missing) else names:
            if name.endswith(".conf"):
                by_name[name] = f"{directory}/{name}"
    for name in sorted(by_name):
        yield _text(host, by_name[name])


def _text(host: Host, path: str) -> str:
    text = attempt(host.read_text, path)
    return "" if isinstance(text, Missing) else text
