"""Commands run in a network of their own, each with every packet that left or came meanwhile.

``captured`` runs this file inside that network; there it reads one JSON object (``servers`` and
``runs``, each of these a command and what it reads) and prints a list, one told of each run.
"""

import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SETUP = """
set -e
ip link set lo up
ip link add wire type veth peer name end
ip addr add 192.0.2.1/24 dev wire
ip -6 addr add 2001:db8::1/64 dev wire nodad
ip link set wire up
ip link set end up
# Nobody is there to be asked where they are.
ip neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev wire
ip -6 neigh add 2001:db8::7 lladdr 02:00:00:00:00:07 dev wire
exec "$@"
"""
FAR, FAR6, OWN = "192.0.2.7", "[2001:db8::7]", "192.0.2.1"

ETH_P_ALL = 3
IP, IPV6 = 0x0800, 0x86DD
PROTOCOLS = {6: "tcp", 17: "udp"}
OF_THE_KERNEL = {0, 58}
"""Protocols above IPv6 in which it asks routers and groups by itself: options (MLD) and ICMPv6."""


class Told(NamedTuple):
    """Of one run."""

    code: int
    stderr: str
    packets: list[tuple[str, str, str, int]]
    """Interface, protocol, destination and its port."""


def captured(
    *runs: tuple[Sequence[str], str],
    servers: Sequence[Sequence[str]] = (),
    env: Mapping[str, str] = os.environ,
) -> list[Told]:
    """What commands said and sent, one after another; each server has printed a line before."""
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", SETUP, "sh", sys.executable, __file__],
        input=json.dumps({"servers": servers, "runs": runs}), capture_output=True, text=True,
        check=False, timeout=240, env={**env, "PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return [Told(code, said, [tuple(one) for one in packets]) for code, said, packets in told]


def main() -> None:
    """Inside."""
    given = json.loads(sys.stdin.read())
    started = [subprocess.Popen(one, stdout=subprocess.PIPE) for one in given["servers"]]
    told: list[Told] = []
    try:
        for one in started:
            assert one.stdout is not None
            one.stdout.readline()
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
            taken.settimeout(0.2)
            for command, reads in given["runs"]:
                run = subprocess.run(
                    command, input=reads, capture_output=True, text=True, check=False, timeout=60
                )
                told.append(Told(run.returncode, run.stderr, packets(taken)))
    finally:
        for one in started:
            one.kill()
    sys.stdout.write(json.dumps(told))


def packets(taken: socket.socket) -> list[tuple[str, str, str, int]]:
    """What was captured until nothing comes any more."""
    found = []
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            packet, address = taken.recvfrom(65536)
        except TimeoutError:
            break
        interface, kind = address[:2]
        if kind == IP:
            above, number, destination = (packet[0] & 15) * 4, packet[9], packet[16:20]
        elif kind == IPV6:
            above, number, destination = 40, packet[6], packet[24:40]
        else:
            found.append((interface, f"ethernet {kind:#06x}", "", 0))
            continue
        if kind == IPV6 and number in OF_THE_KERNEL:
            continue
        protocol = PROTOCOLS.get(number, f"ip {number}")
        port = int.from_bytes(packet[above + 2 : above + 4], "big") if number in PROTOCOLS else 0
        found.append((interface, protocol, str(ipaddress.ip_address(destination)), port))
    return found


if __name__ == "__main__":
    main()
