"""The process inside, for the tests: it also speaks what is no HTTP and tells nginx's last words.

A URL ``raw:TEXT`` or ``udp:TEXT`` sends the text as it is, a line for each answer, ``hex:DIGITS``
what they stand for; any answer counts as 200, an end too. One ``wait:/URL`` has time. ``said:`` is
what nginx and its modules wrote to standard error.
"""

from __future__ import annotations

import runpy
import socket

import msgspec

from nginx_tune.experiment import survey as surveys
from nginx_tune.experiment.operations import Question, Response
from nginx_tune.nginx.lab.enclosure import STATE

_MOST_BYTES = 200
_MOST_SAID = 40_000
_LONG_SECONDS = 100.0
_FIRST_SECONDS = 10.0
"""Until a server says anything: the first of all may have to wait for a busy machine."""
_plain_answer = surveys._answer


def _answer(one: Question, pid: int) -> Response:
    kind, _, text = one.url.partition(":")
    if kind == "said":
        return Response(fault=(STATE / "survey.stderr").read_text(errors="replace")[-_MOST_SAID:])
    if kind == "wait":
        surveys._SECONDS = _LONG_SECONDS
        return _plain_answer(msgspec.structs.replace(one, url=text), pid)
    if kind not in {"raw", "udp", "hex"}:
        return _plain_answer(one, pid)
    family = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
    lines = [bytes.fromhex(text)] if kind == "hex" else text.encode().splitlines(keepends=True)
    said = b""
    try:
        with socket.socket(socket.AF_INET, family) as client:
            client.settimeout(1.0 if kind == "udp" else _FIRST_SECONDS)
            client.connect((one.target.address, one.target.port))
            for line in lines or [b"x"]:
                client.sendall(line)
                said = client.recv(_MOST_BYTES) or said
                client.settimeout(1.0)
    except ConnectionResetError:
        pass  # it answers, or not, and closes before all is read
    except OSError as error:
        if not said:
            return Response(fault=str(error))
    return Response(status=200, fault=said.decode(errors="replace"))


if __name__ == "__main__":
    surveys._answer = _answer
    runpy.run_module("nginx_tune.experiment.inside", run_name="__main__")
