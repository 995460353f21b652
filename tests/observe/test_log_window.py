"""Error logs: their end, and what is written while they are watched."""

import os
from pathlib import Path

import pytest

from nginx_tune.host.door import HostReadError, Missing
from nginx_tune.observe.inspect.live_facts import read_error_log
from nginx_tune.observe.parse_counters import ErrorLogCounts
from nginx_tune.observe.window.watch import LogWindow, add_counts

LINE = '2026/11/20 14:23:40 [error] 1#1: thread pool "{}" queue overflow: 1 tasks waiting\n'


def counts(window: LogWindow) -> ErrorLogCounts:
    found = window.finish()
    assert not isinstance(found, Missing)
    return found


def test_only_what_was_written_meanwhile_counts(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    log.write_text(LINE.format("old") * 3)
    window = LogWindow(str(log))
    with log.open("a") as file:
        file.write(LINE.format("new") * 2)
    assert counts(window).by_name("pool_overflow") == {"new": 2}


def test_a_log_that_is_rotated_and_goes_on_in_both_files(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    log.write_text(LINE.format("old"))
    window = LogWindow(str(log))
    moved = log.rename(tmp_path / "error.log.1")
    with moved.open("a") as file:  # old workers still write there
        file.write(LINE.format("a"))
    log.write_text(LINE.format("b") * 2)
    assert counts(window).by_name("pool_overflow") == {"a": 1, "b": 2}


def test_a_log_that_is_cut_short(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    log.write_text(LINE.format("old") * 5)
    window = LogWindow(str(log))
    log.write_text(LINE.format("new"))  # copytruncate
    assert counts(window).by_name("pool_overflow") == {"new": 1}


def test_a_log_that_comes_up_meanwhile(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    window = LogWindow(str(log))
    log.write_text(LINE.format("new"))
    assert counts(window).by_name("pool_overflow") == {"new": 1}


def test_a_log_that_is_removed_has_told_what_it_had(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    log.touch()
    window = LogWindow(str(log))
    log.write_text(LINE.format("last"))
    log.unlink()
    assert counts(window).by_name("pool_overflow") == {"last": 1}


def test_what_is_no_file_is_not_known(tmp_path: Path) -> None:
    for path in (str(tmp_path), "/dev/null", "bad\0name", str(tmp_path / "none")):
        assert isinstance(LogWindow(path).finish(), Missing)


def test_logs_add_up() -> None:
    one = ErrorLogCounts({"error": 1}, {("pool-overflow", "a"): 1, ("upstream-closed", ""): 4})
    other = ErrorLogCounts({"crit": 1}, {("pool-overflow", "b"): 2, ("upstream-closed", ""): 1})
    both = add_counts([one, other])
    assert (both.levels, both.by_name("pool_overflow")) == (
        {"error": 1, "crit": 1},
        {"a": 1, "b": 2},
    )
    assert both.count("upstream_failures") == 5


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
