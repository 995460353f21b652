"""What was left to send when nothing woke the connection any more; waits that never slept."""

import contextlib
import os
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest
from http2_peer import GOAWAY, Reply, answer, frame, http2_peer

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.loadplan import (
    Arrivals,
    Http2,
    LoadClass,
    LoadPlan,
    Paths,
    Permit,
    Target,
)
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.load.probe import find_probe

pytestmark = pytest.mark.needs("probe")

HERE = "127.0.0.1"


def ask(plan: LoadPlan) -> tuple[Measurement, float, float]:
    """Run the probe: what it saw, and the wall and CPU seconds of its process."""
    begun = time.monotonic()
    with (
        tempfile.TemporaryFile() as words,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        words.write(encode(plan))
        words.seek(0)
        process = subprocess.Popen([find_probe()], stdin=words, stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - begun
        out.seek(0)
        err.seek(0)
        assert process.returncode == 0, err.read().decode()
        return decode(Measurement, out.read()), wall, used.ru_utime + used.ru_stime


def plan(port: int, item: LoadClass, **changes: object) -> LoadPlan:
    parts: dict[str, object] = {"duration_seconds": 0.2, "drain_seconds": 30.0, **changes}
    place = Target(address=HERE, port=port)
    permit = Permit(ports=[port])
    return LoadPlan(target=place, classes=[item], permit=permit, **parts)  # type: ignore[arg-type]


def item(rate: float, **changes: object) -> LoadClass:
    """Requests over one stream of one connection, unless changed."""
    parts: dict[str, object] = {
        "name": "c",
        "arrivals": Arrivals(kind="constant", rate_per_second=rate),
        "paths": Paths(kind="fixed", paths=["/"]),
        "connections": 1,
        "http2": Http2(streams=1),
    }
    return LoadClass(**{**parts, **changes})  # type: ignore[arg-type]


def none_waited(found: ClassMeasurement, item: LoadClass) -> bool:
    longest = found.response_seconds.max
    return longest is not None and longest < item.timeout_seconds / 2


def test_idle_connections_that_are_lost_after_the_last_arrival_cost_no_cpu_time() -> None:
    with idle_closer() as port:
        one = item(5, http2=None)
        found, wall, cpu = ask(plan(port, one, idle_connections=3))
    assert (found.classes["c"].requests, found.classes["c"].errors) == (1, {})
    idle = found.generator.idle_connections
    assert idle is not None
    assert idle.lost == 3
    assert cpu < wall / 2


@contextlib.contextmanager
def idle_closer() -> Iterator[int]:
    """Answers late, and closes other connections meanwhile."""
    with socket.create_server((HERE, 0)) as listener:

        def serve() -> None:
            peers = [listener.accept()[0] for _ in range(4)]
            is_over.wait(0.4)
            asked = None
            for peer in peers:
                with contextlib.suppress(BlockingIOError):
                    peer.setblocking(False)
                    peer.recv(1 << 16)
                    asked = peer
                    continue
                peer.close()
            is_over.wait(1.5)
            assert asked is not None
            asked.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            asked.close()

        is_over = threading.Event()
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.join(20)


def test_requests_go_over_another_connection_when_the_last_one_ends_after_the_arrivals() -> None:
    def reply(connection: int, stream: int) -> Reply:
        if connection > 0:
            return Reply(answer(stream))
        leaves = frame(GOAWAY, 0, 0, struct.pack(">II", stream, 0))
        return Reply(answer(stream) + leaves, after_seconds=0.6)

    one = item(20)
    with http2_peer(reply) as peer:
        found = ask(plan(peer.port, one))[0].classes["c"]
    assert (found.requests, found.errors) == (4, {})
    assert none_waited(found, one)


def test_requests_do_not_wait_for_connections_that_nobody_opens_any_more() -> None:
    # More than there are handshakes at once, and the first are through after the last arrival.
    one = item(20, connections=40)
    with http2_peer(lambda _, stream: Reply(answer(stream)), rest_seconds=0.6) as peer:
        found = ask(plan(peer.port, one))[0].classes["c"]
    assert (found.requests, found.errors) == (4, {})
    assert none_waited(found, one)


def test_a_request_goes_when_the_time_of_the_one_before_it_is_up() -> None:
    one = item(2, timeout_seconds=1.0)
    mute = Reply(b"")
    with http2_peer(lambda _, stream: mute if stream == 1 else Reply(answer(stream))) as peer:
        found = ask(plan(peer.port, one, duration_seconds=0.9))[0].classes["c"]
    assert (found.requests, found.errors) == (1, {"timeout": 1})
