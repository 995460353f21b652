"""The gate, and all: which tests run, and from which seed they draw.

`make test` is the gate: the same tests with the same seed each time. `make test-all` sets
``NGINX_TUNE_TESTS=all`` and a fresh ``SEED``: tests marked ``thorough`` run too, and what is drawn
is drawn more often. What a fresh seed finds becomes a fixed case of the gate.
"""

import os
import random

ALL = os.environ.get("NGINX_TUNE_TESTS") == "all"

SEED = int(os.environ.get("SEED") or 14)

REPEAT = f"SEED={SEED} NGINX_TUNE_TESTS=all" if ALL else f"SEED={SEED}"
"""The variables that draw the same again: for the message of a failure."""

FUZZ_SECONDS = float(os.environ.get("NGINX_TUNE_FUZZ_SECONDS") or 60) if ALL else 0.0
"""How long a harness draws on (`tests/fuzzing.py`)."""


def draws(gate: int, thorough: int) -> int:
    """How many to draw."""
    return thorough if ALL else gate


def dice(name: object) -> random.Random:
    """A source of chance of this run's seed, apart from those of other names."""
    return random.Random(f"{SEED} {name}")
