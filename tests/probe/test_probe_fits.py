"""Servers that read and write in fits and starts: nothing waits for what nobody will wake it for.

Every request ends long before its time is up, every byte of a body is right, both ends count alike,
and the probe sleeps while it waits. What a failure prints has the seed of its situation:
``python tests/probe/fitful_runs.py SEED 1`` runs it again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fitful_draws import draw
from fitful_runs import complaints, run
from tiers import REPEAT, dice, draws

from nginx_tune.nginx.lab.network import make_certificate

pytestmark = pytest.mark.needs("nginx", "probe", "openssl")

FIRST = dice("fits").randrange(1 << 31)
COUNT = draws(2, 40)
"""Of situations drawn."""
BEHIND_NGINX = [("http2", n) for n in range(draws(1, 10))]
BEHIND_NGINX += [("http3", n) for n in range(draws(1, 10))]
"""Situations drawn with nginx in front, which speaks these."""


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    made = make_certificate(tmp_path_factory.mktemp("tls"), names=["localhost"])
    return [str(made.certificate), str(made.key)]


@pytest.mark.parametrize("number", range(COUNT))
def test_nothing_waits_for_ever_and_nothing_spins(
    tmp_path: Path, tls: list[str], number: int
) -> None:
    seed = FIRST + number
    situation = draw(seed, tmp_path, tls=tls)
    came = run(situation, tls)
    assert complaints(situation, came) == [], f"{seed} ({REPEAT}): {situation}"


@pytest.mark.needs("nginx-1.30")
@pytest.mark.parametrize(("way", "number"), BEHIND_NGINX)
def test_nor_where_connections_are_shared(tmp_path: Path, way: str, number: int) -> None:
    seed = FIRST + number
    situation = draw(seed, tmp_path, way)
    came = run(situation, None)
    assert complaints(situation, came) == [], f"{seed} ({REPEAT}): {situation}"
