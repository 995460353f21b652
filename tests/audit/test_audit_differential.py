"""A few of the variants of ``differential.py``, which is run by hand with thousands."""

from __future__ import annotations

import pytest
from differential import run
from nginx_versions import Nginx, every_version


@pytest.mark.needs("nginx", "root")
@every_version
def test_nothing_that_nginx_accepts_is_called_wrong(nginx: Nginx) -> None:
    tally, wrong = run(100, seed=20, program=nginx.program)
    assert wrong == []
    assert tally["accepted"] > 5
    assert tally["refused, misplaced, and we say why"] > 5
