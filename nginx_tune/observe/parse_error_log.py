"""The lines of an nginx error log; pure, bytes in, counts out.

Source: ngx_log_error_core (time, level, process and connection before the message),
ngx_http_log_error (what it adds on the request); the messages stand in
``documents/log_messages.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from nginx_tune.documents.log_messages import LOG_MESSAGES, MESSAGES_BY_ID, LoggedMessage

_LINE = re.compile(
    rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\w{3,6})\] (?:\d+#\d+: )?(?:\*\d+ )?(.*)", re.DOTALL
)
_FAILED = re.compile(r"\bfailed \((\d{1,3}): ")
_BY_ERROR = {error: one.id for one in LOG_MESSAGES for error in one.errors}
_PATTERNS = [(one.id, re.compile(one.pattern)) for one in LOG_MESSAGES if one.pattern]
_MOST_KNOWN = 1 << 14
"""Messages whose meaning is kept: those that come often are few."""
MOST_MESSAGES = 64
"""The most that are kept in a document: each address of an upstream is one."""
_NONE = MappingProxyType[tuple[str, str], int]({})


class ErrorLogCounts(NamedTuple):
    """Lines by level and by what they tell."""

    levels: Mapping[str, int] = MappingProxyType({})
    messages: Mapping[tuple[str, str], int] = _NONE
    """Lines by the id of a message of the table and what it is about, such as a zone's name."""

    def count(self, field: str) -> int:
        """Lines that add to a counter of ``ServerMeasurement``."""
        return sum(
            n for (id_, _), n in self.messages.items() if field in MESSAGES_BY_ID[id_].counts
        )

    def by_name(self, field: str) -> dict[str, int]:
        """The same by what the lines are about: the pool, or the limit they name."""
        found: Counter[str] = Counter()
        for (id_, name), n in self.messages.items():
            if field in MESSAGES_BY_ID[id_].counts:
                found[name] += n
        return dict(sorted(found.items()))


def logged_messages(counts: ErrorLogCounts) -> list[LoggedMessage]:
    """The messages of the table that were seen, the most frequent first."""
    found = sorted(counts.messages.items(), key=lambda item: (-item[1], item[0]))
    return [LoggedMessage(id=id_, name=name, lines=n) for (id_, name), n in found[:MOST_MESSAGES]]


def parse_error_log(lines: Iterable[bytes]) -> ErrorLogCounts:
    """Counts over the lines of an error log; what is no log line is passed over."""
    levels: Counter[str] = Counter()
    messages: Counter[tuple[str, str]] = Counter()
    known: dict[bytes, tuple[str, str] | None] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        levels[found[1].decode("ascii", "replace")] += 1
        # What nginx adds on the request is the client's text.
        message = found[2].partition(b", client: ")[0].rstrip()
        if message not in known:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[message] = _meaning(message.decode("utf-8", "replace"))
        meaning = known[message]
        if meaning is not None:
            messages[meaning] += 1
    return ErrorLogCounts(dict(sorted(levels.items())), dict(sorted(messages.items())))


def _meaning(message: str) -> tuple[str, str] | None:
    errors = _FAILED.findall(message)
    # The last one: a file's name stands before the reason, and may look like one.
    if errors and int(errors[-1]) in _BY_ERROR:
        return _BY_ERROR[int(errors[-1])], ""
    for id_, pattern in _PATTERNS:
        found = pattern.match(message)
        if found is not None:
            return id_, found.groupdict().get("name") or ""
    return None
