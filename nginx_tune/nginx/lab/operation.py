"""What the process inside the walls can be asked: a name, a request, an answer.

On the wire each is a line of JSON. A request goes by ``json`` because names of files may hold
bytes that are no UTF-8; an answer by ``msgspec`` where it can, which makes of a number that is
none a null.
"""

from __future__ import annotations

import json
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from nginx_tune.sandbox.spec import Wall

Q = TypeVar("Q")
A = TypeVar("A")


class Operation(NamedTuple, Generic[Q, A]):
    """One kind of question."""

    name: str
    request: type[Q]
    answer: type[A]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first request: the walls are finished from inside."""

    mark: str
    directory: str
    weaker: list[Wall]
    """Walls that the user gave up where they cannot be had."""


class OperationIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers."""

    mark: str
    uid: int


HELLO = Operation("hello", Hello, OperationIdentity)


def request_line(operation: Operation[Q, A], request: Q) -> str:
    """A request as it is sent."""
    return json.dumps({"operation": operation.name, "request": msgspec.to_builtins(request)}) + "\n"


def read_request(line: str) -> tuple[str, Any]:
    """The operation's name and what is still to be converted to its request."""
    found = json.loads(line)
    return found["operation"], found["request"]


def answer_line(answer: object) -> str:
    """An answer as it is sent."""
    try:
        return f'{{"answer":{msgspec.json.encode(answer).decode()}}}\n'
    except UnicodeEncodeError:
        return json.dumps({"answer": msgspec.to_builtins(answer)}) + "\n"
