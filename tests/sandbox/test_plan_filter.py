"""The filter of system calls, run by an interpreter of its own: what it answers to each call.

And the rights of Landlock that each kernel is asked for.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest
from rows import each_row

from nginx_tune.sandbox import kernel_calls
from nginx_tune.sandbox.confinement import restrict_writes
from nginx_tune.sandbox.plan_filter import ALLOWED, AUDIT, call_numbers, plan_filter

ALLOW, KILL, ASK, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x7FC00000, 0x00050001, 0x00050026
EAFNOSUPPORT = 0x00050061
HEADERS = {
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
}
MACHINES = sorted(AUDIT)
NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
              0x00000080)  # fmt: skip
THREAD = 0x003D0F00
"""What pthread_create() asks of clone()."""
JUDGED = {"setrlimit", "prlimit64", "clone", "fork", "vfork", "fcntl", "ioctl", "prctl", "socket",
          "socketpair", "mknod", "mknodat", "io_setup"}  # fmt: skip


def answer(program: bytes, number: int, arguments: tuple[int, ...] = (), audit: int = 0) -> int:
    """What the kernel would answer. Source: linux/filter.h; seccomp_data."""
    data = struct.pack("=IIQ", number & 0xFFFFFFFF, audit, 0)
    data += struct.pack("=6Q", *(*arguments, *(0,) * 6)[:6])
    accumulator = at = 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return int(value)
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += yes if holds else no


class Filter:
    """One program, asked by the names of calls."""

    def __init__(self, machine: str, **options: bool) -> None:
        self.numbers = call_numbers(machine)
        self._audit = AUDIT[machine]
        self.program = plan_filter(machine, self.numbers, **options)

    def __call__(self, name: str, *arguments: int) -> int:
        return answer(self.program, self.numbers[name], arguments, self._audit)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_that_is_not_listed_is_refused(machine: str) -> None:
    ask = Filter(machine)
    assert len(ask.program) // 8 < 4096, "BPF_MAXINSNS"
    for name, number in ask.numbers.items():
        if name in JUDGED:
            continue
        refused = ENOSYS if number >= 424 else ASK
        assert ask(name) == (ALLOW if name in ALLOWED else refused), name
    for number in range(470, 700):
        assert answer(ask.program, number, (), AUDIT[machine]) == ENOSYS
    assert answer(ask.program, 1, (), AUDIT[machine] ^ 1) == KILL
    never = {"mount", "ptrace", "setns", "unshare", "bpf", "keyctl", "init_module",
             "io_uring_setup", "open_by_handle_at", "inotify_init1", "fanotify_init", "flock",
             "timer_create", "perf_event_open", "shmget", "chroot", "pivot_root", "userfaultfd",
             "clone3", "openat2", "process_vm_readv", "kexec_load"}  # fmt: skip
    assert never <= ask.numbers.keys() - ALLOWED


def test_calls_of_another_width_end_the_process() -> None:
    ask = Filter("x86_64")
    assert answer(ask.program, 0x40000000 + 41, (2, 1), AUDIT["x86_64"]) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide(machine: str) -> None:
    ask = Filter(machine)
    assert ask("clone", 17) == ASK, "a process is counted"
    assert ask("clone", THREAD) == ALLOW
    for flag in NAMESPACES:
        assert ask("clone", THREAD | flag) == ASK
    for family in (2, 10):
        assert ask("socket", family, 1 | 0o2004000, 6) == ALLOW
        assert ask("socket", family, 2, 17) == ALLOW
        for kind in (3, 4, 5, 6, 10):
            assert ask("socket", family, kind) == ASK, kind
        for protocol in (1, 2, 58, 132, 255):
            assert ask("socket", family, 1, protocol) == ASK, protocol
    for family in (1, 3, 16, 17, 38, 40):
        assert ask("socket", family, 1) == EAFNOSUPPORT, family
    assert ask("socketpair", 1, 1 | 0o4000) == ALLOW
    assert ask("socketpair", 1, 2) == ASK
    assert ask("socketpair", 40, 1) == EAFNOSUPPORT
    for command in (5, 6, 7, 10, 36, 37, 38, 1024, 1025, 1026, 1033):
        assert ask("fcntl", 3, command) == ASK, command
    assert ask("fcntl", 3, 4, 0o4000) == ALLOW
    assert ask("ioctl", 0, 0x5412) == ASK
    assert ask("ioctl", 0, 0x5421) == ALLOW
    assert ask("prctl", 22) == ASK
    assert ask("prctl", 4) == 0x00050000, "said to be done, and not done"
    assert ask("setrlimit", 7) == ask("prlimit64", 0, 7, 4096) == ask("prlimit64", 0, 4) == ALLOW
    for pointer in (4096, 1 << 32):
        assert ask("setrlimit", 4) == ask("prlimit64", 0, 4, pointer) == ASK, "no dumps"
    assert ask("mknodat", 0, 0, 0o100644) == ALLOW
    assert ask("mknodat", 0, 0, 0o020644) == ASK
    assert ask("io_setup", 32) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_what_a_configuration_needs_is_allowed_for_it_alone(machine: str) -> None:
    ask = Filter(machine, unix_sockets=True, file_aio=True)
    assert ask("socket", 1, 1) == ALLOW
    assert ask("socket", 1, 5) == ASK, "no sequenced packets"
    assert ask("socket", 16, 3) == EAFNOSUPPORT
    assert ask("io_setup", 32) == ASK, "counted"


@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_supervisor_what_it_would_refuse_is_refused(machine: str) -> None:
    ask = Filter(machine, asks=False, file_aio=True)
    assert ask("mount") == EPERM
    assert ask("clone", 0x10000000) == EPERM
    assert ask("clone", 17) == ALLOW
    assert ask("io_setup", 32) == EPERM


@pytest.mark.needs("kernel-headers")
@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    lines = re.findall(
        r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", HEADERS[machine].read_text(), re.MULTILINE
    )
    theirs = {name: int(number) for name, number in lines}
    ours = call_numbers(machine)
    wrong = {name: theirs[name] for name in ours if theirs.get(name, ours[name]) != ours[name]}
    assert not wrong
    known = ALLOWED - ours.keys()
    assert not known & theirs.keys(), "listed and not in the table"


@each_row(
    ("version", "asked"),
    [
        (0, []),
        (1, [(0x1FF2, 0)]),
        (2, [(0x3FF2, 0)]),  # REFER
        (3, [(0x7FF2, 0)]),  # TRUNCATE
        (4, [(0x7FF2, 0)]),
        (5, [(0xFFF2, 0)]),  # IOCTL_DEV
        (6, [(0xFFF2, 3)]),
    ],
)
def test_landlock_is_asked_for_what_its_version_has(
    monkeypatch: pytest.MonkeyPatch, version: int, asked: list[tuple[int, int]]
) -> None:
    """Source: include/uapi/linux/landlock.h."""
    seen: list[tuple[int, int]] = []

    def make_ruleset(rights: int, scopes: int) -> int:
        seen.append((rights, scopes))
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(kernel_calls, "landlock_version", lambda: version)
    monkeypatch.setattr(kernel_calls, "make_ruleset", make_ruleset)
    for name in ("allow_beneath", "restrict_self"):
        monkeypatch.setattr(kernel_calls, name, lambda *_: None)
    restrict_writes(["/tmp"], [])
    assert seen == asked
