"""What the options of ``probe`` say, as people write it."""

from __future__ import annotations

import re

from nginx_tune.cli.options import parse_duration
from nginx_tune.documents.loadplan import ByteRanges, Priority, Stripe
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.bounds import CAP_NAMES
from nginx_tune.measure.load.one_class import Keepalive, OfferedRate

_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,6})?(?:[eE]\+?[0-9])?"
_BYTES = re.compile(r"([0-9]{1,12})\s*([kKmMgG]?)(?:i?[bB])?")
_MOMENT = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,9})?")
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_rate(text: str) -> OfferedRate:
    """``100``; ``100,200,400`` in equal steps; ``100-500`` growing evenly."""
    ramp = re.fullmatch(rf"({_NUMBER})-({_NUMBER})", text.strip())
    parts = list(ramp.groups()) if ramp else text.split(",")
    if not all(re.fullmatch(_NUMBER, part.strip()) for part in parts):
        raise UsageError(f"--rate '{text}' is no rate", hint="for example 100, 100,200 or 100-500")
    values = tuple(float(part) for part in parts)
    if not any(values) or (len(values) == 1 and not values[0]):
        raise UsageError(f"--rate '{text}': a rate is above 0")
    return OfferedRate(values, ramp=ramp is not None)


def parse_keepalive(text: str) -> Keepalive:
    """``on``, ``off``, ``100`` requests a connection, or ``1/100``: closed by chance."""
    word = text.strip().lower()
    if word in ("on", "off"):
        return Keepalive(kept=word == "on")
    chance = re.fullmatch(r"1/([0-9]{1,9})", word)
    number = re.fullmatch(r"[0-9]{1,9}", word)
    if chance and int(chance[1]) > 0:
        return Keepalive(close_probability=1 / int(chance[1]))
    if number and int(word) > 0:
        return Keepalive(requests=int(word))
    raise UsageError(
        f"--keepalive '{text}' is none", hint="on, off, 100 (requests), or 1/100 (by chance)"
    )


def parse_range(text: str) -> ByteRanges:
    """``0-1023``, or ``random:64k``."""
    word = text.strip()
    if word.startswith("random:"):
        size = parse_bytes(word.removeprefix("random:"), "--range")
        return ByteRanges(kind="random", bytes=size)
    fixed = re.fullmatch(r"([0-9]{1,15})-([0-9]{1,15})", word)
    if fixed is None or int(fixed[1]) > int(fixed[2]):
        raise UsageError(f"--range '{text}' is none", hint="for example 0-1023 or random:64k")
    return ByteRanges(kind="fixed", first=int(fixed[1]), last=int(fixed[2]))


def parse_priority(text: str) -> Priority:
    """``weight=220``, ``u=1``, ``u=1,i``, ``weight=220,u=1``."""
    words = [word.strip().lower() for word in text.split(",")]
    found = dict(word.split("=", 1) for word in words if "=" in word)
    weight, urgency = found.pop("weight", None), found.pop("u", None)
    flags = [word for word in words if "=" not in word]
    fits = (
        not found
        and len(words) == len({word.split("=")[0] for word in words})
        and flags in ([], ["i"])
        and (weight is None or (re.fullmatch(r"\d{1,3}", weight) and 1 <= int(weight) <= 256))  # noqa: PLR2004
        and (urgency is None or re.fullmatch(r"[0-7]", urgency))
        and (urgency is not None or (weight is not None and not flags))
    )
    if not fits:
        raise UsageError(
            f"--priority '{text}' is none",
            hint="weight=1…256 (HTTP/2), u=0…7 and i: for example weight=220,u=1,i",
        )
    return Priority(
        weight=None if weight is None else int(weight),
        urgency=None if urgency is None else int(urgency),
        incremental=bool(flags),
    )


def parse_bytes(text: str, option: str) -> int:
    """Bytes of ``65536``, ``64k``, ``1m``, as nginx counts them."""
    match = _BYTES.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(f"{option} '{text}' is no number of bytes", hint="for example 64k")
    return int(match[1]) * _SCALE[match[2].lower()]


def parse_caps(texts: tuple[str, ...]) -> dict[str, float]:
    """Bounds of a run by name: ``connections=20000``, ``seconds=1h``, ``bytes=10g``."""
    caps: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in CAP_NAMES or not value:
            raise UsageError(
                f"--cap '{text}' is none", hint=f"NAME=VALUE with {', '.join(CAP_NAMES)}"
            )
        if name == "seconds":
            caps[name] = parse_duration(value)
        elif name == "bytes":
            caps[name] = parse_bytes(value, "--cap bytes")
        elif re.fullmatch(r"[1-9][0-9]{0,14}", value):
            caps[name] = int(value)
        else:
            raise UsageError(f"--cap '{text}': no whole number above 0")
    return caps


def parse_headers(texts: tuple[str, ...]) -> dict[str, str]:
    """Request headers, each ``Name: value``."""
    headers = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header '{text}' is none", hint="for example 'Accept: text/html'")
        headers[name.strip()] = value.strip()
    return headers


def parse_stripe(text: str) -> Stripe:
    """``2/3``: the second of three load hosts."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--stripe '{text}' is none", hint="2/3 is the second of three")
    return Stripe(index=int(match[1]) - 1, count=int(match[2]))


def parse_statuses(text: str) -> list[int]:
    """``200`` or ``200,304``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-5][0-9][0-9]", part) for part in parts):
        raise UsageError(f"--status '{text}' is none", hint="for example 200 or 200,304")
    return [int(part) for part in parts]


def parse_moment(text: str) -> float:
    """Seconds since 1970 UTC of a number of them, or of ``2026-11-20T19:00:00Z``."""
    from datetime import datetime  # noqa: PLC0415  # rarely needed

    word = text.strip()
    if _MOMENT.fullmatch(word):
        return float(word)
    try:
        moment = datetime.fromisoformat(word.replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            f"--start-at '{text}' is no moment", hint="for example 2026-11-20T19:00:00Z"
        )
    return moment.timestamp()
