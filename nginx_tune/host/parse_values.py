"""Single values as /proc and /sys print them."""

from __future__ import annotations

import re

from nginx_tune.host.door import Missing

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def parse_integer(text: str) -> int | Missing:
    """One decimal number, alone in its file."""
    text = text.strip()
    if not _INTEGER.fullmatch(text):
        return Missing(f"not a number: {text[:40]!r}")
    return int(text)


def parse_id_list(text: str) -> frozenset[int] | Missing:
    """CPU or node numbers from the kernel's list form, e.g. ``0-3,8``; empty text is no CPU.

    Source: Documentation/core-api/cpu_hotplug.rst, lib/bitmap-str.c bitmap_parselist().
    """
    found: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _RANGE.fullmatch(part)
        if match is None:
            return Missing(f"not a list of CPUs: {text.strip()[:40]!r}")
        first = int(match[1])
        found.update(range(first, int(match[2] or first) + 1))
    return frozenset(found)


def parse_choice(text: str) -> str | Missing:
    """The chosen word of a sysfs menu: ``mq-deadline`` of ``none [mq-deadline] kyber``."""
    match = re.search(r"\[([\w+-]+)\]", text)
    if match:
        return match[1]
    words = text.split()
    return words[0] if len(words) == 1 else Missing(f"nothing chosen in {text.strip()[:40]!r}")


def parse_release(release: str) -> tuple[int, int]:
    """Major and minor of a kernel release; ``(0, 0)`` when it starts otherwise."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)
