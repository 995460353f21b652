"""What nginx may use up, what is said where it cannot be bounded, and what is done without."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twins import twin

from nginx_tune.errors import MissingPermissionError
from nginx_tune.nginx.lab.cgroups import MemoryKills, count_memory_kills
from nginx_tune.nginx.lab.sandbox import explain_refusal, refuse_without_rights
from nginx_tune.sandbox.confinement import can_limit_numbers, has_own_numbers

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
SHORT = ("--pairs", "1", "--duration", "600ms", "--warmup", "100ms", "--accept-inconclusive")
NO_CGROUPS = (
    "for one in /sys/fs/cgroup /sys/fs/cgroup/*; do "
    'mount -o remount,bind,ro "$one" 2>/dev/null; done; exec "$@"'
)


def test_a_host_s_own_numbers_are_never_changed() -> None:
    for release, cpus, wanted, has in (
        ("6.14.0-15-generic", 8, 2048, True),
        ("7.0-rc1", 8, 2048, True),
        ("6.13.12", 8, 2048, False),
        ("5.15.0-1-amd64", 8, 2048, False),
        ("4.4.0", 8, 2048, False),
        ("6.14", 256, 2048, True),
        ("6.14", 257, 2048, False),
        ("6.14", 1, 300, False),
        ("strange", 1, 2048, False),
    ):
        assert has_own_numbers(release, cpus, wanted) is has, (release, cpus, wanted)


EPERM = "the lab ended: unshare: unshare failed: Operation not permitted"


def test_why_there_are_no_namespaces() -> None:
    table = [
        (EPERM, True, "root may not make", "seccomp=unconfined"),
        (EPERM, True, "of a systemd unit", "RestrictNamespaces=no"),
        (EPERM, False, "as an ordinary user", "with sudo"),
        ("the lab ended: unshare: unshare failed: No space left on device", True,
         "no namespace left", "user.max_mnt_namespaces"),
        ("the lab ended: unshare: cannot change root filesystem propagation: Permission denied",
         True, "Permission denied", "apparmor=unconfined"),
        ("the lab ended: unshare: cannot change root filesystem propagation: Invalid argument",
         True, "in this chroot", "pivot_root"),
    ]  # fmt: skip
    for said, is_root, message, hint in table:
        found = explain_refusal(said, is_root=is_root)
        assert found is not None, said
        assert message in found.message, said
        assert hint in found.hint, said


def test_what_is_not_about_namespaces_keeps_its_words() -> None:
    said = "/var/tmp/x: cannot be written: No space left on device"
    assert explain_refusal(said, is_root=True) is None


def test_root_is_told_what_it_lacks_for_the_sandbox() -> None:
    refuse_without_rights("Name:\tx\nCapEff:\t000001ffffffffff\n")
    refuse_without_rights("")  # not shown: nothing is known to be missing
    with pytest.raises(MissingPermissionError, match="CAP_SYS_ADMIN, CAP_KILL cannot") as found:
        refuse_without_rights("Name:\tx\nCapEff:\t000001ffffdfffdf\n")
    assert "--cap-add SYS_ADMIN --cap-add KILL " in found.value.hint
    assert "CapabilityBoundingSet=" in found.value.hint


def test_kills_are_counted_by_both_versions(tmp_path: Path) -> None:
    one, two = tmp_path / "v1", tmp_path / "v2"
    one.mkdir()
    two.mkdir()
    (one / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (one / "memory.limit_in_bytes").write_text("1048576\n")
    (two / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n")
    (two / "memory.max").write_text("max\n")
    assert count_memory_kills([one / "cgroup.procs"]) == MemoryKills(3, 1 << 20)
    assert count_memory_kills([two / "cgroup.procs"]) == MemoryKills(1, None)
    assert count_memory_kills([tmp_path / "cgroup.procs"]) == MemoryKills(0, None)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    root.mkdir()
    (tmp_path / "logs").mkdir()
    (root / "a").write_bytes(bytes(20_000))
    return write(tmp_path, "")


def write(place: Path, http: str, events: str = "") -> Path:
    path = place / "nginx.conf"
    path.write_text(
        f"user root; pid {place}/pid; error_log {place}/logs/error.log;\n"
        f"events {{ {events} }}\nhttp {{ access_log off; {http}\n"
        f"server {{ listen 18087; root {place}/site; location = /memory {{ return 200 x; }} }} }}\n"
    )
    return path


def without_cgroups(conf: Path, command: str, *words: str | Path) -> Any:
    state = {**os.environ, "XDG_STATE_HOME": str(conf.parent / "state")}
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", NO_CGROUPS, "sh", sys.executable, "-m", "nginx_tune", "-q",
         command, *words], capture_output=True, text=True, check=False, env=state,
    )  # fmt: skip


@pytest.mark.needs("root", "nginx", "probe")
def test_a_part_that_cannot_be_had_is_refused_or_given_up(conf: Path) -> None:
    given: list[str] = []
    wanted = ["memory"] if can_limit_numbers(2048) else ["processes", "memory"]
    words = (conf, "--against", twin(conf), *SHORT)
    for part in wanted:
        run = without_cgroups(conf, "validate", *words, *given)
        assert run.returncode == 4, run.stdout
        assert "Read-only file system" in run.stderr
        assert f"--weaker-sandbox {part} does without" in run.stderr
        assert run.stderr.count("\n") == 1
        given += ["--weaker-sandbox", part]
    verdict = conf.with_name("verdict")
    forms = ("-f", "console", "-f", f"json={verdict}")
    run = without_cgroups(conf, "validate", *words, *given, *forms)
    assert run.returncode in {0, 4}, run.stderr
    assert json.loads(verdict.read_text())["environment"]["weaker_walls"] == sorted(wanted)
    said = f"parts of the sandbox that this host lacks: {', '.join(sorted(wanted))}\n"
    assert said in run.stdout


@pytest.mark.needs("root", "nginx")
def test_what_is_over_in_a_minute_says_what_it_did_without(conf: Path, run_cli: RunCli) -> None:
    words = (conf, "--test", "--facts", "none")
    files = {form: conf.with_name(form) for form in ("json", "sarif")}
    forms = [word for form, file in files.items() for word in ("-f", f"{form}={file}")]
    run = without_cgroups(conf, "audit", *words, "-f", "console", *forms)
    assert run.returncode == 0, run.stderr
    assert "parts of the sandbox that this host lacks: memory" in run.stdout
    assert "memory" in json.loads(files["json"].read_text())["nginx_test"]["weaker_walls"]
    assert "parts of the sandbox that this host lacks" in files["sarif"].read_text()
    plain = run_cli("audit", *words)
    assert "parts of the sandbox that this host lacks" not in plain.stdout


@pytest.mark.needs("root", "nginx")
def test_root_without_its_rights_is_told_so(conf: Path) -> None:
    run = subprocess.run(
        ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, "-m",
         "nginx_tune", "validate", conf, "--against", twin(conf)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 4
    assert "root without the capability CAP_SYS_ADMIN" in run.stderr
    assert "--cap-add SYS_ADMIN" in run.stderr


@pytest.mark.needs("root", "nginx", "probe", "blkio")
def test_memory_that_is_used_up_is_named(conf: Path, run_cli: RunCli, tmp_path: Path) -> None:
    lab = tmp_path / "lab.toml"
    lab.write_text('name = "small"\nmemory_bytes = 33554432\n')
    # Each connection takes some 400 bytes of a worker's memory as it starts.
    write(tmp_path, "", events="worker_connections 400000;")
    run = run_cli("-q", "validate", conf, "--against", twin(conf), "--lab", lab, *SHORT)
    assert run.returncode == 4, run.stdout
    assert "ran out of the lab's 32 MiB of memory" in run.stderr
    assert "memory_bytes" in run.stderr


@pytest.mark.needs("root", "nginx", "probe")
def test_a_directory_that_nginx_does_not_make(conf: Path, run_cli: RunCli, tmp_path: Path) -> None:
    missing = tmp_path / "none" / "deeper"
    write(tmp_path, f"client_body_temp_path {missing}/temp;")
    run = run_cli("audit", conf, "--test", "--facts", "none")
    (tmp_path / "logs").rmdir()
    assert run.returncode == 3
    assert f"make {missing}: nginx makes only the last directory" in run.stdout
    run = run_cli("-q", "validate", conf, "--against", twin(conf), *SHORT, "-f", "json")
    assert run.returncode in {0, 4}, run.stderr
    said = "\n".join(json.loads(run.stdout)["environment"]["differences"])
    assert f"nginx does not start there without mkdir -p {missing}" in said
    write(tmp_path, f"client_body_temp_path {tmp_path}/temp;")
    run = run_cli("-q", "validate", conf, "--against", twin(conf), *SHORT, "-f", "json")
    said = "\n".join(json.loads(run.stdout)["environment"]["differences"])
    assert f"mkdir -p {tmp_path}/temp" not in said
    assert f"mkdir -p {tmp_path}/logs" in said, "its error log's directory is not there"
