"""The collector: one file for old Pythons that asks all the readers may want to know."""

import ast
import json
import os
import re
import runpy
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from machine import Machine
from machines import CAPTURES
from machines_more import CAPTURES as MORE_CAPTURES
from rows import each_row

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.facts import Running
from nginx_tune.documents.inspection import Capture
from nginx_tune.host.collect import collected
from nginx_tune.host.collector import render_collector
from nginx_tune.observe.inspect.inspection import record_host, replay

BUILDERS = {**CAPTURES, **MORE_CAPTURES}
RUN_CLI = Callable[..., "subprocess.CompletedProcess[str]"]
VERSIONS = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
OLD_PYTHONS = [
    path
    for name in ("3.6", "3.7", "3.8", "3.9", "3.13")
    for path in sorted(VERSIONS.glob(f"{name}.*/bin/python"))[:1]
]


class Plain(Machine):
    """A machine whose links and sockets are what JSON holds."""

    def __init__(self, machine: Machine) -> None:
        self.__dict__ = machine.__dict__

    def links(self) -> Any:
        return msgspec.to_builtins(super().links())

    def listening(self, pid: int | None) -> Any:
        return msgspec.to_builtins(super().listening(pid))


@pytest.mark.long
@each_row("name", sorted(BUILDERS))
def test_it_asks_all_that_the_readers_ask(name: str) -> None:
    """Whatever the machine: its facts are those of an inspection on the spot."""
    machine, request = BUILDERS[name]()
    recorded = record_host(machine, request)
    document = collected(Plain(machine), request.paths, request.nginx_binary, request.pid)
    capture = decode(Capture, json.dumps(document).encode())
    # It scans no datasets and watches no disks; what is declared is said at the reading.
    datasets = {
        q: a for q, a in recorded.answers.items() if q.split()[0] in {"dataset", "activity"}
    }
    capture = msgspec.structs.replace(
        capture, request=recorded.request, answers={**capture.answers, **datasets}
    )
    assert encode(replay(capture)) == encode(replay(recorded))


def test_a_labs_nginx_is_none_of_the_recorded_hosts() -> None:
    machine, request = BUILDERS["container-nginx"]()

    def running() -> Running | None:
        document = collected(Plain(machine), request.paths, request.nginx_binary, None)
        capture = decode(Capture, json.dumps(document).encode())
        return replay(capture).nginx.running

    seen = running()
    assert seen is not None
    machine.lab_processes.add(seen.pid)
    assert running() is None


