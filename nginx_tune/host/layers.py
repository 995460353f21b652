"""Block devices that stand on others: what each one does, and the state of arrays."""

from __future__ import annotations

import re

from nginx_tune.documents.facts import Array, Layer
from nginx_tune.host.door import Gaps, Host, Missing, attempt, known
from nginx_tune.host.parse_layers import (
    parse_dm_kind,
    parse_dm_table,
    parse_sync_completed,
)
from nginx_tune.host.parse_values import parse_choice, parse_integer


def read_layer(host: Host, directory: str, lower: list[str]) -> Layer:
    """A device that is no leaf, by its directory in sysfs (links resolved)."""
    name = directory.rpartition("/")[2]
    if not isinstance(attempt(host.read_text, f"{directory}/partition"), Missing):
        return Layer(name=name, kind="partition", lower=lower)
    if not isinstance(level := _read_word(host, f"{directory}/md/level"), Missing):
        return Layer(name=name, kind="md", lower=lower, detail=level)
    if not isinstance(uuid := attempt(host.read_text, f"{directory}/dm/uuid"), Missing):
        return _read_dm(host, directory, uuid, lower)
    if re.fullmatch(r"bcache\d+", name):
        return Layer(name=name, kind="bcache", lower=lower, detail=_read_bcache(host, directory))
    if re.fullmatch(r"loop\d+", name):
        return Layer(name=name, kind="loop", lower=lower)
    if re.fullmatch(r"md(\d+|_.+)", name):
        return Layer(name=name, kind="md", lower=lower, detail=level.reason)
    return Layer(name=name, kind="stacked", lower=lower)


WITHOUT_REDUNDANCY = frozenset({"raid0", "linear"})


def read_array(host: Host, directory: str) -> tuple[Array, Gaps]:
    """The state of an md array.

    Source: Documentation/admin-guide/md.rst; arrays without redundancy (linear, raid0) have no
            ``degraded`` and no ``sync_action``.
    """
    gaps: Gaps = {}
    level = _read_word(host, f"{directory}/md/level")
    members = _read_integer(host, f"{directory}/md/raid_disks")
    degraded = _read_integer(host, f"{directory}/md/degraded")
    action = _read_word(host, f"{directory}/md/sync_action")
    done = attempt(host.read_text, f"{directory}/md/sync_completed")
    if isinstance(level, str) and level in WITHOUT_REDUNDANCY:
        degraded = action = done = Missing(f"{level} has no redundancy: it is whole or lost")
    ratio = done if isinstance(done, Missing) else parse_sync_completed(done)
    array = Array(
        name=directory.rpartition("/")[2],
        level=known(level, gaps, "/level"),
        members=known(members, gaps, "/members"),
        degraded=known(degraded, gaps, "/degraded"),
        sync_action=known(action, gaps, "/sync_action"),
        sync_done_ratio=known(ratio, gaps, "/sync_done_ratio"),
    )
    return array, gaps


def _read_dm(host: Host, directory: str, uuid: str, lower: list[str]) -> Layer:
    name = directory.rpartition("/")[2]
    volume = _read_word(host, f"{directory}/dm/name")
    label = "" if isinstance(volume, Missing) else volume
    kind = parse_dm_kind(uuid)
    if kind not in {"crypt", "multipath"} and label:
        said = attempt(host.run, ["dmsetup", "table"])
        if not isinstance(said, Missing) and said.status == 0:
            kind = parse_dm_table(said.stdout).get(label, kind)
    return Layer(name=name, kind=kind, lower=lower, detail=label)


def _read_bcache(host: Host, directory: str) -> str:
    mode = attempt(host.read_text, f"{directory}/bcache/cache_mode")
    state = _read_word(host, f"{directory}/bcache/state")
    words = [
        mode if isinstance(mode, Missing) else parse_choice(mode),
        state,
    ]
    return ", ".join(word for word in words if isinstance(word, str))


def _read_word(host: Host, path: str) -> str | Missing:
    text = attempt(host.read_text, path)
    if isinstance(text, Missing):
        return text
    return " ".join(text.split()) or Missing(f"{path} is empty")


def _read_integer(host: Host, path: str) -> int | Missing:
    text = attempt(host.read_text, path)
    return text if isinstance(text, Missing) else parse_integer(text)
