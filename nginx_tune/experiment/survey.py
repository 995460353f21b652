"""What nginx answers to each ask, before anything is measured: one request, one at a time."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
from pathlib import Path

import msgspec

from nginx_tune.documents.loadplan import Target
from nginx_tune.experiment.memory_used_up import check_memory
from nginx_tune.experiment.one_request import TargetConnection
from nginx_tune.experiment.operations import Question, Response, SurveyRequest
from nginx_tune.nginx.instance import start_instance
from nginx_tune.nginx.lab.enclosure import Enclosure
from nginx_tune.nginx.lab.kills import count_memory_kills
from nginx_tune.nginx.lab.mounts import STATE
from nginx_tune.nginx.place import Door

_SECONDS = 5.0
_COMPARED_BYTES = 2048
"""Of a body: with its length that tells two answers apart, and a slow one takes no minutes."""
_PIECE_BYTES = 1 << 20
_MOST_SILENT = 20
"""Places without an answer, after which no more are asked: each takes seconds."""


_NOT_ASKED = Response(fault="not asked: too many before it gave no answer", was_asked=False)


def survey(request: SurveyRequest, enclosure: Enclosure) -> list[Response]:
    """The answer to each, from an nginx that is started for it.

    Errors: UndecidedError when nginx does not start, or runs out of memory.
    """
    if not request.questions:
        return []
    kills = count_memory_kills(enclosure.join_files)
    try:
        return _survey(request, enclosure)
    finally:
        has_limit = request.memory_bytes is not None
        check_memory(request.arm.name, enclosure.join_files, kills, has_limit=has_limit)


def _survey(request: SurveyRequest, enclosure: Enclosure) -> list[Response]:
    first = request.questions[0].target
    instance = start_instance(
        request.binary,
        Path(request.arm.conf_path),
        stderr_path=STATE / "survey.stderr",
        address=first.unix or (first.address, first.port),
        prefix=request.arm.prefix,
        join_files=enclosure.join_files,
        sandbox=enclosure.prepare([request.binary]),
    )
    answers: list[Response] = []
    try:
        for one in request.questions:
            silent = sum(answer.status is None for answer in answers)
            hangs = silent >= _MOST_SILENT
            answers.append(_NOT_ASKED if hangs else _answer(one, instance.pid))
        return answers
    finally:
        instance.stop()


def _answer(one: Question, pid: int) -> Response:
    target = one.target
    if target.unix is None:
        return _asked(target, one.url)
    with contextlib.closing(Door(target.unix, pid)) as door:
        return _asked(msgspec.structs.replace(target, unix=door.path), one.url)


def _asked(target: Target, url: str) -> Response:
    connection = TargetConnection(target, timeout=_SECONDS)
    try:
        response = connection.get(url)
        length = response.length
        begin = response.read(_COMPARED_BYTES)
        if length is None and response.status == http.client.OK:
            length = _counted(response, len(begin))
        digest = hashlib.sha256(begin).hexdigest()
        return Response(status=response.status, length_bytes=length, digest=digest)
    except (OSError, http.client.HTTPException) as error:
        return Response(fault=str(error) or type(error).__name__)
    finally:
        connection.finish()


def _counted(response: http.client.HTTPResponse, count: int) -> int | None:
    """The length of a body whose header does not say it, of which so much is read.

    None for one that does not end in time.
    """
    try:
        while piece := response.read(_PIECE_BYTES):
            count += len(piece)
    except (OSError, http.client.HTTPException):
        return None
    return count
