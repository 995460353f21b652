"""A few of the variants of ``differential.py``, which is run by hand with thousands."""

import pytest
from differential import run
from nginx_versions import Nginx, every_version
from tiers import REPEAT, SEED, draws


@pytest.mark.needs("nginx", "root")
@every_version
def test_nothing_that_nginx_accepts_is_called_wrong(nginx: Nginx) -> None:
    tally, wrong = run(draws(60, 500), seed=SEED, program=nginx.program)
    assert wrong == [], REPEAT
    assert tally["accepted"] > 5
    assert tally["refused, misplaced, and we say why"] > 5
