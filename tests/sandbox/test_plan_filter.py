"""The filter of system calls, run by an interpreter of its own: what it answers to each call."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import pytest

from nginx_tune.sandbox.plan_filter import ARCHITECTURES, forbidden_calls, plan_filter

ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
HEADERS = {
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
}
SEED = random.randrange(1 << 32)


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
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
def test_each_call_is_answered_as_it_should(machine: str) -> None:
    audit, numbers = ARCHITECTURES[machine]
    program = plan_filter(machine, unix_sockets=False)
    assert program is not None
    assert len(program) // 8 < 4096, "BPF_MAXINSNS"

    def ask(number: int, *arguments: int) -> int:
        return answer(program, number, arguments, audit)

    forbidden = forbidden_calls(machine)
    for number in forbidden.values():
        assert ask(number) & ERROR, number
    judged = {numbers[name] for name in ("clone", "socket", "socketpair", "ioctl", "mknodat")}
    judged |= {numbers["mknod"]} if "mknod" in numbers else set()
    for number in random.Random(SEED).sample(range(460), 200):
        if number not in {*forbidden.values(), *judged}:
            assert ask(number) == ALLOW, (SEED, number)
    assert answer(program, 1, (), audit ^ 1) == KILL
    assert ask(numbers["clone"], 17) == ALLOW
    for flag in (0x00020000, 0x10000000, 0x20000000, 0x40000000, 0x02000000):
        assert ask(numbers["clone"], 17 | flag) & ERROR
    for family in (2, 10):
        assert ask(numbers["socket"], family, 1 | 0o2004000) == ALLOW
        assert ask(numbers["socket"], family, 3) & ERROR, "raw"
    for family in (1, 16, 17, 38, 40):
        assert ask(numbers["socket"], family, 1) & ERROR, family
    assert ask(numbers["socketpair"], 1, 1 | 0o4000) == ALLOW
    assert ask(numbers["socketpair"], 1, 2) & ERROR
    assert ask(numbers["ioctl"], 0, 0x5412) & ERROR
    assert ask(numbers["mknodat"], 0, 0, 0o100644) == ALLOW
    assert ask(numbers["mknodat"], 0, 0, 0o020644) & ERROR


def test_sockets_with_a_path_are_allowed_where_they_are_wanted() -> None:
    program = plan_filter("x86_64", unix_sockets=True)
    assert program is not None
    assert answer(program, 41, (1, 1), 0xC000003E) == ALLOW
    assert answer(program, 41, (16, 3), 0xC000003E) & ERROR
    assert answer(program, 0x40000000 + 41, (1, 1), 0xC000003E) == KILL, "x32"


def test_an_unknown_machine_has_no_filter() -> None:
    assert plan_filter("riscv64", unix_sockets=False) is None


@pytest.mark.needs("kernel-headers")
@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    lines = re.findall(
        r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", HEADERS[machine].read_text(), re.MULTILINE
    )
    theirs = {name: int(number) for name, number in lines}
    ours = {**forbidden_calls(machine), **ARCHITECTURES[machine].numbers}
    wrong = {name: theirs[name] for name in ours if theirs.get(name, ours[name]) != ours[name]}
    assert not wrong
    assert ours.keys() - theirs.keys() <= {"open_tree_attr"}, "newer than some headers"


@pytest.mark.needs("kernel-headers")
def test_every_machine_forbids_what_another_does() -> None:
    header = HEADERS["aarch64"].read_text()
    known = set(re.findall(r"^#define __NR(?:3264)?_(\w+)\s+\d", header, re.MULTILINE))
    lacking = forbidden_calls("x86_64").keys() - forbidden_calls("aarch64").keys()
    assert not lacking & known
