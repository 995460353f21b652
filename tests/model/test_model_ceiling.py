from dataclasses import replace

import pytest
from test_model_blocking import LAB, SOURCE

from nginx_tune.decide.model.blocking import find_ceiling, predict
from nginx_tune.decide.model.inputs import BlockingInputs


def bound(inputs: BlockingInputs) -> tuple[str, float]:
    return find_ceiling(inputs, predict(inputs))


def test_the_source_met_its_link() -> None:
    """A6: 9.5 of 10 Gbit/s."""
    assert bound(SOURCE) == ("the network link", 1.25e9)


def test_over_loopback_only_memory_bounds_hot_files() -> None:
    assert bound(LAB)[0] == "copying from memory"


def test_clients_that_ask_for_everything_alike_meet_the_disks() -> None:
    name, rate = bound(replace(LAB, cold_concurrency=None))
    assert name == "the disks"
    assert rate == pytest.approx(60e6 / 0.83, rel=0.05)
