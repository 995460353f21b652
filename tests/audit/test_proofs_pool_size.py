"""How many tasks a pool of the real nginx holds, by a pool that cannot drain (A13, A15)."""

import contextlib
from pathlib import Path

import pytest
from pool_places import held
from rows import each_row
from scratch_nginx import NGINX

pytestmark = pytest.mark.needs("nginx", "gcc")


@pytest.mark.thorough
@each_row(
    ("pool", "aio", "threads", "waiting"),
    [
        ("", "aio threads;", 32, 65536),
        ("thread_pool few threads=3 max_queue=0;", "aio threads=few;", 3, 0),
        ("thread_pool few threads=3 max_queue=5;", "aio threads=few;", 3, 5),
        ("thread_pool few threads=3;", "aio threads=few;", 3, 65536),
    ],
)
def test_io_pool_holds_its_threads_and_its_queue(
    tmp_path: Path, pool: str, aio: str, threads: int, waiting: int
) -> None:
    with held(NGINX, tmp_path, pool, aio) as nginx, contextlib.ExitStack() as open_requests:
        assert nginx.threads == threads
        nginx.wait_until_idle()
        for one in nginx.hold(threads + waiting - 1):
            open_requests.enter_context(one)
        nginx.wait_until_posted()
        last = open_requests.enter_context(nginx.ask("/held/file"))
        nginx.wait_until_posted()
        assert nginx.refused == []
        last.setblocking(False)
        with pytest.raises(BlockingIOError):
            last.recv(1)
        with nginx.ask("/held/file") as refused:
            assert refused.recv(99) == b""
        name = "few" if pool else "default"
        assert nginx.refused == [f'"{name}" queue overflow: {waiting} tasks waiting']
