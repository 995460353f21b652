"""System calls that Python has no function for.

Nothing here reads file data: cachestat(2) and mincore(2) ask what the page cache holds and
leave it as it is. preadv2 with RWF_NOWAIT would start read-ahead, and posix_fadvise would
drop pages; neither is a question.
"""

from __future__ import annotations

import ctypes
import mmap
import os

PAGE_BYTES = mmap.PAGESIZE

_CACHESTAT = 451
"""The same number on every architecture but alpha (Linux 6.5)."""
_WINDOW_BYTES = 1 << 30
"""How much of a file is mapped at once; one byte of answer for each page."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_libc.syscall.restype = ctypes.c_long
_MAP_FAILED = ctypes.c_void_p(-1).value


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def cachestat_pages(descriptor: int) -> int:
    """Pages of the file in the page cache.

    Errors: OSError; ENOSYS before Linux 6.5, EPERM for a file of somebody else.
    Source: cachestat(2), mm/filemap.c. On overlayfs it counts an empty mapping: always 0.
    """
    whole, answer = _Range(0, 0), _CacheStat()
    _check(
        _libc.syscall(
            ctypes.c_long(_CACHESTAT),
            ctypes.c_uint(descriptor),
            ctypes.byref(whole),
            ctypes.byref(answer),
            ctypes.c_uint(0),
        )
    )
    return int(answer.cached)


def mincore_pages(descriptor: int, size_bytes: int) -> int:
    """Pages of the file in the page cache, by mapping it without touching it.

    Errors: OSError. For a file that the caller neither owns nor may write, the kernel claims
            that all pages are there (mm/mincore.c can_do_mincore()): ask who owns it first.
    """
    resident = 0
    for offset in range(0, size_bytes, _WINDOW_BYTES):
        length = min(_WINDOW_BYTES, size_bytes - offset)
        address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset)
        if address == _MAP_FAILED:
            raise _last_error()
        try:
            vector = ctypes.create_string_buffer(-(-length // PAGE_BYTES))
            _check(_libc.mincore(address, length, vector))
            # Only the lowest bit means anything; the kernel sets no other.
            resident += vector.raw.count(b"\x01")
        finally:
            _libc.munmap(address, length)
    return resident


def statfs_magic(path: str) -> int:
    """``f_type`` of statfs(2); the first word of the structure on 64-bit Linux.

    Errors: OSError.
    """
    buffer = (ctypes.c_long * 64)()
    _check(_libc.statfs(os.fsencode(path), buffer))
    return int(buffer[0]) & 0xFFFFFFFF


def _check(status: int) -> None:
    if status < 0:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
