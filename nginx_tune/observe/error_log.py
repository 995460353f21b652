"""The end of an nginx error log."""

from __future__ import annotations

import os
import stat

from nginx_tune.documents.facts import ErrorLog
from nginx_tune.host.door import HostReadError
from nginx_tune.observe.parse_error_log import logged_messages, parse_error_log

TAIL_BYTES = 4 << 20
"""About 30 000 lines: hours of a troubled server, days of a healthy one."""


def read_error_log(path: str, *, tail_bytes: int = TAIL_BYTES) -> ErrorLog:
    """What the last part of an error log says; a log that is not there yet says nothing.

    Errors: HostReadError when it cannot be read or is no regular file.
    """
    try:
        # Without waiting: a log may be a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ErrorLog(path=path, bytes_read=0)
    except (OSError, ValueError) as error:
        raise HostReadError(f"read {path}", str(error)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise HostReadError(f"read {path}", "not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - tail_bytes))
        try:
            data = file.read(tail_bytes)
        except OSError as error:
            raise HostReadError(f"read {path}", str(error)) from None
    if start:
        data = data.partition(b"\n")[2]  # the first line is cut
    counts = parse_error_log(data.splitlines())
    return ErrorLog(
        path=path,
        pool_overflow=counts.by_name("pool_overflow"),
        connections_exhausted=counts.by_name("connections_exhausted"),
        operations_too_slow=counts.count("operations_too_slow"),
        messages=logged_messages(counts),
        bytes_read=len(data),
        complete=start == 0,
    )
