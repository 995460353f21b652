"""Run in a network of its own: commands, each with the packets that left or came while it ran.

Reads lines of JSON, a list of arguments of ``nginx-tune`` each; prints for each a line of JSON:
``code``, ``stderr``, and ``packets``, of TCP and UDP alone: interface, protocol, destination, port.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
import sys
import time

ETH_P_ALL = 3
IP, IPV6 = 0x0800, 0x86DD
PROTOCOLS = {6: "tcp", 17: "udp"}


def main() -> None:
    """Serve until there is no other line."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        taken.settimeout(0.2)
        for line in sys.stdin:
            command = [sys.executable, "-m", "nginx_tune", *json.loads(line)]
            run = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=60, env=os.environ
            )
            told = {"code": run.returncode, "stderr": run.stderr, "packets": packets(taken)}
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


def packets(taken: socket.socket) -> list[list[object]]:
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
            above = (packet[0] & 15) * 4
            number, destination = packet[9], packet[16:20]
        elif kind == IPV6:
            above = 40
            number, destination = packet[6], packet[24:40]
        else:
            continue
        # Routers and groups of IPv6 are asked for by the kernel itself.
        if protocol := PROTOCOLS.get(number):
            port = int.from_bytes(packet[above + 2 : above + 4], "big")
            found.append([interface, protocol, str(ipaddress.ip_address(destination)), port])
    return found


if __name__ == "__main__":
    main()
