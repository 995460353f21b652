"""The process inside the sandbox: its methods, its CPUs, and what is told while one waits."""

import json
import time
import typing

import msgspec
import pytest

from nginx_tune.documents.progress import Step
from nginx_tune.experiment import rehearsing
from nginx_tune.experiment.inside import Inside
from nginx_tune.experiment.operations import OPERATIONS, SURVEY, Response
from nginx_tune.experiment.rehearsing import Ticker
from nginx_tune.experiment.session import split_cpus
from nginx_tune.nginx.lab.operation import answer_line


def test_each_has_a_method_that_takes_and_gives_its_kinds() -> None:
    for name, operation in OPERATIONS.items():
        hints = typing.get_type_hints(getattr(Inside, name))
        assert hints["request"] is operation.request, name
        assert hints["return"] == operation.answer, name


def test_an_answer_comes_as_it_went_with_names_that_are_no_utf_8() -> None:
    name = b"/srv/caf\xe9".decode(errors="surrogateescape")
    answers = [Response(status=200), Response(fault=""), Response(fault=name)]
    found = json.loads(answer_line(answers))["answer"]
    assert msgspec.convert(found, SURVEY.answer) == answers


def test_a_number_that_is_none_becomes_null() -> None:
    assert json.loads(answer_line({"seconds": float("nan")})) == {"answer": {"seconds": None}}


def test_cpus_are_split_where_there_are_two() -> None:
    assert split_cpus([0, 1], separate=True) == ([0], [1])
    assert split_cpus([3], separate=True) == ([3], [3])
    assert split_cpus([0, 1, 2, 3], separate=False) == ([0, 1, 2, 3], [0, 1, 2, 3])


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
