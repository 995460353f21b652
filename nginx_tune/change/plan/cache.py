"""A decided ``proxy_cache_path`` in the words of the line that stands in a configuration.

The name of the zone, its levels and how long an entry may lie unasked are the operator's, written
or by default: another name or other levels lose every file, and a longer age is a matter of what
is asked for. Of keys there may be more than are needed, never fewer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.conf.caches import KEYS_PER_MEBIBYTE
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.quantities import is_alike, parse_bytes
from nginx_tune.decide.cache_growth import (
    BY_KEYS,
    FILE_BYTES,
    MAY_HOLD_MORE,
    NOT_SCANNED,
    UNKNOWN_DISK,
)
from nginx_tune.documents.decisions import Decision, Evidence, Setting
from nginx_tune.documents.units import bytes_text

_OWN = ("levels", "inactive")
_BY_HAND = ("loader_files", "manager_files")
"""What nginx's processes may do in a turn: who wrote it has seen them."""
_MEBIBYTE = 1 << 20


def file_bytes(decision: Decision) -> Evidence | None:
    """The mean size of files that the decision reckoned with; null when it did not."""
    return next((one for one in decision.evidence if one.fact == FILE_BYTES), None)


_OF_SIZE = (UNKNOWN_DISK, NOT_SCANNED, MAY_HOLD_MORE, BY_KEYS, "the disk has room")
_BOUNDS = frozenset({"max_size", "min_free", "inactive"})
"""What has entries leave."""


class Own(NamedTuple):
    """A setting as a change of the line that stands."""

    setting: Setting
    enlarged: str = ""
    """What its zone of keys is too small for, and what it is to be."""
    beyond: str = ""
    """What no zone that memory allows has keys for."""


def with_own_words(s: Setting, line: Directive, mean: Evidence | None) -> Own:
    """The setting as a change of ``line``.

    An assumed size of objects enlarges no zone: it could be the other way round. Nor does one make
    a bound, or one that fewer keys make than the line has: there may be more in the cache.
    """
    own = {arg.partition("=")[0]: arg.partition("=")[2] for arg in line.args[1:]}
    decided = {arg.partition("=")[0]: arg.partition("=")[2] for arg in s.args[1:]}
    kept = {key: value for key, value in decided.items() if key not in _OWN or key in own}
    kept |= {
        key: value for key, value in own.items() if key in (*_OWN, *_BY_HAND) or key not in decided
    }
    is_assumed = mean is None or mean.provenance == "assumed"
    by_keys = is_assumed or _zone_bytes(own) > _zone_bytes(decided)
    guesses = (UNKNOWN_DISK, NOT_SCANNED, MAY_HOLD_MORE, *([BY_KEYS] if by_keys else []))
    if any(map(s.reason.startswith, guesses)):
        # A cache that stands may be larger: the rest of it would be deleted on an assumption.
        kept = {k: v for k, v in kept.items() if k not in _BOUNDS}
        kept |= {k: v for k, v in own.items() if k in _BOUNDS}
        s = replace(s, reason=_without_size(s.reason))
    enlarged = beyond = ""
    if "keys_zone" in own:
        name, _, standing = own["keys_zone"].partition(":")
        wanted = decided["keys_zone"].partition(":")[2]
        have, need = parse_bytes(standing), parse_bytes(wanted)
        each = None if is_assumed or mean is None else mean.value
        kept["keys_zone"] = own["keys_zone"]
        most = parse_bytes(decided.get("max_size", "")) or 0
        if have and need and isinstance(each, int | float) and each > 0:
            zone = f"{line.file}:{line.line} keys_zone={own['keys_zone']}"
            held = f"{zone} holds {_keys(have)} keys, max_size has room for "
            held += f"{math.ceil(most / each)} files of {bytes_text(each)}"
            if have < need and _keys(have) * each < most:
                kept["keys_zone"] = f"{name}:{wanted}"
                enlarged = f"{held}: enlarge it to {wanted}"
            reached = _keys(max(have, need)) * each
            if reached < most:
                beyond = (
                    f"{held}; {need // _MEBIBYTE}m is the most of memory for keys: lower max_size "
                    f"to the {bytes_text(reached)} that there are keys for"
                )
    kept |= {
        key: own[key]
        for key, value in kept.items()
        if key in own and key != "keys_zone" and is_alike(own[key], value)
    }
    words = [f"{key}={value}" if value else key for key, value in kept.items()]
    return Own(replace(s, args=[s.args[0], *words]), enlarged, beyond)


def _without_size(reason: str) -> str:
    """What a reason says beside the size: of ``SIZE; the disk has room…; written in place…``."""
    return "; ".join(part for part in reason.split("; ") if not part.startswith(_OF_SIZE))


def _zone_bytes(words: dict[str, str]) -> int:
    return parse_bytes(words.get("keys_zone", "").partition(":")[2]) or 0


def _keys(zone_bytes: int) -> int:
    return zone_bytes * KEYS_PER_MEBIBYTE // _MEBIBYTE
