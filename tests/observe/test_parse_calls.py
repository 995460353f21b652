"""System calls that /proc tells, and what a worker is in at the moment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from needs import lacks
from rows import each_row

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
    waiter = subprocess.Popen(
        [sys.executable, "-c", "import select; select.epoll().poll(60)"],
    )
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
