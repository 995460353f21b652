"""Reading the end of an error log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nginx_tune.host.door import HostReadError
from nginx_tune.observe.inspect.live_facts import read_error_log

LINE = '2026/11/20 14:23:40 [error] 1#1: thread pool "{}" queue overflow: 1 tasks waiting\n'


def test_overflow_lines_by_pool(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    log.write_text(LINE.format("a") * 2 + LINE.format("b") + "noise\n")
    found = read_error_log(str(log))
    assert found.pool_overflow == {"a": 2, "b": 1}
    assert found.complete
    assert found.bytes_read == log.stat().st_size


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    log.write_text(LINE.format("old") * 100 + LINE.format("new") * 2)
    found = read_error_log(str(log), tail_bytes=int(len(LINE) * 2.5))
    assert found.pool_overflow == {"new": 2}
    assert not found.complete


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert read_error_log(str(tmp_path / "none")).pool_overflow == {}


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/null"), Path("bad\0name")):
        with pytest.raises(HostReadError):
            read_error_log(str(path))
