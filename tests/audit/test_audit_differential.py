"""A few of the variants of ``differential.py``, which is run by hand with thousands."""

from __future__ import annotations

import pytest
from differential import run


@pytest.mark.needs("nginx", "root")
def test_nothing_that_nginx_accepts_is_called_wrong() -> None:
    tally, wrong = run(150, seed=20)
    assert wrong == []
    assert tally["accepted"] > 5
    assert tally["refused, misplaced, and we say why"] > 5
