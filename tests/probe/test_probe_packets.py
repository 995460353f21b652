"""The guard rails by what is on the wire: a target that is not allowed gets not one packet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.needs("root", "ip", "probe")

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


class Told(NamedTuple):
    code: int
    stderr: str
    packets: list[tuple[str, str, str, int]]
    """Interface, protocol, destination and its port."""


def captured(*commands: list[str]) -> list[Told]:
    """What commands said and sent in a network of their own, one after another."""
    script = Path(__file__).with_name("captured_probe.py")
    lines = "".join(json.dumps(command) + "\n" for command in commands)
    root = str(Path(__file__).resolve().parents[2])
    run = subprocess.run(
        ["unshare", "-n", "sh", "-c", SETUP, "sh", sys.executable, script],
        input=lines, capture_output=True, text=True, check=True, timeout=240,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    told: list[dict[str, Any]] = [json.loads(line) for line in run.stdout.splitlines()]
    return [
        Told(one["code"], one["stderr"], [tuple(packet) for packet in one["packets"]])
        for one in told
    ]


SPOKEN = {
    "http1": ("https", []),
    "http2": ("https", ["--http2"]),
    "http2 without TLS": ("http", ["--http2"]),
    "http3": ("https", ["--http3"]),
}
BRIEF = ["--duration", "300ms", "--warmup", "0", "--timeout", "300ms"]


@pytest.mark.parametrize("spoken", SPOKEN)
def test_a_target_that_is_not_allowed_gets_no_packet(spoken: str) -> None:
    scheme, options = SPOKEN[spoken]

    def probe(address: str, *more: str) -> list[str]:
        return ["probe", f"{scheme}://{address}:4433/", *options, *BRIEF, *more]

    *refused, allowed = captured(
        probe(FAR),
        probe(FAR6),
        probe(FAR, "--allow-live"),
        probe(FAR, "--allow-target", "192.0.2.8"),
        # One of its own, which it did not start.
        probe(OWN),
        probe("127.0.0.1"),
        probe("[::1]"),
        probe(FAR, "--allow-target", FAR, "--allow-live"),
    )
    for told in refused:
        assert (told.code, told.packets) == (2, []), told
        assert "--allow-" in told.stderr
        assert len(told.stderr.splitlines()) == 1, told.stderr
    # The capture would have seen them: nobody is there, and it was asked.
    protocol = "udp" if spoken == "http3" else "tcp"
    assert ("wire", protocol, FAR, 4433) in allowed.packets, allowed
    # On loopback the probe tries out first how the kernel counts.
    outside = {packet[1:] for packet in allowed.packets if packet[0] != "lo"}
    assert outside == {(protocol, FAR, 4433)}, allowed
