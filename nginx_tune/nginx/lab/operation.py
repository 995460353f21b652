"""Messages into the sandbox and back: requests to the process inside, and its answers.

An operation has a name, a request and an answer, each a line of JSON on the wire. Requests are
encoded by ``json``, since names of files may contain bytes that are no UTF-8; answers by
``msgspec`` where possible, which encodes NaN as null.

The module also has the parts of a lab that both sides use: the place of its site and its stubs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from nginx_tune.sandbox.confinement import SandboxPart

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True)
class Operation(Generic[Q, A]):
    """A kind of request with its answer."""

    name: str
    request: type[Q]
    answer: type[A]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first request, after which the process finishes the sandbox from inside."""

    mark: str
    directory: str
    weaker: list[SandboxPart]
    """Parts of the sandbox that the user gives up where they are impossible."""


class OperationIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The process that answers."""

    mark: str
    uid: int


HELLO = Operation("hello", Hello, OperationIdentity)


def request_line(operation: Operation[Q, A], request: Q) -> str:
    """The line of a request."""
    return json.dumps({"operation": operation.name, "request": msgspec.to_builtins(request)}) + "\n"


def read_request(line: str) -> tuple[str, Any]:
    """The name of the operation and its request, still to be converted."""
    found = json.loads(line)
    return found["operation"], found["request"]


def answer_line(answer: object) -> str:
    """The line of an answer."""
    try:
        return f'{{"answer":{msgspec.json.encode(answer).decode()}}}\n'
    except UnicodeEncodeError:
        return json.dumps({"answer": msgspec.to_builtins(answer)}) + "\n"


LOOPBACK = "127.0.0.1"
UpstreamProtocol = Literal[
    "http", "https", "grpc", "grpcs", "fastcgi", "scgi", "uwsgi", "dns", "syslog"
]  # fmt: skip


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The lab's topology that a site in it must know."""

    address: str = LOOPBACK
    """The address at which clients reach nginx."""
    origin: str | None = None
    """``address:port`` of the origin."""
    objects: dict[str, int] = {}
    """The origin's objects: bytes by path."""
    certificate: str | None = None
    certificate_key: str | None = None


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a configuration sends requests to."""

    protocol: UpstreamProtocol
    name: str
    """Its name as text."""
    address: str = ""
    """Its address on this host; empty for another host's."""
    port: int = 0
    path: str = ""
    """The path of a unix socket."""
    answers_from: str = ""
    """The address of another host's datagram server, from which the answer must come."""

    @property
    def is_here(self) -> bool:
        """True for a server on this host."""
        return bool(self.address or self.path)


class Stubs(msgspec.Struct, frozen=True, kw_only=True):
    """The stubs of servers, and the servers without one."""

    answering: list[Outgoing] = []
    silent: dict[str, str] = {}
    """The reason why a server has no stub, by name."""
    sockets: dict[str, str] = {}
    """The real path of a unix socket, by nginx's path."""
