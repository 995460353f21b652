"""Numbers of system calls: those of Linux 6.14, by architecture, from a table beside this file.

Source: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

_COLUMNS = {"x86_64": 1, "aarch64": 2}


@functools.cache
def call_numbers(machine: str) -> Mapping[str, int]:
    """The numbers of an architecture by name; none for one that the table lacks."""
    column = _COLUMNS.get(machine)
    if column is None:
        return {}
    rows = Path(__file__).with_name("system_calls.tsv").read_text().splitlines()
    fields = [row.split("\t") for row in rows]
    return {row[0]: int(row[column]) for row in fields if row[column]}
