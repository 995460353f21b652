"""Logs while they are watched: written on, rotated, cut short, made anew."""

from __future__ import annotations

from pathlib import Path

from nginx_tune.host.door import Missing
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
