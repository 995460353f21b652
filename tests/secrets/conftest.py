"""Secrets of the day: drawn anew in each run, by a seed that is printed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from corpus import draw_secrets

SEED = random.SystemRandom().randrange(2**32)


def pytest_report_header() -> str:
    """The seed, so that a failure can be had again."""
    return f"secrets drawn with seed {SEED}"


@pytest.fixture(scope="session")
def drawn_secrets() -> list[str]:
    """One of each kind."""
    return draw_secrets(random.Random(SEED))
