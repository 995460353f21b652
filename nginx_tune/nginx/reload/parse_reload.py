"""Lines in nginx's error logs about a reload, and owners of sockets in /proc/net/tcp; pure.

Source: ngx_log_error_core (``DATE TIME [LEVEL] PID#THREAD: TEXT``), ngx_process.c
ngx_process_get_status.
"""

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
"""A notable line, whose group ``text`` ends before the client of the request."""
_OF_REQUEST = re.compile(rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[[a-z]+\] \d{1,10}#\d+: \*\d+ ")
"""A line about a connection; a part of its text is from the client."""
_MOST_MESSAGE_BYTES = 4096
"""Longest message: NGX_MAX_ERROR_STR (ngx_log.h) is 2,048, but some distributors build nginx with
4,096."""
_NUMBER = re.compile(r"[0-9]+")
_VARYING = re.compile(r"(\*|#|connection |RLIMIT_[A-Z]+, )[0-9]+")
"""Numbers of connections and sockets, and the value of a limit that could not be raised."""
_MOST_LINES = 8
_ENDED = re.compile(rb"\S+ process (\d{1,10}) (?:exited|\S+ )")
_MOST_TEXT = 300
_ESTABLISHED = "01"


class ClientText:
    """A filter for the lines of a log that no client can have written.

    nginx logs a line break in a path (``%0A``) as it is, and the text after it looks like a
    separate line. Such a message begins with the number of its connection, is written in one call
    and has a limited length. So a line counts if it names no connection and begins more than this
    length after the last line that names one. A client that forges numbers makes more lines
    doubtful, never fewer. Many lines of nginx itself are dropped too, so the absence of a line
    proves nothing.
    Source: ngx_log_error_core(), ngx_http_log_error().
    """

    def __init__(self, amid: int | None = None) -> None:
        """``amid``: an offset in the middle of a message whose beginning was not read."""
        self._request_at = -_MOST_MESSAGE_BYTES if amid is None else amid

    def is_free(self, at: int, line: bytes) -> bool:
        """True if only nginx can have written the line; call this for each line in order.

        ``at`` is the offset of the line in its file, in bytes.
        """
        if _OF_REQUEST.match(line):
            self._request_at = at
            return False
        return at - self._request_at >= _MOST_MESSAGE_BYTES


def is_fault(line: bytes) -> bool:
    """True for an emergency or an alert that names no connection."""
    match = _LINE.match(line)
    return match is not None and not _OF_REQUEST.match(line)


def bad_lines(
    lines: Iterable[bytes], *, ours: Collection[int] | None, old: Collection[int]
) -> list[str]:
    """The emerg and alert lines of the processes ``ours`` (the master and the new workers).

    With None, the lines of every process count. Lines that report the exit of an ``old`` worker
    are left out, since a reload ends those workers.
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
    """The emergencies and alerts of the workers ``serving`` before a change, by kind.

    A master's lines are about its reloads, and those of other workers may be about a change that
    was undone. Neither describes the present state, nor do lines about the end of a process.
    """
    return frozenset(
        fault_kind(text)
        for text in bad_lines(lines, ours=serving, old=())
        if not _ENDED.search(text.encode())
    )


def fault_kind(text: str) -> str:
    """A line of ``bad_lines`` without numbers that vary although the cause is the same."""
    return _VARYING.sub(r"\1", text.partition(", client: ")[0])


def notable_lines(lines: Iterable[bytes]) -> list[str]:
    """Lines of level ``warn`` or above, without time and process.

    Of lines that differ only in numbers, the first one is kept.
    """
    found: dict[str, str] = {}
    for line in lines:
        match = _NOTABLE.match(line)
        if match is not None:
            text = f"[{match['level'].decode()}] {match['text'].decode(errors='replace')}"
            found.setdefault(_NUMBER.sub("0", text), text[:_MOST_TEXT])
    return list(found.values())[:_MOST_LINES]


def accepted_inode(tables: Iterable[str], *, server_port: int, client_port: int) -> int | None:
    """The inode of the server's socket, for a connection between two ports of this host.

    Shape:  0 before the connection is accepted, None if there is none.
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
