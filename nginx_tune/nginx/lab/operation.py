"""Messages into the sandbox and back: requests to the process inside, and its answers.

An operation has a name, a request and an answer; request and answer are each a line of JSON.
Requests are encoded by ``json``, since names of files may contain bytes that are not UTF-8. Answers
are encoded by ``msgspec`` if possible, which encodes NaN as null.

The module also has the parts of a lab that both sides use: the place of its site and its stubs.
"""

import json
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from nginx_tune.sandbox.confinement import SandboxPart

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True)
class Operation(Generic[Q, A]):
    """A kind of request and its answer."""

    name: str
    request: type[Q]
    answer: type[A]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first request, after which the process inside completes the sandbox."""

    mark: str
    directory: str
    weaker: list[SandboxPart]
    """Parts of the sandbox that the user gives up if they are impossible."""


class OperationIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the process that answers."""

    mark: str


HELLO = Operation("hello", Hello, OperationIdentity)


def request_line(operation: Operation[Q, A], request: Q) -> str:
    """A request as a line of JSON."""
    return json.dumps({"operation": operation.name, "request": msgspec.to_builtins(request)}) + "\n"


def read_request(line: str) -> tuple[str, Any]:
    """The name of the operation, and its request, which is still to be converted."""
    found = json.loads(line)
    return found["operation"], found["request"]


def answer_line(answer: object) -> str:
    """An answer as a line of JSON."""
    try:
        return f'{{"answer":{msgspec.json.encode(answer).decode()}}}\n'
    except UnicodeEncodeError:
        return json.dumps({"answer": msgspec.to_builtins(answer)}) + "\n"


LOOPBACK = "127.0.0.1"
UpstreamProtocol = Literal[
    "http", "https", "grpc", "grpcs", "fastcgi", "scgi", "uwsgi", "dns", "syslog"
]  # fmt: skip


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a lab's topology that its site needs."""

    address: str = LOOPBACK
    """The address at which clients reach nginx."""
    origin: str | None = None
    """``address:port`` of the origin."""
    objects: dict[str, int] = {}
    """The origin's objects: size in bytes by path."""
    certificate: str | None = None
    certificate_key: str | None = None


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A server to which a configuration sends requests."""

    protocol: UpstreamProtocol
    name: str
    """The server's name in the configuration."""
    address: str = ""
    """The server's address on this host; empty if it is on another host."""
    port: int = 0
    path: str = ""
    """The path of its Unix socket."""
    answers_from: str = ""
    """The address of a datagram server on another host: the answer must come from it."""

    @property
    def is_here(self) -> bool:
        """True for a server on this host."""
        return bool(self.address or self.path)


class Stubs(msgspec.Struct, frozen=True, kw_only=True):
    """The servers that have stubs, and those that have none."""

    answering: list[Outgoing] = []
    silent: dict[str, str] = {}
    """The reasons why servers have no stub, by the server's name."""
    sockets: dict[str, str] = {}
    """The real path of a Unix socket, by the path that nginx uses."""
