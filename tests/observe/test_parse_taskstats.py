"""Delay accounting as the kernel sent it, and as it might send it."""

from __future__ import annotations

import contextlib
import errno
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nginx_tune.observe.accounting import DelayReading, delay_between
from nginx_tune.observe.parse_counters import (
    NetlinkRefusal,
    parse_block_io_ticks,
    parse_family,
    parse_task_delay,
)

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> bytes:
    return bytes.fromhex((DATA / f"{name}.hex").read_text())


def with_delay(message: bytes, count: int, nanoseconds: int) -> bytes:
    """The message of a thread that waited; the statistics stand 36 bytes into it."""
    at = len(message) - 560 + 32
    return message[:at] + struct.pack("=QQ", count, nanoseconds) + message[at + 16 :]


def test_a_thread_that_is_counted() -> None:
    found = parse_task_delay(recorded("taskstats-v16-worker"))
    assert found == (16, 0, 0, True)
    waited = parse_task_delay(with_delay(recorded("taskstats-v16-worker"), 3, 250_000_000))
    assert (waited.block_io_count, waited.block_io_nanoseconds) == (3, 250_000_000)


def test_a_thread_older_than_the_switch_is_not_counted() -> None:
    assert parse_task_delay(recorded("taskstats-v16-uncounted")).accounted is False


def test_an_old_kernel_cannot_tell_whether_it_counts() -> None:
    message = bytearray(recorded("taskstats-v16-worker"))
    struct.pack_into("=H", message, len(message) - 560, 8)
    assert parse_task_delay(bytes(message)).accounted is None
    assert parse_task_delay(with_delay(bytes(message), 1, 5)).accounted is True


def test_a_thread_that_is_gone() -> None:
    with pytest.raises(NetlinkRefusal) as caught:
        parse_task_delay(recorded("taskstats-gone"))
    assert caught.value.number == errno.ESRCH


@given(st.binary(max_size=80), st.integers(0, 700))
def test_no_message_is_a_crash(junk: bytes, cut: int) -> None:
    whole = recorded("taskstats-v16-worker")
    for message in (junk, whole[:cut], whole[:cut] + junk):
        for parse in (parse_task_delay, parse_family):
            with contextlib.suppress(NetlinkRefusal, ValueError):
                parse(message)


def test_ticks_of_the_stat_file() -> None:
    own = Path("/proc/self/stat").read_text()
    head, _, rest = own.rpartition(")")
    fields = rest.split()
    fields[39] = "23"
    assert parse_block_io_ticks(f"{head}) with (odd) name) {' '.join(fields)}") == 23
    with pytest.raises(ValueError, match="delayacct"):
        parse_block_io_ticks("1 (nginx) S 1 2")


def test_jumps_of_the_count_are_dropped() -> None:
    before = DelayReading(10.0, {1: 5.0, 2: 1.0, 3: 0.0})
    after = DelayReading(11.0, {1: 5.9, 2: 1770.0, 4: 1.0})
    assert delay_between(before, after) == {1: pytest.approx(0.9), 2: None}
