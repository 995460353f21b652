"""The guard rails by what is on the wire: a target that is not allowed gets not one packet."""

import sys

import pytest
from captured_probe import FAR, FAR6, OWN, captured

pytestmark = pytest.mark.needs("root", "ip", "probe")

SPOKEN = {
    "http1": ("https", []),
    "http2": ("https", ["--http2"]),
    "http2 without TLS": ("http", ["--http2"]),
    "http3": ("https", ["--http3"]),
}
BRIEF = ["--duration", "300ms", "--warmup", "0", "--timeout", "300ms"]


@pytest.mark.parametrize(
    "spoken",
    [
        "http1",
        "http3",
        *(pytest.param(one, marks=pytest.mark.thorough) for one in SPOKEN if "http2" in one),
    ],
)
def test_a_target_that_is_not_allowed_gets_no_packet(spoken: str) -> None:
    scheme, options = SPOKEN[spoken]

    def probe(address: str, *more: str) -> tuple[list[str], str]:
        url = f"{scheme}://{address}:4433/"
        return [sys.executable, "-m", "nginx_tune", "probe", url, *options, *BRIEF, *more], ""

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
