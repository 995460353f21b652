"""Descriptor limits that systemd would start nginx with, as its unit files say.

Source: systemd.unit(5) (search path, drop-ins, the last one wins), systemd.exec(5)
(``LimitNOFILE=``), systemd-system.conf(5) (``DefaultLimitNOFILE=``, 1024:524288 by default).
"""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_process import UNLIMITED, DescriptorLimit

BOOTED = "/run/systemd/system"
"""There when systemd is the init that runs: sd_booted(3)."""
UNIT = "nginx.service"
_ADMINISTRATOR = "/etc/systemd"
_PLACES = ("/usr/lib/systemd", "/lib/systemd", "/usr/local/lib/systemd", "/run/systemd")
"""From the least to the most important; ``_ADMINISTRATOR`` goes before all."""
_EVERY = (*_PLACES, _ADMINISTRATOR)
_DEFAULT = DescriptorLimit(1024, 524_288)


def read_unit_limits(host: Host) -> DescriptorLimit | Missing:
    """Soft and hard limit of the unit nginx.service on a host that systemd runs.

    Errors: missing without systemd or without the unit.
    """
    if isinstance(attempt(host.list_dir, BOOTED), Missing):
        return Missing("systemd is not the init that runs")
    texts = [text for place in _EVERY if (text := _text(host, f"{place}/system/{UNIT}"))]
    if not texts:
        return Missing(f"no {UNIT} can be read")
    limits = _DEFAULT
    main = [text for place in _EVERY if (text := _text(host, f"{place}/system.conf"))][-1:]
    for text in (*main, *_drop_ins(host, [f"{place}/system.conf.d" for place in _EVERY])):
        limits = limits_in(text, "Manager", "DefaultLimitNOFILE", limits, _DEFAULT)
    manager = limits
    names = [f"{place}/system/{unit}.d" for unit in ("service", UNIT) for place in _EVERY]
    for text in (texts[-1], *_drop_ins(host, names)):
        limits = limits_in(text, "Service", "LimitNOFILE", limits, manager)
    return limits


def limits_in(
    text: str, section: str, key: str, before: DescriptorLimit, otherwise: DescriptorLimit
) -> DescriptorLimit:
    """The limits after a unit file: what its last assignment says.

    ``before`` holds where it has none that can be read, ``otherwise`` where it is emptied.
    """
    found, current = before, ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            current = line.strip("[]")
        name, separator, value = line.partition("=")
        if not separator or current != section or name.strip() != key:
            continue
        soft, colon, hard = value.strip().partition(":")
        ends = [_count(soft), _count(hard if colon else soft)]
        if not value.strip():
            found = otherwise
        elif ends[0] is not None and ends[1] is not None:
            found = DescriptorLimit(ends[0], ends[1])
    return found


def _count(text: str) -> int | None:
    if text.strip() == "infinity":
        return UNLIMITED
    return int(text) if text.strip().isascii() and text.strip().isdigit() else None


def _drop_ins(host: Host, directories: list[str]) -> Iterator[str]:
    """Texts in the order of their names; one in a later directory hides its namesakes."""
    by_name: dict[str, str] = {}
    for directory in directories:
        names = attempt(host.list_dir, directory)
        for name in [] if isinstance(names, Missing) else names:
            if name.endswith(".conf"):
                by_name[name] = f"{directory}/{name}"
    for name in sorted(by_name):
        yield _text(host, by_name[name])


def _text(host: Host, path: str) -> str:
    text = attempt(host.read_text, path)
    return "" if isinstance(text, Missing) else text
