"""What nginx answers to each ask, before anything is measured: one request, one at a time."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nginx_tune.lab.enclosure import Enclosure
from nginx_tune.lab.mounts import STATE
from nginx_tune.measure.one_request import DoorConnection
from nginx_tune.nginx.instance import start_instance
from nginx_tune.nginx.place import link_to

_SECONDS = 5.0
_MOST_SILENT = 20
"""Places without an answer, after which no more are asked: each takes seconds."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A URL at a door."""

    address: str
    port: int
    host: str
    tls: bool
    proxied: bool = False
    unix: str | None = None
    """Path of a unix socket, in the place of address and port."""
    url: str


class SurveyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An arm and what it is asked."""

    binary: str
    conf_path: str
    prefix: str | None = None
    asked: list[Asked]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int | None = None
    fault: str = ""
    """Why nothing came."""
    was_asked: bool = True


_NOT_ASKED = Answer(fault="not asked: too many before it gave no answer", was_asked=False)


def survey(request: SurveyRequest, enclosure: Enclosure) -> list[Answer]:
    """The answer to each, from an nginx that is started for it."""
    if not request.asked:
        return []
    first = request.asked[0]
    instance = start_instance(
        request.binary,
        Path(request.conf_path),
        stderr_path=STATE / "survey.stderr",
        address=first.unix or (first.address, first.port),
        prefix=request.prefix,
        join_files=enclosure.join_files,
        sandbox=enclosure.prepare([request.binary]),
    )
    answers: list[Answer] = []
    try:
        for one in request.asked:
            silent = sum(answer.status is None for answer in answers)
            hangs = silent >= _MOST_SILENT
            answers.append(_NOT_ASKED if hangs else _answer(one, instance.pid))
        return answers
    finally:
        instance.stop()


def _answer(one: Asked, pid: int) -> Answer:
    connection = _connection(one, pid)
    try:
        connection.request("GET", one.url, headers={"Host": one.host})
        response = connection.getresponse()
        response.read(1)
        return Answer(status=response.status)
    except (OSError, http.client.HTTPException) as error:
        return Answer(fault=str(error) or type(error).__name__)
    finally:
        connection.close()


def _connection(one: Asked, pid: int) -> DoorConnection:
    return DoorConnection(
        one.address,
        one.port,
        host=one.host,
        tls=one.tls,
        proxied=one.proxied,
        unix=None if one.unix is None else link_to(one.unix, pid, STATE / "survey.door"),
        timeout=_SECONDS,
    )


def is_loaded(answers: Sequence[Answer]) -> tuple[int | None, str]:
    """The status that a class expects; None and why not where the arms do not serve it alike."""
    statuses = {one.status for one in answers}
    faults = [one.fault for one in answers if one.fault]
    if faults:
        return None, f"no answer: {faults[0]}"
    if len(statuses) > 1:
        found = " and ".join(str(one.status) for one in answers)
        return None, f"the arms answer {found}"
    status = answers[0].status
    if status is None or not 200 <= status < 400:  # noqa: PLR2004  # served, or sent elsewhere
        return None, f"answers {status}"
    return status, ""
