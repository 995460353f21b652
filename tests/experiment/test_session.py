"""How the CPUs are split between the server and the probe."""

from __future__ import annotations

from nginx_tune.experiment.session import split_cpus


def test_cpus_are_split_where_there_are_two() -> None:
    assert split_cpus([0, 1], separate=True) == ([0], [1])
    assert split_cpus([3], separate=True) == ([3], [3])
    assert split_cpus([0, 1, 2, 3], separate=False) == ([0, 1, 2, 3], [0, 1, 2, 3])
