"""What makes a window of a server unfit, by processes that are no nginx."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.host.door import Gaps
from nginx_tune.host.live import LiveHost
from nginx_tune.observe.accounting import read_children, read_cpu_seconds
from nginx_tune.observe.window.moment import Subjects
from nginx_tune.observe.window.observation import _late
from nginx_tune.observe.window.watch import ServerWatch


@contextmanager
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def watch() -> Iterator[ServerWatch]:
    """Of this process as if it were a master, and a worker of its own."""
    with ServerWatch(
        LiveHost(), Subjects(os.getpid(), [os.getpid()]), means="off", samples=False
    ) as made:
        yield made


def finished(watch: ServerWatch) -> tuple[ServerMeasurement, Gaps]:
    time.sleep(0.1)
    return watch.finish()


def test_workers_that_were_replaced_have_no_cpu_time(watch: ServerWatch) -> None:
    """Those that are watched would show next to none: others do their work."""
    watch.start()
    with child():
        server, gaps = finished(watch)
    assert server.cpu_seconds is None
    assert gaps["/cpu_seconds"] == "new processes of nginx in the window, as after a reload: 1"


def test_a_worker_that_ended_is_told() -> None:
    with child() as process:
        pass
    with ServerWatch(
        LiveHost(), Subjects(os.getpid(), [process.pid]), means="off", samples=False
    ) as watch:
        watch.start()
        server, gaps = finished(watch)
    assert server.cpu_seconds is None
    assert gaps["/cpu_seconds"] == "workers that ended before the window did: 1"


def test_a_child_that_only_ends_is_no_reload(watch: ServerWatch) -> None:
    """As the cache loader does after a minute."""
    with child() as process:
        watch.start()
        assert process.pid in (read_children(os.getpid()) or ())
    server, gaps = finished(watch)
    assert server.cpu_seconds is not None
    assert server.cpu_seconds > 0
    assert "/cpu_seconds" not in gaps


def test_what_is_gone_has_neither_cpu_nor_children() -> None:
    with child() as process:
        pass
    assert read_cpu_seconds(process.pid) is None
    assert read_children(process.pid) is None


class LateEvent(threading.Event):
    """Comes back long after it should have, as where no CPU is free."""

    def wait(self, timeout: float | None = None) -> bool:
        found = super().wait(timeout)
        if not found:
            time.sleep(0.8)
        return found


def test_a_watch_that_got_no_cpu_says_so(
    watch: ServerWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_ended", LateEvent())
    watch.start()
    time.sleep(2.5)
    server, _ = watch.finish()
    assert server.observer_late_seconds is not None
    assert server.observer_late_seconds >= 0.8
    (flag,) = _late(server)
    assert flag.startswith("late: a reading began ")
    assert _late(ServerMeasurement(observer_late_seconds=0.2)) == []
