"""What the process inside the sandbox is asked: the table, the methods that answer, the lines."""

from __future__ import annotations

import json
import typing

import msgspec

from nginx_tune.documents.lab import Lab
from nginx_tune.documents.loadplan import Target
from nginx_tune.experiment.inside import Inside
from nginx_tune.experiment.operations import (
    OPEN_LAB,
    OPERATIONS,
    SURVEY,
    TRIAL,
    OpenLabRequest,
    Response,
    TrialRequest,
)
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.nginx.lab.operation import answer_line, read_request, request_line

NAME = b"/srv/caf\xe9".decode(errors="surrogateescape")
"""Bytes that are no UTF-8."""


def test_each_has_a_method_that_takes_and_gives_its_kinds() -> None:
    for name, operation in OPERATIONS.items():
        hints = typing.get_type_hints(getattr(Inside, name))
        assert hints["request"] is operation.request, name
        assert hints["return"] == operation.answer, name


def test_a_request_comes_as_it_went_with_names_that_are_no_utf_8() -> None:
    trial = TrialRequest(argv=["nginx"], files={NAME: b"\0\xff"}, view=HostNeeds(), join_files=[])
    name, plain = read_request(request_line(TRIAL, trial))
    assert (name, msgspec.convert(plain, TrialRequest)) == ("trial", trial)
    lab = OpenLabRequest(lab=Lab(name="x"), covers=[NAME], view=HostNeeds(shown=[NAME]))
    assert msgspec.convert(read_request(request_line(OPEN_LAB, lab))[1], OpenLabRequest) == lab


def test_an_answer_comes_as_it_went() -> None:
    answers = [Response(status=200), Response(fault=""), Response(fault=NAME)]
    found = json.loads(answer_line(answers))["answer"]
    assert msgspec.convert(found, SURVEY.answer) == answers


def test_a_number_that_is_none_becomes_null() -> None:
    assert json.loads(answer_line({"seconds": float("nan")})) == {"answer": {"seconds": None}}


def test_a_refusal_inside_keeps_its_words() -> None:
    request = request_line(
        OPERATIONS["run"],
        msgspec.convert(
            {
                "variant": {"name": "a", "conf_path": "/x"},
                "number": 0,
                "binary": "/nginx",
                "plan": {
                    "schema": "nginx-tune/loadplan/1",
                    "target": msgspec.to_builtins(Target(port=1)),
                    "classes": [],
                    "duration_seconds": 1.0,
                },
            },
            OPERATIONS["run"].request,
        ),
    )
    said = json.loads(Inside(lambda _: None).answer(request))
    assert (said["error"], said["status"]) == ("the lab is not open", 4)
