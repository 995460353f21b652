"""What is told while something waits."""

from __future__ import annotations

import time

import pytest

from nginx_tune.documents.progress import Step
from nginx_tune.experiment import rehearsing
from nginx_tune.experiment.rehearsing import Ticker


def test_seconds_are_told_from_where_it_begins_to_where_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rehearsing, "_TICK_SECONDS", 0.005)
    heard: list[str] = []
    with Ticker(heard.append, "and back", begins=7.0, ends=7.02, total=9.0):
        deadline = time.monotonic() + 10
        while len(heard) < 12 and time.monotonic() < deadline:
            time.sleep(0.005)
    count = len(heard)
    steps = [text for text in heard if isinstance(text, Step)]
    assert len(steps) == count >= 12
    assert {(str(step), step.total, step.unit) for step in steps} == {("and back", 9.0, "s")}
    assert [step.live for step in steps] == [False] + [True] * (count - 1)
    done = [step.done for step in steps]
    assert done[0] == 7.0
    assert done == sorted(done)
    assert done[-1] == 7.02, "what takes longer stands at its end"
    time.sleep(0.02)
    assert len(heard) == count, "nothing is told afterwards"
