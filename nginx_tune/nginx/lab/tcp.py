"""TCP of the lab's namespaces: the target's settings, else a stock kernel's, never this machine's.

A new network namespace takes the congestion control of the host it is made on. Under BBR, which
paces, a limited link and many connections give other answers than under CUBIC or Reno.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from nginx_tune.documents.lab import TCP_SETTINGS

_CONTROL, _RECEIVE, _SEND = TCP_SETTINGS
_STOCK = {
    _CONTROL: "cubic",
    _RECEIVE: "4096 131072 6291456",
    _SEND: "4096 16384 4194304",
}
"""The kernel's defaults with 4 GiB of memory or more.

Source: Documentation/networking/ip-sysctl.rst; net/ipv4/tcp.c, tcp_init().
"""
_ALWAYS_ALLOWED = "reno"
"""The one control that every namespace may choose (net/ipv4/tcp_cong.c, tcp_reno)."""
_KNOWN = "net.ipv4.tcp_available_congestion_control"


def set_tcp(wanted: Mapping[str, str]) -> dict[str, str]:
    """Set TCP of this thread's network namespace; the settings that hold then, by sysctl.

    A control that is not loaded, or that the kernel keeps from namespaces
    (``tcp_allowed_congestion_control``), gives way to CUBIC, and that to Reno.
    """
    values = {**_STOCK, **wanted}
    controls = (values.pop(_CONTROL), _STOCK[_CONTROL], _ALWAYS_ALLOWED)
    for name, value in values.items():
        with contextlib.suppress(OSError):
            _file(name).write_text(value)
    # To write the name of one that is not there would have the kernel load a module.
    loaded = _read(_KNOWN).split()
    for control in controls:
        if control in loaded:
            with contextlib.suppress(OSError):
                _file(_CONTROL).write_text(control)
                break
    return read_tcp()


def read_tcp() -> dict[str, str]:
    """The settings of this thread's network namespace.

    Before Linux 4.15 they are the whole host's, and a namespace has no files for them: none then.
    """
    return {name: value for name in TCP_SETTINGS if (value := " ".join(_read(name).split()))}


def differing(held: Mapping[str, str], target: Mapping[str, str], where: str) -> list[str]:
    """A note for each setting that differs from the target's; ``where`` names the target."""
    return [
        f"{name} is {held[name]} in the lab and {value} on {where}"
        for name, value in target.items()
        if name in held and held[name].split() != value.split()
    ]


def _read(name: str) -> str:
    try:
        return _file(name).read_text()
    except OSError:
        return ""


def _file(name: str) -> Path:
    return Path("/proc/sys", *name.split("."))
