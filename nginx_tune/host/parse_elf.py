"""The file of a program: the loader and libraries of an ELF file, and nginx's version texts.

Source: elf(5), ld.so(8), System V ABI (gabi) chapter 5 "Dynamic Section"; src/core/nginx.c
ngx_show_version_info(), NGX_CONFIGURE in objs/ngx_auto_config.h.

This file is part of the collector: standard library, Python 3.6.
"""

import re
import struct
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 15, 29
_DT_LIBRARIES = (_DT_NEEDED, 0x6FFFFEFB, 0x6FFFFEFC, 0x7FFFFFFD, 0x7FFFFFFF)
"""NEEDED, DEPAUDIT, AUDIT, AUXILIARY and FILTER, which all name libraries to load."""
_MOST_HEADERS = 512
_MOST_ENTRIES = 4096
_LONGEST_NAME = 4096

ReadAt = Callable[[int, int], bytes]
"""A function that reads a number of bytes at an offset of a file."""

ElfPaths = NamedTuple(
    "ElfPaths", [("interpreter", str), ("libraries", List[str]), ("directories", List[str])]
)
"""The interpreter (or empty), the names of libraries, and RPATH and RUNPATH as stored."""


def parse_elf(read_at: ReadAt) -> Optional[ElfPaths]:
    """The loader and libraries that an ELF file names; None for any other file.

    Errors: ValueError for a broken ELF file.
    """
    head = read_at(0, 64)
    if head[:4] != b"\x7fELF":
        return None
    try:
        return _parse(read_at, head)
    except (struct.error, IndexError, ZeroDivisionError) as error:
        raise ValueError("a broken ELF file: {}".format(error))  # noqa: B904


def _parse(read_at: ReadAt, head: bytes) -> ElfPaths:
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    # e_phoff, then e_phentsize and e_phnum.
    at, form, sizes_at = (32, "Q", 54) if wide else (28, "I", 42)
    (offset,) = struct.unpack_from(order + form, head, at)
    size, count = struct.unpack_from(order + "HH", head, sizes_at)
    table = read_at(offset, size * min(count, _MOST_HEADERS))
    headers = [_header(table, size * number, order, wide) for number in range(len(table) // size)]
    loads = [header for header in headers if header[0] == _PT_LOAD]
    interpreter, libraries, directories = "", [], []
    for kind, start, _, length in headers:
        if kind == _PT_INTERP:
            interpreter = _string(read_at(start, min(length, _LONGEST_NAME)))
        elif kind == _PT_DYNAMIC:
            entries = _entries(read_at(start, length), order, wide)
            strings = next((value for tag, value in entries if tag == _DT_STRTAB), None)
            if strings is None:
                continue
            at = _file_offset(loads, strings)
            for tag, value in entries:
                if tag in _DT_LIBRARIES:
                    libraries.append(_string(read_at(at + value, _LONGEST_NAME)))
                elif tag in (_DT_RPATH, _DT_RUNPATH):
                    directories += _string(read_at(at + value, _LONGEST_NAME)).split(":")
    return ElfPaths(interpreter, libraries, directories)


def _header(table: bytes, at: int, order: str, wide: bool) -> Tuple[int, int, int, int]:
    """A segment's kind, file offset, address and size in the file."""
    if wide:
        kind, _, offset, address, _, size = struct.unpack_from(order + "IIQQQQ", table, at)
    else:
        kind, offset, address, _, size = struct.unpack_from(order + "IIIII", table, at)
    return kind, offset, address, size


def _entries(data: bytes, order: str, wide: bool) -> List[Tuple[int, int]]:
    """The tags and values of the dynamic section."""
    form = order + ("QQ" if wide else "II")
    found = []
    for at in range(min(len(data) // struct.calcsize(form), _MOST_ENTRIES)):
        tag, value = struct.unpack_from(form, data, at * struct.calcsize(form))
        if tag == _DT_NULL:
            break
        found.append((tag, value))
    return found


def _file_offset(loads: List[Tuple[int, int, int, int]], address: int) -> int:
    for _, offset, start, size in loads:
        if start <= address < start + size:
            return offset + address - start
    raise ValueError("a broken ELF file: its strings are in no segment")


def _string(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def expand(directory: str, variables: Dict[str, str]) -> str:
    """An element of a run path with ``$ORIGIN``, ``$LIB`` and ``$PLATFORM`` expanded."""
    for name, value in variables.items():
        directory = directory.replace("${" + name + "}", value).replace("$" + name, value)
    return directory


_TEXTS = re.compile(
    rb"\w{1,20} version: [\w-]{1,40}/[0-9][ -~]{0,80}"
    rb"|built with \w{0,20}SSL [ -~]{1,60}?(?= \(running|\0|\n)"
    rb"|configure arguments: ?[ -~]{0,65536}"
)


def version_texts(program: bytes) -> str:
    """The lines of ``nginx -V``, read from the program without running it; empty if it has none.

    The texts are compiled into nginx as a whole. So even a program that must not be run, such as
    one of a container or another user, shows its version.
    """
    found = []
    for match in _TEXTS.finditer(program):
        line = match.group().decode()
        if line not in found:
            found.append(line)
    return "".join(line + "\n" for line in found)
