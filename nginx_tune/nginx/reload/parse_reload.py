"""Lines of nginx's error logs about a reload, and owners of sockets in ``/proc/net/tcp``; pure.

Source: ngx_log_error_core (``DATE TIME [LEVEL] PID#THREAD: TEXT``), ngx_process.c
ngx_process_get_status.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_LINE = re.compile(
    rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(?P<level>emerg|alert)\] "
    rb"(?P<pid>\d{1,10})#\d+: (?P<text>.*)"
)
_NOTABLE = re.compile(
    rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(?P<level>warn|error|crit|alert|emerg)\] "
    rb"\d{1,10}#\d+: (?:\*\d+ )?(?P<text>.*?)(?:, client: .*)?$"
)
"""The client of the request is left out."""
_OF_REQUEST = re.compile(rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[[a-z]+\] \d{1,10}#\d+: \*\d+ ")
"""A line with the number of a connection: what follows is in part its client's."""
_MOST_MESSAGE_BYTES = 4096
"""Source: NGX_MAX_ERROR_STR (ngx_log.h): 2,048, but some distributors build it with 4,096."""
_NUMBER = re.compile(r"[0-9]+")
_VARYING = re.compile(r"(\*|#|connection |RLIMIT_[A-Z]+, )[0-9]+")
"""Connections, sockets, and the limit that may not be raised."""
_MOST_LINES = 8
_ENDED = re.compile(rb"\S+ process (\d{1,10}) (?:exited|\S+ )")
_MOST_TEXT = 300
_ESTABLISHED = "01"


class ClientText:
    """Tells the lines of one log that a client cannot have written.

    A path may hold a line break (``%0A``), and nginx logs it as it is: what comes behind looks like
    a line of its own, an emergency of any process. It is part of the message of a connection all
    the same, which begins with that connection's number, is written at once and is bounded. So a
    line counts that has no connection and begins more than such a message behind the last that has
    one. A client that forges numbers too makes more lines doubtful, never fewer; much is left out
    that is nginx's own, and what it would tell must be seen otherwise.
    Source: ngx_log_error_core(), ngx_http_log_error().
    """

    def __init__(self, amid: int | None = None) -> None:
        """``amid`` is where a message may go on whose beginning was not seen."""
        self._request_at = -_MOST_MESSAGE_BYTES if amid is None else amid

    def is_free(self, at: int, line: bytes) -> bool:
        """True for a line that nginx alone has written; to be asked of each in its order.

        ``at`` is where it begins, in bytes from the beginning of its file.
        """
        if _OF_REQUEST.match(line):
            self._request_at = at
            return False
        return at - self._request_at >= _MOST_MESSAGE_BYTES


def is_fault(line: bytes) -> bool:
    """True for a line that is an emergency or an alert without a connection."""
    match = _LINE.match(line)
    return match is not None and not _OF_REQUEST.match(line)


def bad_lines(
    lines: Iterable[bytes], *, ours: Collection[int] | None, old: Collection[int]
) -> list[str]:
    """The emergencies and alerts that processes ``ours`` (the master, its new workers) logged.

    With null those of every process. What is told of the end of ``old`` workers is theirs: they are
    asked to go.
    """
    found = []
    for line in lines:
        match = _LINE.match(line)
        if match is None or (ours is not None and int(match["pid"]) not in ours):
            continue
        ended = _ENDED.match(match["text"])
        if ended is not None and int(ended[1]) in old:
            continue
        text = f"[{match['level'].decode()}] {match['text'].decode(errors='replace')}"
        found.append(text[:_MOST_TEXT])
    return list(dict.fromkeys(found))


def known_faults(lines: Iterable[bytes], *, serving: Collection[int]) -> frozenset[str]:
    """The emergencies and alerts that workers ``serving`` before a change have logged, by kind.

    Those of a master are of its reloads, and those of other workers may be of a change that was
    taken back: neither stands for how things are. The end of a process is no state either.
    """
    return frozenset(
        fault_kind(text)
        for text in bad_lines(lines, ours=serving, old=())
        if not _ENDED.search(text.encode())
    )


def fault_kind(text: str) -> str:
    """A line of ``bad_lines`` without the numbers that differ where the cause is the same."""
    return _VARYING.sub(r"\1", text.partition(", client: ")[0])


def notable_lines(lines: Iterable[bytes]) -> list[str]:
    """The lines from ``warn`` on, without time and process; of those alike but for numbers one."""
    found: dict[str, str] = {}
    for line in lines:
        match = _NOTABLE.match(line)
        if match is not None:
            text = f"[{match['level'].decode()}] {match['text'].decode(errors='replace')}"
            found.setdefault(_NUMBER.sub("0", text), text[:_MOST_TEXT])
    return list(found.values())[:_MOST_LINES]


def accepted_inode(tables: Iterable[str], *, server_port: int, client_port: int) -> int | None:
    """The server's socket of a connection between two ports of this host.

    Shape:  0 while nobody has accepted it, null when there is none.
    Source: net/ipv4/tcp_ipv4.c get_tcp4_sock().
    """
    local, remote = f":{server_port:04X}", f":{client_port:04X}"
    for table in tables:
        for line in table.splitlines():
            if remote not in line:
                continue
            words = line.split()
            if words[1].endswith(local) and words[2].endswith(remote) and words[3] == _ESTABLISHED:
                return int(words[9])
    return None
