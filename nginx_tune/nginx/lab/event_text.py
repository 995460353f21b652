"""The events that the lab's origin streams: stamped, and of a size to the byte; pure."""

from __future__ import annotations

import random

STAMP = '"sent_ns":'
"""What stands before the time at which an event was sent."""

LAST = "[DONE]"
"""What the last event of every stream is."""

LEAST_EVENT_BYTES = 160

_WORDS = ("the", "of", "and", "to", "in", "that", "it", "was", "for", "with", "as", "his", "at")
_EVENT = (
    'data: {{"id":"chatcmpl-lab","object":"chat.completion.chunk",{stamp}{sent},'
    '"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'
)


class EventText:
    """The text of one stream's events, the same in every run but for its stamps."""

    def __init__(self, event_bytes: int, seed: int) -> None:
        self._bytes = event_bytes
        self._dice = random.Random(seed)  # noqa: S311  # only data

    def event(self, sent_nanoseconds: int) -> bytes:
        """The next event, which was sent then."""
        empty = _EVENT.format(stamp=STAMP, sent=sent_nanoseconds, text="")
        room = max(self._bytes - len(empty), 0)
        text = ""
        while len(text) < room:
            text += f" {self._dice.choice(_WORDS)}"
        event = _EVENT.format(stamp=STAMP, sent=sent_nanoseconds, text=text[:room])
        return event.encode()

    def last(self) -> bytes:
        """What says that the stream is whole."""
        return f"data: {LAST}\n\n".encode()
