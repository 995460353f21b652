"""The requests of a held client: HTTP/1.1 over plain TCP, TLS or a Unix socket."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator

import msgspec

from nginx_tune.documents.loadplan import Target
from nginx_tune.experiment.operations import HeldClient
from nginx_tune.experiment.survey import client_line, request_headers

READ_BYTES = 4096
_RECEIVE_BUFFER_BYTES = 8192
ANSWER_SECONDS = 10.0
_WITHOUT_BODY = (204, 304)
_LOCAL = ("127.0.0.1", 0)


class EndedError(Exception):
    """The server ended the connection; ``lost`` if a request was in progress.

    ``refused`` is the status that refused to open it.
    """

    def __init__(self, why: str, *, lost: bool, refused: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.lost = lost
        self.refused = refused


class StaleError(Exception):
    """A kept connection ended before a byte of the answer, so the request is retried.

    The server may have closed it as idle while the request was in flight. Browsers and the load
    retry too (RFC 9112, section 9.3.1).
    """


def reason_of(error: BaseException) -> str:
    """The reason for a connection's end, in a few words."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return "reset"
    if isinstance(error, asyncio.IncompleteReadError):
        return "cut off"
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return f"no answer within {ANSWER_SECONDS:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason or error}"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def connected(client: HeldClient) -> AsyncIterator[_Streams]:
    """A connection to the client's server, aborted at the end of the block."""
    reader, writer = await asyncio.wait_for(_connect(client.target), ANSWER_SECONDS)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _connect(target: Target) -> _Streams:
    loop = asyncio.get_running_loop()
    is_unix = target.unix is not None
    family = socket.AF_UNIX if is_unix else socket.AF_INET6 if ":" in target.address else None
    connection = socket.socket(family or socket.AF_INET)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        connection.setblocking(False)
        place = target.unix if target.unix is not None else (target.address, target.port)
        await loop.sock_connect(connection, place)
        if target.proxy_protocol is not None:
            ends = (_LOCAL, _LOCAL)
            if not is_unix:
                ends = (connection.getsockname()[:2], connection.getpeername()[:2])
            await loop.sock_sendall(connection, client_line(*ends))
        context = None
        if target.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return await asyncio.open_connection(
            sock=connection,
            limit=2 * READ_BYTES,
            ssl=context,
            server_hostname=target.host.partition(":")[0] if context else None,
        )
    except BaseException:
        connection.close()
        raise


def request_head(client: HeldClient, method: str = "GET", *lines: str) -> bytes:
    """The head of a request."""
    own = [f"{name}: {value}" for name, value in request_headers(client.target)]
    return "\r\n".join([f"{method} {client.url} HTTP/1.1", *own, *lines, "", ""]).encode()


class HeadOfAnswer(msgspec.Struct, frozen=True):
    """The part of a response's head that decides how to go on."""

    status: int
    length: int | None
    """Bytes of the body; None if chunked, -1 if it ends with the connection."""
    keeps: bool


async def read_head(
    reader: asyncio.StreamReader, seconds: float | None = ANSWER_SECONDS, first: bytes = b""
) -> HeadOfAnswer:
    """The head of a response; ``first`` is the part already read.

    Errors: ValueError for a response that is not HTTP, IncompleteReadError, TimeoutError, OSError.
    """
    head = first + await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), seconds)
    status_line, *lines = head.decode("latin-1").split("\r\n")
    words = status_line.split()
    if not status_line.startswith("HTTP/") or len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004
        raise ValueError("the answer is not HTTP")
    pairs = (line.partition(":") for line in lines)
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    status = int(words[1])
    length: int | None = -1
    if status in _WITHOUT_BODY:
        length = 0
    elif fields.get("content-length", "").isdigit():
        length = int(fields["content-length"])
    elif fields.get("transfer-encoding", "").lower() == "chunked":
        length = None
    return HeadOfAnswer(status, length, fields.get("connection", "").lower() != "close")


async def request_once(client: HeldClient, streams: _Streams) -> HeadOfAnswer:
    """Make a request and read the whole response; returns its head.

    Errors: EndedError if the server ends the connection.
    """
    try:
        await _send_request(client, streams[1])
        return await _read_answer(streams[0])
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise _ended_in_request(error) from None


async def request_again(client: HeldClient, streams: _Streams) -> None:
    """Make another request on a connection that has already had a response.

    Errors: StaleError if no byte of a response comes, EndedError if only a part does.
    """
    reader, writer = streams
    try:
        await _send_request(client, writer)
        first = await asyncio.wait_for(reader.read(1), ANSWER_SECONDS)
    except ConnectionError:
        raise StaleError from None
    if not first:
        raise StaleError
    try:
        await _read_answer(reader, first)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise _ended_in_request(error) from None


async def _send_request(client: HeldClient, writer: asyncio.StreamWriter) -> None:
    writer.write(request_head(client))
    await writer.drain()


async def _read_answer(reader: asyncio.StreamReader, first: bytes = b"") -> HeadOfAnswer:
    answer = await read_head(reader, first=first)
    await asyncio.wait_for(_skip_body(reader, answer), ANSWER_SECONDS)
    return answer


def _ended_in_request(error: BaseException) -> EndedError:
    return EndedError(f"{reason_of(error)} during a request", lost=True)


async def request_first(client: HeldClient, streams: _Streams) -> None:
    """Make the first request on a connection that is to be kept open."""
    answer = await request_once(client, streams)
    if not answer.keeps or answer.length == -1:
        raise EndedError("the server does not keep connections alive", lost=False)


async def _skip_body(reader: asyncio.StreamReader, answer: HeadOfAnswer) -> None:
    if answer.length is None:
        while (size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)) > 0:
            await _skip(reader, size + 2)
        await reader.readuntil(b"\r\n")
    elif answer.length >= 0:
        await _skip(reader, answer.length)
    else:
        while await reader.read(READ_BYTES):
            pass


async def _skip(reader: asyncio.StreamReader, size: int) -> None:
    while size > 0:
        part = await reader.read(min(size, READ_BYTES))
        if not part:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(part)


async def end_of(reader: asyncio.StreamReader, seconds: float | None) -> bool:
    """True if the server closes an idle connection within some seconds; None waits forever."""
    try:
        return not await asyncio.wait_for(reader.read(1), seconds)
    except asyncio.TimeoutError:
        return False
    except ConnectionError:
        return True
