"""``doctor``: what a host lets nginx-tune measure."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import RunCli
from machine import Machine
from machines import CAPTURES
from machines_more import CAPTURES as MORE_CAPTURES
from parts import base, cgroup_v2, mounts, nginx, process
from rows import each_row
from unprivileged import AS_NOBODY, copy_package, interpreter

import nginx_tune
from nginx_tune import __version__
from nginx_tune.documents.facts_machine import Listening
from nginx_tune.documents.inspection import Doctor
from nginx_tune.host.door import ProgramResult
from nginx_tune.observe.inspect.doctor import examine, names, unmet

BUILDERS = {**CAPTURES, **MORE_CAPTURES}
ALL_CAPABILITIES = "000001ffffffffff"


def said(doctor: Doctor, name: str) -> tuple[str, str, str]:
    check = next(check for check in doctor.checks if check.name == name)
    return check.status, check.detail, check.fix


def able(*, capabilities: str = ALL_CAPABILITIES) -> Machine:
    """A host on which everything is there."""
    machine = Machine()
    base(machine, release="6.12.48+deb13-amd64", cpus=2, model="Intel Xeon Processor (Cascadelake)")
    process(machine, "self", cpus="0-1", cgroup="0::/\n")
    machine.files["/proc/self/status"] += f"CapEff:\t{capabilities}\n"
    cgroup_v2(machine, "")
    machine.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
    mounts(machine, "28 1 8:1 / / rw - ext4 /dev/sda1 rw")
    nginx(machine, "1.28.0")
    for kind in ("net", "pid", "ipc"):
        machine.link(f"/proc/self/ns/{kind}", f"{kind}:[4026531836]")
    for path in ("/dev/loop-control", "/dev/fuse", "/proc/self/io"):
        machine.write(path, "")
    machine.write("/proc/sys/kernel/task_delayacct", "1\n")
    machine.write("/proc/sys/kernel/perf_event_paranoid", "2\n")
    machine.write("/etc/os-release", 'ID=ubuntu\nID_LIKE="debian"\n')
    machine.write("/sys/kernel/tracing/events/syscalls/sys_enter_epoll_pwait/id", "700\n")
    machine.write("/sys/kernel/tracing/events/sched/sched_switch/id", "300\n")
    machine.write("/sys/kernel/tracing/uprobe_events", "")
    for program in ("bpftrace", "unshare", "losetup", "mkfs.ext4"):
        machine.programs[f"/usr/bin/{program}"] = ProgramResult(0, "", "")
    machine.write("/proc/filesystems", "nodev\ttracefs\n\text4\n")
    machine.sockets[None] = Listening()
    return machine


def test_a_host_with_everything() -> None:
    doctor = examine(able())
    statuses = {check.name: check.status for check in doctor.checks if check.name != "load-probe"}
    assert set(statuses.values()) == {"ok"}
    assert all(check.fix == "" for check in doctor.checks if check.status == "ok")


def test_an_empty_host_answers_every_check() -> None:
    doctor = examine(Machine())
    assert [check.name for check in doctor.checks] == names()
    assert {check.status for check in doctor.checks} >= {"missing", "unknown"}
    assert all(check.detail for check in doctor.checks)
    assert all(check.needed_for for check in doctor.checks)


@each_row("name", sorted(BUILDERS))
def test_every_recorded_host_can_be_examined(name: str) -> None:
    assert len(examine(BUILDERS[name]()[0]).checks) == len(names())


def test_an_ordinary_user_is_told_which_right_is_missing() -> None:
    machine = able(capabilities="0000000000000000")
    assert said(examine(machine), "namespaces")[:2] == (
        "ok", "by a user namespace of an ordinary user (tried)",
    )  # fmt: skip
    machine.programs["/usr/bin/unshare"] = ProgramResult(1, "", "unshare: no\n")
    machine.programs["/usr/bin/bpftrace"] = ProgramResult(
        1, "", "ERROR: bpftrace currently only supports running as the root user.\n"
    )
    doctor = examine(machine)
    assert said(doctor, "namespaces") == (
        "missing", "no user namespace either (tried): unshare: no", "run it with sudo",
    )  # fmt: skip
    for name in ("bpftrace", "uprobes"):
        assert said(doctor, name) == (
            "missing",
            "/usr/bin/bpftrace (tried): bpftrace currently only supports running as the root user.",
            "run it with sudo",
        )
    assert said(doctor, "taskstats")[0] == "missing"
    assert said(doctor, "sock-diag")[0] == "ok"


@each_row(
    ("name", "change", "status", "fix"),
    [
        ("delay-accounting", ("/proc/sys/kernel/task_delayacct", "0\n"), "missing",
         "sysctl kernel.task_delayacct=1, then reload nginx"),
        ("delay-accounting", ("/proc/sys/kernel/task_delayacct", None), "unknown", ""),
        ("cgroup-io", ("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n"), "missing",
         "echo +io > /sys/fs/cgroup/cgroup.subtree_control (in the group above)"),
        ("cgroup-io", ("/sys/fs/cgroup/cgroup.controllers", None), "unknown", ""),
        ("loop-devices", ("/dev/loop-control", None), "missing", "modprobe loop"),
        ("pressure", ("/proc/pressure/io", None), "missing", "boot with psi=1"),
        ("taskstats", ("/proc/self/io", None), "unknown", ""),
        ("tracepoints", ("/sys/kernel/tracing/events/syscalls/sys_enter_epoll_pwait/id", None),
         "missing", ""),
        ("uprobes", ("/sys/kernel/tracing/uprobe_events", None), "missing", ""),
        ("fuse", ("/dev/fuse", None), "missing", "modprobe fuse"),
        ("loop-devices", ("/usr/bin/mkfs.ext4", None), "missing", "apt-get install e2fsprogs"),
    ],
)  # fmt: skip
def test_what_is_missing_and_its_cure(
    name: str, change: tuple[str, str | None], status: str, fix: str
) -> None:
    machine = able()
    path, text = change
    if text is None:
        machine.files.pop(path, None)
        machine.programs.pop(path, None)
    else:
        machine.write(path, text)
    found = said(examine(machine), name)
    assert (found[0], found[2]) == (status, fix)


@each_row(
    ("release", "command"),
    [
        ("ID=fedora\n", "dnf install util-linux"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install util-linux"),
        ("ID=alpine\n", "apk add losetup"),
        ("ID=plan9\n", "install mount"),
    ],
)
def test_the_distribution_decides_how_to_install(release: str, command: str) -> None:
    machine = able()
    machine.write("/etc/os-release", release)
    del machine.programs["/usr/bin/losetup"]
    assert said(examine(machine), "loop-devices")[2] == command


def test_tracefs_that_is_not_mounted() -> None:
    for capabilities, expected in (
        (ALL_CAPABILITIES, ("tracefs is not mounted; observe mounts it for itself alone", "")),
        (
            "0000000000000000",
            ("tracefs is not mounted; not permitted (needs CAP_SYS_ADMIN)", "run it with sudo"),
        ),
    ):
        machine = able(capabilities=capabilities)
        del machine.files["/sys/kernel/tracing/events/syscalls/sys_enter_epoll_pwait/id"]
        del machine.files["/sys/kernel/tracing/events/sched/sched_switch/id"]
        del machine.files["/sys/kernel/tracing/uprobe_events"]
        machine.directories.add("/sys/kernel/tracing")
        assert said(examine(machine), "tracepoints")[1:] == expected
        assert said(examine(machine), "uprobes")[0] == "unknown"
        machine.directories.add("/sys/bus/event_source/devices/uprobe")
        assert said(examine(machine), "uprobes")[0] == "ok"


HIDDEN = {
    "/sys": {"cgroup-io": "missing", "tracepoints": "missing", "uprobes": "unknown"},
    "/proc": {
        "namespaces": "unknown", "tracepoints": "unknown", "root": "unknown",
        "process-ids": "unknown", "taskstats": "unknown", "delay-accounting": "unknown",
    },
}  # fmt: skip


@each_row("hidden", HIDDEN)
def test_what_is_hidden_is_not_taken_for_what_the_kernel_lacks(hidden: str) -> None:
    machine = able()
    for path in [*machine.files, *machine.symlinks, *machine.directories]:
        # With /sys hidden /proc still tells; with /proc hidden tracefs is not mounted either.
        if path.startswith((hidden, "/sys/kernel/tracing")) and "mountinfo" not in path:
            machine.files.pop(path, None)
            machine.symlinks.pop(path, None)
            machine.directories.discard(path)
    doctor = examine(machine)
    for check in doctor.checks:
        assert "the kernel has no" not in check.detail, check
    for name, status in HIDDEN[hidden].items():
        assert said(doctor, name)[0] == status, said(doctor, name)


def test_what_the_kernel_is_known_to_lack() -> None:
    machine = able()
    for path in list(machine.files):
        if path.startswith("/sys/kernel/tracing"):
            del machine.files[path]
    machine.write("/proc/filesystems", "\text4\n")
    del machine.symlinks["/proc/self/ns/ipc"]
    assert said(examine(machine), "tracepoints")[1].startswith("the kernel has no tracefs")
    assert said(examine(machine), "namespaces")[1].startswith("the kernel has no ipc")


@pytest.mark.needs("root")
def test_a_real_host_with_sys_hidden() -> None:
    command = f"mount -t tmpfs none /sys && exec {sys.executable} -m nginx_tune doctor -f json"
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=True
    )
    checks = {check["name"]: check for check in json.loads(run.stdout)["checks"]}
    assert not any("the kernel has no" in check["detail"] for check in checks.values())
    for name in ("tracepoints", "cgroup-memory", "cgroup-io", "cgroup-cpu"):
        assert checks[name]["status"] != "ok", checks[name]


@pytest.mark.needs("root")
def test_a_real_host_with_proc_hidden() -> None:
    """An empty directory where /proc should be: nothing crashes, and nothing is said to lack."""
    command = f"mount -t tmpfs none /proc && exec {sys.executable} -m nginx_tune doctor -f json"
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=True
    )
    checks = {check["name"]: check for check in json.loads(run.stdout)["checks"]}
    assert list(checks) == names()
    assert not any("the kernel has no" in check["detail"] for check in checks.values())
    for name in ("root", "process-ids", "taskstats", "delay-accounting"):
        assert checks[name]["status"] == "unknown", checks[name]


@pytest.mark.needs("root", "nobody")
def test_a_real_host_as_nobody_and_as_root() -> None:
    """What is said to be there for root alone is said to be missing, with what helps."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        path = copy_package(Path(place))
        program = interpreter()
        assert program is not None
        found = {}
        for who, options in (("nobody", AS_NOBODY), ("root", {})):
            said = subprocess.run(
                [program, "-m", "nginx_tune", "doctor", "-f", "json"], capture_output=True,
                text=True, check=True, cwd="/", timeout=120,
                env={"PYTHONPATH": str(path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, **options,
            )  # fmt: skip
            checks = {one["name"]: one for one in json.loads(said.stdout)["checks"]}
            assert list(checks) == names()
            found[who] = checks
    root, nobody = found["root"], found["nobody"]
    assert (root["root"]["status"], nobody["root"]["status"]) == ("ok", "missing")
    assert nobody["root"]["fix"] == "run it with sudo"
    for name in ("taskstats", "cgroup-memory", "loop-devices"):
        if root[name]["status"] == "ok":
            assert nobody[name]["status"] == "missing", nobody[name]
            assert nobody[name]["fix"], name
    assert nobody["sock-diag"]["status"] == root["sock-diag"]["status"]


def test_what_only_the_initial_process_namespace_sees() -> None:
    machine = able()
    machine.link("/proc/self/ns/pid", "pid:[4026532999]")
    assert said(examine(machine), "process-ids")[::2] == ("missing", "run it on the host itself")


def test_what_is_required_and_not_there() -> None:
    doctor = examine(able(capabilities="0000000000000000"))
    assert [check.name for check in unmet(doctor, ["nginx", "taskstats"])] == ["taskstats"]
    assert not unmet(doctor, ["nginx"])


@pytest.mark.long
def test_a_requirement_decides_the_status(run_cli: RunCli) -> None:
    found = {c["name"]: c for c in json.loads(run_cli("doctor", "-f", "json").stdout)["checks"]}
    for name in ("root", "threads", "bpftrace", "delay-accounting"):
        status = run_cli("doctor", "--require", name, "-o", "/dev/null").returncode
        assert status == (0 if found[name]["status"] == "ok" else 4), name


def test_a_check_that_is_none(run_cli: RunCli) -> None:
    run = run_cli("doctor", "--require", "luck")
    assert run.returncode == 2
    assert "no such check" in run.stderr
    assert len(run.stderr.splitlines()) == 1


PLATFORMS = "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
WHEEL = f"nginx_tune-{__version__}-py3-none-{PLATFORMS}.whl"
PIP = f"{sys.executable} -m pip install --force-reinstall --no-deps"
UV = f"uv pip install --python {sys.executable} --reinstall-package nginx-tune"
BUILT = "with cargo 1.85 or later: NGINX_TUNE_REQUIRE_RUST=1 "


@each_row(
    ("cpu", "installer", "origin", "line"),
    [
        ("x86_64", "pip", "", f"{PIP} {WHEEL}"),
        ("x86_64", "pip", "file:///srv/a%20b/tune-0-any.whl", f"{PIP} '/srv/a b/{WHEEL}'"),
        ("x86_64", "uv", "https://h.example/tune-0-any.whl", f"{UV} https://h.example/{WHEEL}"),
        ("x86_64", "pip", "file:///srv/checkout", f"{BUILT}{PIP} /srv/checkout"),
        ("riscv64", "pip", "", f"{BUILT}{PIP} CHECKOUT"),
    ],
)
def test_a_missing_probe_is_one_line_with_the_command_that_installs_it(
    cpu: str,
    installer: str,
    origin: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_cli: RunCli,
) -> None:
    records = {"INSTALLER": f"{installer}\n"}
    if origin:
        records["direct_url.json"] = json.dumps({"url": origin})
    installed = SimpleNamespace(read_text=records.get)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: installed)
    monkeypatch.setattr(nginx_tune, "__file__", str(tmp_path / "nginx_tune" / "__init__.py"))
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine=cpu))
    run = run_cli("probe", "http://127.0.0.1:9/", "--allow-live")
    assert run.returncode == 4
    assert run.stderr.startswith("nginx-tune: this installation has no load probe"), run.stderr
    assert run.stderr.endswith(f"({line})\n"), run.stderr
    assert said(examine(Machine()), "load-probe")[::2] == ("missing", line)
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes" / "Cargo.toml").touch()
    built = f"with cargo 1.85 or later: cd {tmp_path}/probes && cargo build --release --locked"
    assert said(examine(Machine()), "load-probe")[2] == built
