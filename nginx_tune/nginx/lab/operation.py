"""Messages into the sandbox and out of it: requests to the process inside, and its answers.

An operation has a name, a request and an answer; on the wire each is a line of JSON. A request goes
by ``json`` because names of files may hold bytes that are no UTF-8; an answer by ``msgspec`` where
it can, which makes of a number that is none a null.

Beside them stand the parts of a lab that both sides speak of: where its site is reached, and the
servers that it asks.
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
    """One kind of question."""

    name: str
    request: type[Q]
    answer: type[A]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first request: the sandbox is finished from inside."""

    mark: str
    directory: str
    weaker: list[SandboxPart]
    """Sandbox that the user gave up where they cannot be had."""


class OperationIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The process that answers."""

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


LOOPBACK = "127.0.0.1"
UpstreamProtocol = Literal[
    "http", "https", "grpc", "grpcs", "fastcgi", "scgi", "uwsgi", "dns", "syslog"
]  # fmt: skip


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The lab's topology, as far as a site in it must know."""

    address: str = LOOPBACK
    """The address at which clients reach nginx."""
    origin: str | None = None
    """``address:port`` of the origin."""
    objects: dict[str, int] = {}
    """Path and bytes of what the origin has."""
    certificate: str | None = None
    certificate_key: str | None = None


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a configuration asks."""

    protocol: UpstreamProtocol
    name: str
    """Its name for people."""
    address: str = ""
    """Its address on this very host; empty for anywhere else."""
    port: int = 0
    path: str = ""
    """The path of a unix socket."""
    answers_from: str = ""
    """Elsewhere, for datagrams: whoever asks wants the answer from the address that was asked."""

    @property
    def is_here(self) -> bool:
        """True for a server on this very host."""
        return bool(self.address or self.path)


class Stubs(msgspec.Struct, frozen=True, kw_only=True):
    """The servers that answer in the place of others, and those that do not."""

    answering: list[Outgoing] = []
    silent: dict[str, str] = {}
    """The reason why nothing answers, by name."""
    sockets: dict[str, str] = {}
    """The real place of a unix socket, by the path that nginx knows."""
