"""Distance, losses and reordering on the way to nginx: all is answered, and the way is told."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from far_link import OWN, PEER, Counts, Link, over
from probe_loads import SIZES, Nginx, load_plan
from test_probe_http3 import Quic, closed, listening, over_http3

from nginx_tune.documents.loadplan import (
    Arrivals,
    Http2,
    Http3,
    LoadClass,
    Paths,
    Permit,
    Target,
    Tls,
)
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.host.door import Missing
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.observe.connections import WaitingLook, look_at_waiting
from nginx_tune.observe.window.server import plan_round_trips

T = TypeVar("T")

pytestmark = pytest.mark.needs("root", "nginx", "probe", "nginx-1.30", "openssl", "tun")


def with_nginx(link: Link, place: Path, call: Callable[[Quic], T]) -> tuple[T, Counts]:
    """What a call returns while nginx 1.30 serves at the other end of the link."""

    def inside() -> T:
        with listening("1.30", place, "http2 on;", address=OWN) as quic:
            return call(quic)

    return over(link, inside)


def ask(
    quic: Quic, item: LoadClass, seconds: float, is_over: Callable[[], bool] | None = None
) -> ClassMeasurement:
    """Asks the far end: each request has a minute."""
    plan = load_plan(Nginx(quic.nginx.port, Path("/dev/null")), item)
    plan = msgspec.structs.replace(
        plan,
        target=Target(address=PEER, port=quic.nginx.port, tls=Tls(verify=False)),
        permit=Permit(hosts=[PEER]),
        duration_seconds=seconds,
        drain_seconds=60.0,
    )
    return run_probe(plan, is_over=is_over).classes["c"]


def bodies() -> LoadClass:
    """Twenty requests a second for 100 KB, whose lengths are checked."""
    paths = Paths(kind="fixed", paths=["/100k"], bytes=[SIZES["/100k"]])
    arrivals = Arrivals(kind="constant", rate_per_second=20)
    return over_http3(paths=paths, timeout_seconds=60.0, http3=Http3(streams=10), arrivals=arrivals)


@pytest.mark.parametrize("lost", [0.01, 0.05])
def test_all_is_answered_in_spite_of_losses_and_reordering(lost: float, tmp_path: Path) -> None:
    link = Link(delay_seconds=0.005, lost=lost, late=0.02)
    found, counts = with_nginx(link, tmp_path, lambda quic: ask(quic, bodies(), 2.0))
    assert counts.lost > 5
    assert counts.late > 5
    assert (found.errors, found.censored, found.requests) == ({}, 0, 40)
    assert found.http3 is not None
    assert found.http3.lost_packets > 0, "of the probe's own some were lost, and it knows"
    assert found.http3.lost_packets <= counts.lost + counts.late
    assert found.connections_opened == 2


@pytest.mark.parametrize("protocol", ["http1", "http2", "http3"])
def test_the_round_trip_is_that_of_the_link(protocol: str, tmp_path: Path) -> None:
    """Of three protocols, by the kernel (TCP_INFO) and by QUIC: no less than twice the way."""
    changes: dict[str, object] = {
        "http1": {"http3": None, "connections": 4},
        "http2": {"http3": None, "http2": Http2(streams=10)},
        "http3": {},
    }[protocol]
    middle = []
    # A connection is looked at with its first answer, and with some of those that follow.
    arrivals = Arrivals(kind="constant", rate_per_second=40)
    for delay in (0.01, 0.15):
        place = tmp_path / str(delay)
        place.mkdir()
        item = over_http3("/1k", arrivals=arrivals, timeout_seconds=60.0, **changes)
        found, _ = with_nginx(
            Link(delay_seconds=delay), place, lambda quic, item=item: ask(quic, item, 1.5)
        )
        assert found.errors == {}
        trips = found.round_trip_seconds
        assert trips.count > 0
        assert trips.p50 is not None
        assert trips.p50 >= 2 * delay
        middle.append(trips.p50)
    assert middle[1] > middle[0]


def test_the_kernel_knows_how_far_the_clients_of_a_running_nginx_are(tmp_path: Path) -> None:
    """What ``observe`` reads: of each connection at nginx's ports its own round trip."""
    delay = 0.03
    item = over_http3("/1k", http3=None, arrivals=closed(120), connections=120)

    def look(quic: Quic) -> WaitingLook | Missing:
        over = threading.Event()
        asking = threading.Thread(target=ask, args=(quic, item, 60.0, over.is_set))
        asking.start()
        seen: WaitingLook | Missing = Missing("nobody came")
        while asking.is_alive() and not over.is_set():
            now = look_at_waiting(quic.workers[0], quic.workers, {quic.nginx.port})
            if isinstance(now, WaitingLook) and len(now.round_trips) == 120:
                seen = now
                over.set()
            time.sleep(0.1)
        asking.join()
        return seen

    seen, _ = with_nginx(Link(delay_seconds=delay), tmp_path, look)
    assert isinstance(seen, WaitingLook), seen
    assert len(seen.round_trips) == 120
    found = plan_round_trips([seen])
    assert found is not None
    assert found.connections == 120
    assert found.p50_seconds is not None
    assert found.p90_seconds is not None
    assert 2 * delay <= found.p50_seconds <= found.p90_seconds
    assert found.p99_seconds is None, "one connection beyond it says nothing"
