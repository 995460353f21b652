"""The nginx program and its running processes: real ones, and ones that only look like it."""

import contextlib
import json
import os
import select
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from started import running as running_nginx

from nginx_tune.errors import UsageError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.programs import vouch_for
from nginx_tune.nginx.binary import choose_nginx, read_build, read_nginx
from nginx_tune.nginx.processes import find_masters
from nginx_tune.observe.inspect.facts import gather_facts


@pytest.fixture
def running(tmp_path: Path) -> Iterator[int]:
    """A real nginx with two workers and a thread pool; its master's pid."""
    port = free_port()
    (tmp_path / "n.conf").write_text(
        f"worker_processes 2; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
        "thread_pool default threads=3; worker_rlimit_nofile 4321;\n"
        f"events {{}} http {{ access_log off; server {{ listen 127.0.0.1:{port}; aio threads;"
        f" root {tmp_path}; }} }}\n"
    )
    argv = ["/usr/sbin/nginx", "-p", f"{tmp_path}/", "-c", "n.conf", "-g", "daemon off;"]
    with running_nginx(argv, 2) as master:
        yield master


@pytest.mark.needs("root", "nginx")
def test_a_running_nginx(running: int, tmp_path: Path) -> None:
    facts = gather_facts(LiveHost(), pid=running)
    nginx = facts.nginx
    assert nginx.product == "nginx"
    assert nginx.version == nginx.nginx_version
    assert "--with-threads" in nginx.flags
    assert nginx.running is not None
    assert nginx.running.pid == running
    assert nginx.running.conf_path == f"{tmp_path}/n.conf"
    assert nginx.running.prefix == f"{tmp_path}/"
    assert nginx.running.other_mount_namespace is False
    assert [worker.threads for worker in nginx.running.workers] == [4, 4]
    assert {worker.nofile_soft for worker in nginx.running.workers} == {4321}
    assert facts.limits.nofile_soft != 4321, "limits are those a new nginx would start with"
    assert all(worker.cpus_allowed for worker in nginx.running.workers)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[tuple[int, Path]]]:
    """Two nginx with prefixes of their own; by age, each master with what it reads."""
    started = []
    for name in ("first", "second"):
        home = tmp_path / name
        (home / "html").mkdir(parents=True)
        (home / "n.conf").write_text(
            f"user root; pid {home}/pid; error_log {home}/error.log; events {{}}\n"
            f"http {{ access_log off; server {{ listen unix:{home}/s; root html; }} }}\n"
        )
        subprocess.run(["/usr/sbin/nginx", "-p", f"{home}/", "-c", "n.conf"], check=True)
        started.append((int((home / "pid").read_text()), home / "n.conf"))
    yield started
    for pid, _ in started:
        held = os.pidfd_open(pid)
        os.kill(pid, signal.SIGTERM)
        select.select([held], [], [], 10)
        os.close(held)


@pytest.mark.needs("root", "nginx")
def test_of_several_the_one_that_reads_the_configuration_is_meant(
    two: list[tuple[int, Path]], run_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The prefix of another one would have its relative paths stand somewhere else."""
    for pid, conf in two:
        nginx, _ = read_nginx(LiveHost(), conf_path=str(conf), to_run=True)
        assert nginx.running is not None
        assert (nginx.running.pid, nginx.running.prefix) == (pid, f"{conf.parent}/")
        assert nginx.choice.endswith(f"of process {pid}: it reads this configuration")
        audited = run_cli("audit", conf)
        assert "not the configuration of this host's nginx" not in audited.stderr
        planned = run_cli("plan", conf, "--only", "connections", "-f", "json")
        assert json.loads(planned.stdout)["nginx_choice"] == nginx.choice


@pytest.mark.needs("root", "nginx")
def test_a_container_s_executable_is_not_run(running: int) -> None:
    """Its title and uid 0 prove nothing from another mount namespace."""
    masters = [m for m in find_masters(LiveHost()) if m.pid == running]
    assert choose_nginx(LiveHost(), masters).may_run

    class Elsewhere(LiveHost):
        def read_link(self, path: str) -> str:
            return "mnt:[1]" if path == f"/proc/{running}/ns/mnt" else super().read_link(path)

        def read_text(self, path: str) -> str:
            text = super().read_text(path)
            more = "999 1 0:99 / /etc/nginx rw - tmpfs none rw\n"
            return text + more if path == f"/proc/{running}/mountinfo" else text

    assert not choose_nginx(Elsewhere(), masters).may_run
    for given in ({"to_run": True}, {"conf_path": "/etc/nginx/nginx.conf"}):
        installed = choose_nginx(Elsewhere(), masters, **given)
        assert (installed.source, installed.may_run, installed.master) == ("installed", True, None)


@pytest.mark.needs("nginx")
def test_the_real_binary() -> None:
    build = read_build(LiveHost(), "/usr/sbin/nginx")
    assert build.product == "nginx"
    assert build.conf_path == "/etc/nginx/nginx.conf"
    assert not any("-O2" in flag for flag in build.flags)


def fake_nginx(directory: Path, text: str) -> str:
    path = directory / "nginx"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{text}\nEOF\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    vouch_for(str(path))
    return str(path)


def test_an_nginx_without_threads(tmp_path: Path) -> None:
    binary = fake_nginx(tmp_path, "nginx version: nginx/1.20.2\nconfigure arguments: --with-debug")
    nginx, _ = read_nginx(LiveHost(), binary=binary)
    assert nginx.flags == ["--with-debug"]
    assert nginx.binary == binary


def test_a_named_binary_that_is_no_nginx() -> None:
    taken = []
    for binary in ("/bin/ls", "/no/such/nginx", "/etc/hostname", ""):
        with contextlib.suppress(UsageError):
            read_nginx(LiveHost(), binary=binary)
            taken.append(binary)
    assert taken == []


def test_a_pid_that_is_no_master() -> None:
    with pytest.raises(UsageError, match="not a visible nginx master"):
        read_nginx(LiveHost(), pid=os.getpid())


def test_no_nginx_anywhere() -> None:
    class Bare(LiveHost):
        def find_program(self, name: str) -> str:
            return super().find_program(f"no-{name}")

        def processes(self, *names: str) -> list[int]:
            return []

    facts = gather_facts(Bare())
    assert facts.nginx.binary is None
    reasons = {unknown.path: unknown.reason for unknown in facts.unknown}
    assert "--nginx" in reasons["/nginx/binary"]
    assert reasons["/nginx/product"]
    assert reasons["/nginx/running"]
