"""Whose code ran: ring buffers and memory maps as the kernel writes them."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from tiers import REPEAT, dice

from nginx_tune.observe.parse_counters import CodeMap, parse_samples

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
