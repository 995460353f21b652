"""The load that the options of ``probe`` make, and how people write its parts."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from nginx_tune.cli.options import parse_duration
from nginx_tune.documents.loadplan import (
    ByteRanges,
    LoadPlan,
    Paths,
    Priority,
    ProxyProtocol,
    Stripe,
    Tls,
)
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
from nginx_tune.measure.load.target import (
    ResolvedUrl,
    find_files,
    read_manifest_head,
    read_paths,
    resolve_url,
)


def plan_of(
    url: str, options: Mapping[str, Any], *, stripe: str | None, start_at: str | None
) -> LoadPlan:
    """The load plan of a URL and these options.

    Errors: UsageError that names the option.
    """
    if options["think"] is not None and (options["rate"] is not None or options["replay"]):
        raise UsageError("--think is for a closed loop")
    place = resolve_place(url, options)
    asked, recorded_seconds = _asked(place.path, options)
    slow = options["slow_read"]
    speed = (options["speed"] or 1.0) if options["replay"] else None
    duration = parse_duration(options["duration"])
    if recorded_seconds is not None and speed is not None and not options["duration_given"]:
        duration = recorded_seconds / speed
    rate = None if options["rate"] is None else parse_rate(options["rate"])
    most = options["connections"] or options["max_connections"] or OPEN_LOOP_CONNECTIONS
    cpus = len(os.sched_getaffinity(0))
    threads = options["threads"] or default_threads(rate, most, cpus)
    load = Load(
        http2=options["http2"],
        http3=options["http3"],
        streams=options["streams"],
        connections=options["connections"],
        think_seconds=None if options["think"] is None else parse_duration(options["think"]),
        rate=rate,
        gaps=options["arrivals"],
        replay_speed=speed,
        most_connections=options["max_connections"],
        asked=asked,
        method="HEAD" if options["head"] else "GET",
        headers=parse_headers(options["headers"]),
        status=parse_statuses(options["status"]),
        timeout_seconds=parse_duration(options["timeout"]),
        keepalive=parse_keepalive(options["keepalive"]),
        range=None if options["byte_range"] is None else parse_range(options["byte_range"]),
        read_bytes_per_second=None if slow is None else parse_bytes(slow, "--slow-read"),
        read_pace_of=options["slow_read_of"],
        priority=None if options["priority"] is None else parse_priority(options["priority"]),
        idle_connections=options["idle_connections"],
        new_connections_per_second=options["new_connections"],
        duration_seconds=duration,
        warmup_seconds=_warmup(options, replays=speed is not None),
        threads=threads,
        precise=options["precise"],
        seed=options["seed"],
        stripe=Stripe() if stripe is None else parse_stripe(stripe),
        start_at_unix_seconds=None if start_at is None else parse_moment(start_at),
    )
    return plan_load(place.target, place.path, load)


def _warmup(options: Mapping[str, Any], *, replays: bool) -> float:
    """A recording is measured from its first request on, unless told otherwise."""
    if options["warmup"] in ("0", "0s") or (replays and not options["warmup_given"]):
        return 0.0
    return parse_duration(options["warmup"])


def _asked(path: str, options: Mapping[str, Any]) -> tuple[Paths, float | None]:
    """The paths that are asked for, and the length of a manifest's recording."""
    source, root = options["paths_from"], options["document_root"]
    head = None if source is None else read_manifest_head(source)
    if head is not None:
        if options["pick"] or options["zipf"] is not None or root is not None:
            raise UsageError("--pick, --zipf and --document-root go with a list, not a manifest")
        seconds = head.get("duration_seconds")
        recorded = Paths(kind="manifest", manifest=str(source))
        return recorded, seconds if isinstance(seconds, (int, float)) else None
    if options["replay"] or options["speed"] is not None:
        raise UsageError("--replay and --speed go with a manifest", hint="--paths-from MANIFEST")
    if source is None and (options["pick"] or options["zipf"] is not None):
        raise UsageError("--pick and --zipf go with --paths-from")
    if options["zipf"] is not None and options["pick"] not in (None, "zipf"):
        raise UsageError("--zipf goes with --pick zipf")
    paths = [path] if source is None else read_paths(source)
    sizes, files = (None, None) if root is None else find_files(root, paths)
    kind: Literal["fixed", "uniform", "zipf", "once"] = "fixed"
    if source is not None:
        kind = options["pick"] or ("uniform" if options["zipf"] is None else "zipf")
    exponent = (options["zipf"] or 1.0) if kind == "zipf" else None
    return Paths(kind=kind, paths=paths, exponent=exponent, bytes=sizes, files=files), None


TlsVersion = Literal["1.2", "1.3"]

_VERSIONS: dict[str, TlsVersion] = {"1.2": "1.2", "1.3": "1.3"}


def resolve_place(url: str, options: Mapping[str, Any]) -> ResolvedUrl:
    """The server that a URL and these options name, and the path that is asked.

    Errors: UsageError that names the option.
    """
    tls = _tls(options)
    if not url.startswith("https://"):
        for name, option in _TLS_OPTIONS.items():
            if options[name]:
                raise UsageError(f"{option} is for a URL that begins with https://")
    said_first = _proxy_protocol(options)
    place = resolve_url(url, tls, unix=options["unix_path"])
    target = msgspec.structs.replace(place.target, proxy_protocol=said_first)
    return place._replace(target=target)


_TLS_OPTIONS = {
    "server_name": "--server-name",
    "tls_min": "--tls-min",
    "tls_max": "--tls-max",
    "ciphers": "--ciphers",
    "certificate_file": "--cert",
    "key_file": "--key",
}
"""They would have no effect without TLS; ``-k`` and its like may stand in a habit."""


def _tls(options: Mapping[str, Any]) -> Tls:
    oldest = _version(options["tls_min"], "--tls-min") or "1.2"
    newest = _version(options["tls_max"], "--tls-max") or "1.3"
    if oldest > newest:
        raise UsageError(f"--tls-min {oldest} is above --tls-max {newest}")
    certificate, key = options["certificate_file"], options["key_file"]
    if key is not None and certificate is None:
        raise UsageError("--key goes with --cert")
    listed = (options["ciphers"] or "").replace(",", ":").split(":")
    return Tls(
        verify=not options["insecure"],
        ca_file=options["ca_file"],
        server_name=options["server_name"],
        resumption=not options["no_resumption"],
        min_version=oldest,
        max_version=newest,
        ciphers=[name.strip() for name in listed if name.strip()],
        certificate_file=certificate,
        key_file=key or certificate,
    )


def _version(text: str | None, option: str) -> TlsVersion | None:
    if text is None:
        return None
    version = _VERSIONS.get(text.lower().removeprefix("tls").removeprefix("v"))
    if version is None:
        raise UsageError(
            f"{option} '{text}': the probe speaks TLS 1.2 and 1.3",
            hint="its library, rustls, has no older ones; openssl s_client has",
        )
    return version


def _proxy_protocol(options: Mapping[str, Any]) -> ProxyProtocol | None:
    source = options["proxy_source"]
    if options["proxy_protocol"] is None:
        if source is not None:
            raise UsageError("--proxy-source goes with --proxy-protocol")
        return None
    if source is not None:
        try:
            source = str(ipaddress.ip_address(source))
        except ValueError:
            raise UsageError(f"--proxy-source '{source}' is no IP address") from None
    return ProxyProtocol(version=1 if options["proxy_protocol"] == "v1" else 2, source=source)


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
