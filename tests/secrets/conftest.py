"""Secrets as people have them, drawn by the seed of the run (``tests/tiers.py``)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from corpus import draw_secrets
from tiers import dice, draws


@pytest.fixture(scope="session")
def drawn_secrets() -> list[str]:
    """One of each kind, or several in `make test-all`."""
    chance = dice("secrets")
    return [secret for _ in range(draws(1, 5)) for secret in draw_secrets(chance)]
