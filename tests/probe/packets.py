"""Every packet of a network namespace of one's own, while something runs there.

Run by ``unshare --net`` with two lists as JSON: servers, and runs, each a command with what it
reads. Prints what each run said and how many packets there were meanwhile, of all protocols and
interfaces.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

ETH_P_ALL = 3
SETTLE_SECONDS = 0.2
"""Packets of a run that has ended are on their way for less."""


def set_up() -> None:
    """Loopback, and a link on which whoever is asked elsewhere would be looked for."""
    for words in (
        "link set lo up",
        "link add there type veth peer name away",
        "link set there up",
        "link set away up",
        "address add 10.254.0.1/24 dev there",
    ):
        subprocess.run(["ip", *words.split()], check=True)


def count(capture: socket.socket) -> int:
    packets = 0
    capture.settimeout(SETTLE_SECONDS)
    while True:
        try:
            capture.recv(1 << 16)
        except TimeoutError:
            return packets
        packets += 1


def main() -> None:
    servers, runs = json.loads(sys.argv[1])
    with open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w") as file:  # noqa: PTH123
        file.write("1")  # a new link would announce itself
    set_up()
    started = [subprocess.Popen(one, stdout=subprocess.PIPE) for one in servers]
    try:
        for one in started:
            assert one.stdout is not None
            one.stdout.readline()
        time.sleep(SETTLE_SECONDS)
        said = []
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as capture:
            for command, given in runs:
                before = count(capture)
                run = subprocess.run(
                    command, input=given, capture_output=True, text=True, timeout=60, check=False
                )
                said.append(
                    {
                        "status": run.returncode,
                        "errors": run.stderr,
                        "packets": count(capture),
                        "before": before,
                    }
                )
        sys.stdout.write(json.dumps(said))
    finally:
        for one in started:
            one.kill()


if __name__ == "__main__":
    main()
