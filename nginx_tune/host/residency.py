"""The share of files in the page cache, and the system calls that report it.

Nothing here reads file data: cachestat(2) and mincore(2) report the page cache and leave it as
it is. preadv2 with RWF_NOWAIT would start read-ahead, and posix_fadvise would drop pages.
"""

import ctypes
import errno
import math
import mmap
import os
import random
import time
from collections import Counter
from typing import Literal, NamedTuple

from nginx_tune.documents.facts import Residency
from nginx_tune.host.parse_storage import ByteSample, Sampled

_OVERLAYFS = 0x794C7630
_ZFS = 0x2FC12FC1
_SEED = 1
_FEW_FILES = 30
"""Minimum number of checked files for a ratio, unless the whole sample is smaller."""
_NO_CACHESTAT = frozenset({errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL})

ResidencyMethod = Literal["cachestat", "mincore"]


class _Answer(NamedTuple):
    resident_bytes: int
    method: ResidencyMethod
    trusted: bool


def read_residency(
    root: str, sample: ByteSample, total_bytes: int, *, deadline: float, is_whole: bool = True
) -> Residency:
    """The share of a tree in the page cache, estimated from a sample of its files.

    ``is_whole``: true if the walk covered every file. The order is random, so the files that were
    checked when the time is up are a fair sample.
    """
    if not sample.files:
        return Residency(reason="no bytes to check")
    filesystem = statfs_magic(root)
    if filesystem == _ZFS:
        return Residency(reason="ZFS keeps file data in the ARC, not in the page cache")
    may_cachestat = filesystem != _OVERLAYFS
    order = random.Random(_SEED).sample(sample.files, len(sample.files))  # noqa: S311
    asked_bytes = 0.0
    shares: list[tuple[float, float]] = []
    methods: Counter[ResidencyMethod] = Counter()
    untrusted = failed = 0
    for file in order:
        if time.monotonic() > deadline and methods:
            break
        answer = _ask(os.path.join(root, file.path), file, may_cachestat)  # noqa: PTH118
        if answer is None:
            failed += 1
            continue
        methods[answer.method] += 1
        untrusted += not answer.trusted
        weight = sample.weight_bytes(file)
        shares.append((answer.resident_bytes / file.size_bytes, weight))
        asked_bytes += file.size_bytes
    if not shares:
        return Residency(reason="no file of the sample could be opened")
    reasons = []
    if untrusted:
        reasons.append(f"{untrusted} files belong to others: mincore reports those as resident")
    if failed:
        reasons.append(f"{failed} files could not be opened")
    answered = sum(methods.values())
    few = answered + failed < min(len(order), _FEW_FILES)
    if few:
        reasons.append(f"only {answered} of {len(order)} sampled files could be checked in time")
    asked_all = is_whole and not sample.stride_bytes and answered == len(order)
    ratio, error = weighted_share(shares)
    return Residency(
        ratio=ratio,
        error_ratio=0.0 if asked_all else error,
        method=methods.most_common(1)[0][0],
        trusted=not untrusted and not few and failed <= len(order) // 10,
        reason="; ".join(reasons),
        coverage_ratio=min(1.0, asked_bytes / total_bytes) if total_bytes else None,
    )


def weighted_share(shares: list[tuple[float, float]]) -> tuple[float, float]:
    """The mean of (share, weight) pairs and half of its 95 % interval.

    If all n files agree, the bound is the rule of three: with 95 % confidence, a share below 3/n of
    all files differs. Unequal weights count as fewer files (Kish's effective sample size).
    """
    total = sum(weight for _, weight in shares)
    mean = sum(share * weight for share, weight in shares) / total
    squares = sum(weight * weight for _, weight in shares)
    spread = math.sqrt(sum((weight * (share - mean)) ** 2 for share, weight in shares)) / total
    return mean, min(1.0, max(1.96 * spread, 3 * squares / total**2))


def _ask(path: str, file: Sampled, may_cachestat: bool) -> _Answer | None:
    try:
        descriptor = _open(path)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        size = min(status.st_size, file.size_bytes)
        if may_cachestat:
            try:
                pages = cachestat_pages(descriptor)
                return _Answer(min(size, pages * PAGE_BYTES), "cachestat", trusted=True)
            except OSError as error:
                if error.errno not in _NO_CACHESTAT:
                    raise
        pages = mincore_pages(descriptor, size)
        trusted = may_ask_mincore(descriptor, status.st_uid)
        return _Answer(min(size, pages * PAGE_BYTES), "mincore", trusted)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def may_ask_mincore(descriptor: int, owner: int) -> bool:
    """True when mincore(2) is truthful: for the owner and for a user who may write.

    Root is taken to have the owner's capability (CAP_FOWNER).
    """
    if os.geteuid() in {0, owner}:
        return True
    return os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True)


def _open(path: str) -> int:
    """Open a file for mapping, without changing its access time if the kernel permits that."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags)


PAGE_BYTES = mmap.PAGESIZE

_CACHESTAT = 451
"""The call's number on every architecture but alpha (Linux 6.5)."""
_WINDOW_BYTES = 1 << 30
"""The bytes of a file to map at once; mincore(2) answers with one byte for each page."""

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
    """The file's pages in the page cache.

    Errors: OSError; ENOSYS before Linux 6.5, EPERM for another user's file.
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
    """The file's pages in the page cache, through a mapping that is never accessed.

    Errors: OSError. For a file that the caller neither owns nor may write, the kernel reports all
            pages as resident (mm/mincore.c can_do_mincore()): check the owner first.
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
            # Only the lowest bit has a meaning, and the kernel sets no other.
            resident += vector.raw.count(b"\x01")
        finally:
            _libc.munmap(address, length)
    return resident


def statfs_magic(path: str) -> int:
    """``f_type`` of statfs(2), the first word of the structure on 64-bit Linux.

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