@each_row(("variable", "is_ours"), [("NGINX_TUNE_LAB", True), ("NGINX_TUNE_LABEL", False)])
def test_the_file_knows_a_lab_by_its_mark(program: Path, variable: str, is_ours: bool) -> None:
    """Of an ancestor: nginx writes its title over its own environment."""
    rules = runpy.run_path(str(program))
    ancestor = ["sh", "-c", "env -i sleep 60 & echo $!; wait"]
    with subprocess.Popen(
        ancestor, env={**os.environ, variable: "1-a"}, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        try:
            assert rules["Here"]().is_in_lab(pid) is is_ours
        finally:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collector") / "collect.py"
    path.write_bytes(render_collector())
    return path


def test_it_needs_the_standard_library_alone(program: Path) -> None:
    tree = ast.parse(program.read_text(), feature_version=(3, 6))
    modules = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        str(node.module).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert modules <= set(sys.stdlib_module_names)


MOVING = re.compile(
    r"/memory/(available_bytes|cgroup_usage_bytes|page_cache_limit_\w+|dirty_\w+|consumers/\w+)"
    r"|/storage/paths/\d+/available_bytes"
    r"|/cpu/(steal_ratio|throttled/\w+)|/memory/swaps/\d+/used_bytes"
    r"|/network/(softnet|tcp)/\w+|/network/conntrack_entries|/network/links/\d+/missed_packets"
    r"|/nginx/.*|/listeners.*|/network/(listen_\w+|syn_queue_drops)|/unknown.*"
)
"""Other tests start nginx and use memory meanwhile."""


def differences(first: Any, second: Any, pointer: str = "") -> Iterator[str]:
    if isinstance(first, dict) and isinstance(second, dict):
        for key in first.keys() | second.keys():
            yield from differences(first.get(key), second.get(key), f"{pointer}/{key}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{pointer}/{index}")
    elif first != second:
        yield pointer


WITHOUT_OTHERS = ("unshare", "--pid", "--fork", "--mount-proc", "--net")
"""No nginx of this host is seen: one that starts or ends between two looks, whose limits and
network some facts are, makes these differ."""


@pytest.mark.needs("root")
@pytest.mark.alone
@each_row("python", [sys.executable, *OLD_PYTHONS], ids=str)
def test_it_sees_what_inspect_sees_here(python: str | Path, program: Path) -> None:
    """Over a pipe and with no environment, as ssh and Ansible run it."""
    collected = subprocess.run(
        [*WITHOUT_OTHERS, python, "-"], input=program.read_bytes(), capture_output=True,
        timeout=120, check=True, cwd="/", env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert collected.stderr == b""
    collected_facts = json.loads(encode(replay(decode(Capture, collected.stdout))))
    inspect = [*WITHOUT_OTHERS, sys.executable, "-m", "nginx_tune", "inspect", "-f", "json"]
    inspected = json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)
    # It reads no configuration, and so knows no logs.
    differing = set(differences(collected_facts, inspected)) - {"/access_logs"}
    assert {pointer for pointer in differing if not MOVING.fullmatch(pointer)} == set()
    reasons = {entry["reason"] for entry in collected_facts["unknown"]}
    assert not any("not in the capture" in reason for reason in reasons)


LINKS = (
    "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; "
    "ip link add br0 type bridge 2>/dev/null && ip link set v1 master br0 || true; "
    "ip link add bond0 type bond 2>/dev/null || true; "
    "ip link add link v0 name v0.7 type vlan id 7 2>/dev/null || true; "
    "ip link add team0 type team 2>/dev/null || true; "
    "ip link add d0 type dummy 2>/dev/null || true"
)


@pytest.mark.needs("root", "ip")
def test_its_netlink_agrees_with_pyroute2(program: Path) -> None:
    """Real links and a listener in a network namespace of their own, read both ways."""
    code = (
        "import json, socket, subprocess, sys; from pathlib import Path; "
        "from nginx_tune.host.live import LiveHost; import msgspec; "
        "s = socket.create_server(('127.0.0.1', 8080), backlog=7); "
        "t = socket.create_server(('::1', 8081), family=socket.AF_INET6, backlog=9999); "
        "c = socket.create_connection(('127.0.0.1', 8080)); "
        "here = LiveHost(); "
        "print(json.dumps([msgspec.to_builtins(here.links()), "
        "msgspec.to_builtins(here.listening(None))])); sys.stdout.flush(); "
        "subprocess.run([sys.executable, sys.argv[1]], check=True)"
    )
    said = subprocess.run(
        ["unshare", "--net", "sh", "-e", "-c", f'ip link set lo up; {LINKS}; exec "$@"', "sh",
         sys.executable, "-c", code, str(program)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    first, _, rest = said.stdout.partition("\n")
    links, listening = json.loads(first)
    answers = json.loads(rest)["answers"]
    theirs = answers["links"]["value"]
    assert [link["name"] for link in theirs] == [link["name"] for link in links]
    for link, their in zip(links, theirs, strict=True):
        assert {**link, **their} == link
    # Asked of another namespace alone; the collector leaves out what it has not.
    assert {"sysctls": None, **answers["listening self"]["value"]} == listening
    backlogs = {one["port"]: (one["backlog"], one["accept_queue"]) for one in listening["sockets"]}
    assert backlogs[8080] == (7, 1)
    assert backlogs[8081] == (listening["somaxconn"], 0)


def test_its_file_is_private_and_complete(program: Path, tmp_path: Path) -> None:
    target = tmp_path / "host.json"
    target.touch(mode=0o644)
    subprocess.run([sys.executable, program, "-o", target], check=True, timeout=120)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert replay(decode(Capture, target.read_bytes())).kernel.system == "Linux"


def test_the_command_prints_it(run_cli: RUN_CLI, program: Path) -> None:
    said = run_cli("collector")
    assert said.returncode == 0
    assert said.stdout == program.read_text()


def test_a_target_that_cannot_be_written(program: Path) -> None:
    said = subprocess.run(
        [sys.executable, program, "-o", "/no/such/dir/x"], capture_output=True, check=False
    )
    assert said.returncode == 2
    assert b"cannot write" in said.stderr
    assert b"Traceback" not in said.stderr
