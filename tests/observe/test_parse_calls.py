"""System calls, samples and delays of a worker, as the kernel tells them."""

import contextlib
import errno
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import lacks
from rows import each_row
from tiers import REPEAT, dice

from nginx_tune.observe.accounting import DelayReading, delay_between
from nginx_tune.observe.parse_counters import (
    CodeMap,
    NetlinkRefusal,
    parse_block_io_ticks,
    parse_family,
    parse_samples,
    parse_task_delay,
)
from nginx_tune.observe.parse_turns import parse_call
from nginx_tune.observe.states import file_of, read_call, threads_in_turns


@each_row(
    ("text", "machine", "name", "kind", "descriptor"),
    [
        ("232 0x8 0x55 0x200 0xffffffffffffffff 0x0 0x0 0x7ffd 0x7f\n", "x86_64", "epoll_wait",
         "loop", None),
        ("40 0x3 0xc 0x7ff 0x80000 0x0 0x0 0x7ffd 0x7f", "x86_64", "sendfile", "read", 12),
        ("17 0xb 0x55 0x1000 0x0 0x0 0x0 0x7 0x7", "x86_64", "pread64", "read", 11),
        ("1 0x5 0x55 0x60 0x0 0x0 0x0 0x7 0x7", "x86_64", "write", "write", 5),
        ("257 0xffffffffffffff9c 0x55 0x800 0x0 0x0 0x0 0x7 0x7", "x86_64", "openat", "names",
         None),
        ("-1 0x7ffd 0x7f", "x86_64", "page fault", "page fault", None),
        ("running", "x86_64", "", "running", None),
        ("71 0x3 0xc 0x0 0x80000 0x0 0x0 0x7 0x7", "aarch64", "sendfile", "read", 12),
        ("22 0x3 0xc 0x0 0x80000 0x0 0x0 0x7 0x7", "aarch64", "epoll_pwait", "loop", None),
        ("230 0x0 0x0 0x7 0x0 0x0 0x0 0x7 0x7", "x86_64", "clock_nanosleep", "other", None),
        ("5555 0x0", "x86_64", "system call 5555", "other", None),
        ("1 0x5", "mips64", "system call 1", "other", None),
    ],
)  # fmt: skip
def test_calls(text: str, machine: str, name: str, kind: str, descriptor: int | None) -> None:
    call = parse_call(text, machine)
    assert call == (name, kind, descriptor)


@given(st.text(max_size=100))
def test_no_text_is_a_crash(text: str) -> None:
    parse_call(text, "x86_64")


def test_what_a_process_waits_in(tmp_path: Path) -> None:
    """A sleep, and a computation: what is no epoll_wait is a turn."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    waiter = subprocess.Popen([sys.executable, "-c", "import select; select.epoll().poll(60)"])
    try:
        deadline = time.monotonic() + 20
        seen = {}
        while set(seen.values()) != {"loop", "other"}:
            assert time.monotonic() < deadline, seen
            for process in (sleeper, waiter):
                call = read_call(process.pid)
                seen[process.pid] = call.kind if call else None
            if None in seen.values():
                lacks("syscall-files", "this user may not look at system calls")
            time.sleep(0.01)
        assert threads_in_turns({sleeper.pid: 17, waiter.pid: 18}) == {17: "asleep"}
    finally:
        for process in (sleeper, waiter):
            process.kill()
            process.wait()
    log = tmp_path / "access.log"
    with log.open("ab") as appended, log.open("rb") as read:
        assert file_of(os.getpid(), appended.fileno()) == f"+{log}"
        assert file_of(os.getpid(), read.fileno()) == str(log)
    assert file_of(os.getpid(), 1 << 20) == ""
    assert read_call(1 << 22) is None


MAPS = """\
55d0c0a00000-55d0c0a2a000 r--p 00000000 fe:00 1 /usr/sbin/nginx
55d0c0a2a000-55d0c0b00000 r-xp 0002a000 fe:00 1 /usr/sbin/nginx
7f0000000000-7f0000010000 r-xp 00000000 fe:00 2 /usr/lib/x86_64-linux-gnu/libz.so.1.2.13
7f0000020000-7f0000030000 r-xp 00000000 fe:00 3 /usr/lib/x86_64-linux-gnu/libcrypto.so.3 (deleted)
7f0000040000-7f0000050000 r-xp 00000000 fe:00 4 /usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2.1.0
7f0000060000-7f0000070000 r-xp 00000000 fe:00 5 /usr/lib/nginx/modules/ngx_http_lua_module.so
7f0000080000-7f0000090000 r-xp 00000000 00:00 0
7f00000a0000-7f00000b0000 rw-p 00000000 00:00 0 [heap]
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]
7f00000c0000-7f00000d0000 r-xp 00000000 fe:00 6 /usr/lib/x86_64-linux-gnu/libpcre2-8.so.0.11.2
junk
"""


def test_addresses_are_told_by_the_library_they_are_in() -> None:
    code = CodeMap(MAPS)
    for address, name in (
        (0x55D0C0A2A000, "nginx"),
        (0x55D0C0A00000, "unknown"),  # not executable
        (0x7F000000FFFF, "libz"),
        (0x7F0000010000, "unknown"),  # past the end
        (0x7F0000020001, "libcrypto"),
        (0x7F0000040001, "libluajit"),
        (0x7F0000060001, "ngx_http_lua_module"),
        (0x7F0000080001, "generated code"),
        (0x7F00000A0001, "unknown"),
        (0x7F00000C0001, "libpcre2"),
        (0x7FFC00000001, "vdso"),
        (1, "unknown"),
    ):
        assert code.name_of(address) == name, hex(address)


def record(kind: int, mode: int, body: bytes) -> bytes:
    return struct.pack("=IHH", kind, mode, 8 + len(body)) + body


def test_records_of_the_ring_buffer() -> None:
    deal = dice("records of the ring buffer")
    wanted = [deal.randrange(1 << 47) for _ in range(200)]
    data = b""
    kernel = 0
    for address in wanted:
        data += record(9, 2, struct.pack("=Q", address))
        if deal.random() < 0.3:
            data += record(9, 1, struct.pack("=Q", 1 << 63))
            kernel += 1
        if deal.random() < 0.2:
            data += record(deal.choice([2, 5, 6]), 0, deal.randbytes(8 * deal.randrange(4)))
    found = parse_samples(data)
    assert (found.addresses, found.kernel) == (wanted, kernel), REPEAT
    cut = parse_samples(data[:-3])
    assert len(cut.addresses) + cut.kernel >= len(wanted) + kernel - 1


@given(st.binary(max_size=300), st.text(max_size=200))
def test_no_input_is_a_crash(data: bytes, text: str) -> None:
    parse_samples(data)
    CodeMap(text).name_of(5)


DATA = Path(__file__).parent / "data"


def recorded(name: str) -> bytes:
    return bytes.fromhex((DATA / f"{name}.hex").read_text())


def with_delay(message: bytes, count: int, nanoseconds: int) -> bytes:
    """The message of a thread that waited; the statistics stand 36 bytes into it."""
    at = len(message) - 560 + 32
    return message[:at] + struct.pack("=QQ", count, nanoseconds) + message[at + 16 :]


def test_a_thread_that_is_counted() -> None:
    found = parse_task_delay(recorded("taskstats-v16-worker"))
    assert found == (16, 0, True)
    waited = parse_task_delay(with_delay(recorded("taskstats-v16-worker"), 3, 250_000_000))
    assert waited.block_io_nanoseconds == 250_000_000


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
