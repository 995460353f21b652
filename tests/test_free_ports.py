"""Ports of tests are below those of clients, and neighbours are free too."""

import socket
from pathlib import Path

import free_ports
import pytest
from rows import each_row


class Dice:
    """Draws what was laid down."""

    def __init__(self, *draws: int) -> None:
        self.draws = list(draws)

    def randrange(self, low: int, high: int) -> int:
        found = self.draws.pop(0)
        assert low <= found < high
        return found


@each_row("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@each_row(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_whose_neighbour_somebody_has_is_not_given(
    monkeypatch: pytest.MonkeyPatch, family: int, address: str, kind: int
) -> None:
    free = free_ports.free_port(neighbours=3)
    with socket.socket(family, kind) as other:
        other.bind((address, free + 1))
        monkeypatch.setattr(free_ports, "_DICE", Dice(free, free + 1, free + 2))
        assert free_ports.free_port(neighbours=2) == free + 2
        monkeypatch.setattr(free_ports, "_DICE", Dice(free))
        assert free_ports.free_port() == free


@each_row(
    ("said", "below"), [("32768\t60999\n", 32_768), ("1024\t65535\n", 49_152), (None, 49_152)]
)
def test_there_are_ports_whatever_clients_are_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str | None, below: int
) -> None:
    file = tmp_path / "ip_local_port_range"
    if said is not None:
        file.write_text(said, encoding="ascii")
    monkeypatch.setattr(free_ports, "_OF_CLIENTS", file)
    assert all(10_240 <= free_ports.free_port() < below for _ in range(50))
