"""Ports of tests are below those of clients, and neighbours are free too."""

from __future__ import annotations

import socket

import free_ports
import pytest


class Dice:
    """Draws what was laid down."""

    def __init__(self, *draws: int) -> None:
        self.draws = list(draws)

    def randrange(self, low: int, high: int) -> int:
        found = self.draws.pop(0)
        assert low <= found < high
        return found


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_port_whose_neighbour_somebody_has_is_not_given(
    monkeypatch: pytest.MonkeyPatch, family: int, address: str
) -> None:
    free = free_ports.free_port(neighbours=3)
    with socket.socket(family) as other:
        other.bind((address, free + 1))
        monkeypatch.setattr(free_ports, "_DICE", Dice(free, free + 1, free + 2))
        assert free_ports.free_port(neighbours=2) == free + 2
        monkeypatch.setattr(free_ports, "_DICE", Dice(free))
        assert free_ports.free_port() == free
