"""The load that the options of ``probe`` define, and parsers for their values."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nginx_tune.cli.options import parse_duration
from nginx_tune.documents.loadplan import LoadPlan, Paths, Stripe, Tls
from nginx_tune.errors import UsageError
from nginx_tune.measure.load.one_class import (
    CAP_NAMES,
    OPEN_LOOP_CONNECTIONS,
    Keepalive,
    Load,
    OfferedRate,
    default_threads,
    plan_load,
)
from nginx_tune.measure.load.target import read_manifest_head, read_paths, resolve_url


def plan_of(
    url: str, options: Mapping[str, Any], *, stripe: str | None, start_at: str | None
) -> LoadPlan:
    """The load plan of a URL and these options.

    Errors: UsageError that names the option.
    """
    tls = Tls(verify=not options["insecure"], ca_file=options["ca_file"])
    place = resolve_url(url, tls)
    rate = None if options["rate"] is None else parse_rate(options["rate"])
    most = options["connections"] or OPEN_LOOP_CONNECTIONS
    load = Load(
        http2=options["http2"],
        http3=options["http3"],
        streams=options["streams"],
        connections=options["connections"],
        rate=rate,
        paths=_asked(options["paths_from"]),
        headers=parse_headers(options["headers"]),
        status=parse_statuses(options["status"]),
        timeout_seconds=parse_duration(options["timeout"]),
        keepalive=parse_keepalive(options["keepalive"]),
        duration_seconds=parse_duration(options["duration"]),
        warmup_seconds=_seconds_or_none(options["warmup"]),
        threads=options["threads"] or default_threads(rate, most, len(os.sched_getaffinity(0))),
        stripe=Stripe() if stripe is None else parse_stripe(stripe),
        start_at_unix_seconds=None if start_at is None else parse_moment(start_at),
    )
    return plan_load(place.target, place.path, load)


def _seconds_or_none(text: str) -> float:
    return 0.0 if text in ("0", "0s") else parse_duration(text)


def _asked(source: str | None) -> Paths | None:
    """The paths to request, from a list or a manifest; None to request the URL's own path."""
    if source is None:
        return None
    if read_manifest_head(Path(source)) is not None:
        return Paths(kind="manifest", manifest=source)
    return Paths(kind="uniform", paths=read_paths(Path(source)))


_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,6})?(?:[eE]\+?[0-9])?"
_BYTES = re.compile(r"([0-9]{1,12})\s*([kKmMgG]?)(?:i?[bB])?")
_MOMENT = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,9})?")
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_rate(text: str) -> OfferedRate:
    """Requests per second: ``100``, equal steps ``100,200,400``, or an even rise ``100-500``."""
    ramp = re.fullmatch(rf"({_NUMBER})-({_NUMBER})", text.strip())
    parts = list(ramp.groups()) if ramp else text.split(",")
    if not all(re.fullmatch(_NUMBER, part.strip()) for part in parts):
        raise UsageError(
            f"--rate '{text}' is not a rate", hint="for example 100, 100,200 or 100-500"
        )
    values = tuple(float(part) for part in parts)
    if not any(values) or (len(values) == 1 and not values[0]):
        raise UsageError(f"--rate '{text}': a rate is above 0")
    return OfferedRate(values, ramp=ramp is not None)


def parse_keepalive(text: str) -> Keepalive:
    """``on``, ``off``, a number of requests per connection, or ``1/100``, a chance to close."""
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
        f"--keepalive '{text}' is not valid", hint="on, off, 100 (requests), or 1/100 (by chance)"
    )


def parse_bytes(text: str, option: str) -> int:
    """Bytes from a size in nginx's units: ``65536``, ``64k``, ``1m``."""
    match = _BYTES.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(f"{option} '{text}' is not a number of bytes", hint="for example 64k")
    return int(match[1]) * _SCALE[match[2].lower()]


def parse_caps(texts: tuple[str, ...]) -> dict[str, float]:
    """Bounds of a run by name: ``connections=20000``, ``seconds=1h``, ``bytes=10g``."""
    caps: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in CAP_NAMES or not value:
            raise UsageError(
                f"--cap '{text}' is not a cap", hint=f"NAME=VALUE with {', '.join(CAP_NAMES)}"
            )
        if name == "seconds":
            caps[name] = parse_duration(value)
        elif name == "bytes":
            caps[name] = parse_bytes(value, "--cap bytes")
        elif re.fullmatch(r"[1-9][0-9]{0,14}", value):
            caps[name] = int(value)
        else:
            raise UsageError(f"--cap '{text}': not a whole number above 0")
    return caps


def parse_headers(texts: tuple[str, ...]) -> dict[str, str]:
    """Request headers, each ``Name: value``."""
    headers = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise UsageError(
                f"--header '{text}' is not valid", hint="for example 'Accept: text/html'"
            )
        headers[name.strip()] = value.strip()
    return headers


def parse_stripe(text: str) -> Stripe:
    """A load host's share of the load: ``0/3`` is the first of three."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(
            f"--stripe '{text}' is not valid", hint="0/3, 1/3 and 2/3 are all of three"
        )
    return Stripe(index=int(match[1]), count=int(match[2]))


def parse_statuses(text: str) -> list[int]:
    """HTTP statuses from ``200`` or ``200,304``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-5][0-9][0-9]", part) for part in parts):
        raise UsageError(f"--status '{text}' is not valid", hint="for example 200 or 200,304")
    return [int(part) for part in parts]


def parse_moment(text: str) -> float:
    """Seconds since 1970 UTC, from such a number or from ``2026-11-20T19:00:00Z``."""
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
            f"--start-at '{text}' is not a time", hint="for example 2026-11-20T19:00:00Z"
        )
    return moment.timestamp()
