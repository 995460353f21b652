"""How many tasks a pool of the real nginx holds, by a pool that cannot drain (A13, A15)."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest
from rows import each_row
from scratch_nginx import NGINX

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from pool_places import held, look, read_in_memory, table

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


def test_io_pool_places_are_counted_and_shown(tmp_path: Path) -> None:
    """The tool behind the table of benchmarks/README.md. What is read is in memory (A9)."""
    row = look(NGINX, tmp_path, "thread_pool few threads=3 max_queue=5;", "aio threads=few;")
    assert (row.threads, row.held, row.posted) == (3, 8, 108)
    assert row.in_memory in {True, None}
    shown = table([row._replace(in_memory=True)]).splitlines()[2]
    assert shown.endswith('| 3 | all of it | 108 | 8 | `"few" queue overflow: 5 tasks waiting` |')
    assert "| `thread_pool few threads=3 max_queue=5` |" in shown


def test_io_a_file_out_of_memory_is_told_from_one_in_it(tmp_path: Path) -> None:
    """But for file systems that cannot say."""
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    assert read_in_memory(file) in {True, None}
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert read_in_memory(file) in {False, None}
