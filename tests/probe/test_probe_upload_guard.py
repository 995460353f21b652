"""Bodies go to servers that nginx-tune started and to no other, whatever a plan or option says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from captured_probe import FAR, OWN, captured
from free_ports import free_port
from upload_loads import MARK, MARKED, UNMARKED, listening, sent, upload_class, upload_plan

from nginx_tune.documents.base import encode
from nginx_tune.documents.loadplan import Http3, LoadPlan, Permit, Target, Tls, Upload
from nginx_tune.errors import UsageError
from nginx_tune.host.lab_mark import ENVIRONMENT_MARK
from nginx_tune.measure.load.probe import find_probe, run_probe

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.needs("probe")

REFUSED = "is not a server that nginx-tune started: they are sent to no other, whatever is allowed"
ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent


def forged(target: Target, **changes: object) -> LoadPlan:
    """A plan that permits itself all that a plan can."""
    permit = Permit(
        live=True,
        ports=[target.port] if target.unix is None else [],
        hosts=[target.address] if target.unix is None else [],
        sockets=[target.unix] if target.unix is not None else [],
    )
    return upload_plan(target, upload_class("/plain"), permit=permit, **changes)


def asked_directly(plan: LoadPlan) -> subprocess.CompletedProcess[bytes]:
    """The probe itself, past all that Python says before."""
    return subprocess.run([find_probe()], input=encode(plan), capture_output=True, check=False)


def test_the_probe_reads_the_variable_that_labs_set() -> None:
    source = (ROOT / "probes" / "src" / "own_processes.rs").read_text()
    assert f'const VARIABLE: &str = "{ENVIRONMENT_MARK}";' in source


def test_a_plan_cannot_permit_bodies_to_a_server_of_somebody_else(tmp_path: Path) -> None:
    with listening(is_ours=False) as (port, _):
        for target in (
            Target(address="127.0.0.1", port=port),
            Target(address="::ffff:127.0.0.1", port=port),
        ):
            said = asked_directly(forged(target))
            assert (said.returncode, said.stdout) == (2, b"")
            assert REFUSED in said.stderr.decode()
            assert said.stderr.count(b"\n") == 1
        with pytest.raises(UsageError, match="is not a server that nginx-tune started"):
            run_probe(forged(Target(address="127.0.0.1", port=port)))
    path = str(tmp_path / "live.sock")
    with listening(path, is_ours=False):
        said = asked_directly(forged(Target(unix=path)))
        assert said.returncode == 2
        assert REFUSED in said.stderr.decode()


def test_another_class_that_is_let_through_lets_no_body_through() -> None:
    with listening() as (ours, _), listening(is_ours=False) as (live, _):
        own = Target(address="127.0.0.1", port=ours)
        plan = forged(own)
        other = upload_class("/plain", name="other", target=Target(address="127.0.0.1", port=live))
        permit = Permit(live=True, ports=[ours, live])
        plan = msgspec.structs.replace(plan, classes=[*plan.classes, other], permit=permit)
        said = asked_directly(plan)
        assert said.returncode == 2
        assert 'class "other" sends bodies' in said.stderr.decode()


def test_nobody_is_no_server_of_ours_and_neither_is_tcp_where_udp_is_asked() -> None:
    port = free_port()
    assert REFUSED in asked_directly(forged(Target(address="127.0.0.1", port=port))).stderr.decode()
    with listening() as (ours, _):
        target = Target(address="127.0.0.1", port=ours, tls=Tls(verify=False))
        plan = forged(target)
        plan = msgspec.structs.replace(
            plan, classes=[upload_class("/plain", connections=2, http3=Http3())]
        )
        assert REFUSED in asked_directly(plan).stderr.decode()


def test_a_socket_that_somebody_else_holds_too_is_not_ours() -> None:
    # A server of ours that was given a socket: who gave it may take connections from it as well.
    gives = (
        "import os, socket, subprocess, sys\n"
        "s = socket.create_server(('127.0.0.1', 0))\n"
        "words = [sys.executable, '-c', 'input()']\n"
        f"marked = {{**os.environ, {ENVIRONMENT_MARK!r}: {MARK!r}}}\n"
        "child = subprocess.Popen(words, env=marked, pass_fds=[s.fileno()])\n"
        "print(s.getsockname()[1], flush=True); child.wait()\n"
    )
    argv = [sys.executable, "-c", gives]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=UNMARKED
    ) as both:
        assert both.stdin is not None
        assert both.stdout is not None
        try:
            target = Target(address="127.0.0.1", port=int(both.stdout.readline()))
            said = asked_directly(forged(target))
        finally:
            both.stdin.close()
    assert (said.returncode, REFUSED in said.stderr.decode()) == (2, True)


def test_a_port_that_we_share_with_somebody_else_is_not_ours(tmp_path: Path) -> None:
    # Both listen, and the kernel gives each connection to either.
    share = (
        "import os, socket, sys, time\n"
        "s = socket.socket()\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen()\n"
        "print(s.getsockname()[1], flush=True); time.sleep(60)\n"
    )
    argv = [sys.executable, "-c", share]
    with subprocess.Popen([*argv, "0"], stdout=subprocess.PIPE, env=MARKED) as ours:
        assert ours.stdout is not None
        port = ours.stdout.readline().strip()
        argv = [*argv, port.decode()]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=UNMARKED) as other:
            assert other.stdout is not None
            other.stdout.readline()
            target = Target(address="127.0.0.1", port=int(port))
            assert REFUSED in asked_directly(forged(target)).stderr.decode()
            other.kill()
        ours.kill()


def test_a_socket_of_our_own_takes_bodies(tmp_path: Path) -> None:
    path = str(tmp_path / "own.sock")
    with listening(path):
        found, came = sent(Target(unix=path), upload_class("/plain"))
    assert (found.errors, came.confirmed) == ({}, 20)


def test_the_command_refuses_in_one_line_with_every_leave_there_is(
    run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    path = str(tmp_path / "live.sock")
    with listening(is_ours=False) as (port, _), listening(path, is_ours=False):
        for target in (
            Target(address="127.0.0.1", port=port),
            Target(unix=path),
            Target(address="192.0.2.1", port=80),
        ):
            file.write_bytes(encode(forged(target)))
            leave = ["--allow-live", "--allow-target", "192.0.2.1"]
            said = run_cli("probe", file, *leave)
            assert said.returncode == 2, said.stderr
            assert REFUSED in said.stderr
            assert said.stderr.count("\n") == 1
            assert said.stdout == ""


def test_what_contradicts_itself_is_refused() -> None:
    target = Target(address="127.0.0.1", port=9)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"upload": None}, "has method POST, and needs upload"),
        ({"method": "GET"}, "needs method POST or PUT"),
        ({"upload": Upload(bytes=[])}, "needs upload.bytes"),
        ({"read_bytes_per_second": 9}, "has read_bytes_per_second, which upload has not"),
        ({"headers": {"Expect": "100-continue"}}, "has a header Expect"),
        ({"headers": {"Content-Length": "1"}}, "has a header that the probe itself sets"),
    ]
    for changes, message in refused:
        plan = msgspec.structs.replace(forged(target), classes=[upload_class("/plain", **changes)])
        said = asked_directly(plan)
        assert said.returncode == 2, changes
        assert message in said.stderr.decode(), changes


@pytest.mark.needs("root", "ip")
def test_not_one_packet_leaves_where_bodies_are_refused(tmp_path: Path) -> None:
    socket_path = str(tmp_path / "live.sock")
    port = 8080
    serve = (
        "import socket, time\n"
        "a = socket.socket(); a.bind(('0.0.0.0', 8080)); a.listen()\n"
        "print('there', flush=True); time.sleep(120)\n"
    )
    servers = [
        [sys.executable, "-c", serve],
        [sys.executable, str(HERE / "upload_server.py"), socket_path],
    ]
    targets = [
        Target(address="127.0.0.1", port=port),
        Target(address=OWN, port=port),  # an address of this host
        Target(address=FAR, port=port),  # another host on the link
        Target(unix=socket_path),
    ]
    runs = []
    for number, target in enumerate(targets):
        plan = encode(forged(target)).decode()
        file = tmp_path / f"plan-{number}.json"
        file.write_text(plan)
        leave = ["--allow-live", "--allow-target", FAR]
        runs.append(([str(find_probe())], plan))
        runs.append(([sys.executable, "-m", "nginx_tune", "probe", str(file), *leave], ""))
    # That packets would be seen: the same without bodies, to the live server and the other host.
    for target in (targets[0], targets[2]):
        plain = upload_class("/plain", method="GET", upload=None, timeout_seconds=0.5)
        asking = msgspec.structs.replace(forged(target, drain_seconds=1.0), classes=[plain])
        runs.append(([str(find_probe())], encode(asking).decode()))
    said = captured(*runs, servers=servers, env=UNMARKED)
    assert len(said) == len(runs)
    for one in said[:-2]:
        assert (one.code, one.packets) == (2, []), one
        assert REFUSED in one.stderr
        assert one.stderr.count("\n") == 1
    for one in said[-2:]:
        assert one.code == 0, one
        assert one.packets
