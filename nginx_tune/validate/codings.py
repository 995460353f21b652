"""Compressed answers: where an arm compresses, the load accepts it as browsers do; pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.validate.stage_notes import listed

_CODINGS = {"gzip": "gzip", "brotli": "br", "zstd": "zstd"}
"""By the prefix of their directives; the names of RFC 9110 §8.4.1 and of the IANA registry."""
_SWITCHES = ("", "_static")
_SHAPING = ("", "_static", "_types", "_comp_level", "_min_length", "_proxied")
"""Of a directive's name: what decides how much is compressed, and at what cost."""
_HEADER = "Accept-Encoding"


def accepted_codings(trees: Sequence[ConfTree]) -> list[str]:
    """What either arm compresses with: both are asked alike."""
    return [
        token
        for coding, token in _CODINGS.items()
        if any(_is_on(scope.value(f"{coding}{switch}", "off"))
               for tree in trees for scope in scopes(tree) for switch in _SWITCHES)
    ]  # fmt: skip


def with_codings(plan: LoadPlan, accepted: Sequence[str]) -> LoadPlan:
    """The plan whose requests accept these, but where a class says itself what it accepts."""
    if not accepted:
        return plan
    classes = [
        item
        if any(name.lower() == _HEADER.lower() for name in item.headers)
        else msgspec.structs.replace(item, headers={**item.headers, _HEADER: ", ".join(accepted)})
        for item in plan.classes
    ]
    return msgspec.structs.replace(plan, classes=classes)


def compression_notes(trees: Sequence[ConfTree]) -> list[str]:
    """What the arms compress with, and where they differ in it."""
    accepted = accepted_codings(trees)
    if not accepted:
        return []
    said = [_lines(tree) for tree in trees]
    apart = "" if said[0] == said[1] else ", in which the arms differ"
    lines = dict.fromkeys(line for one in said for line in one)
    return [f"requests accept {', '.join(accepted)}: compression is on{apart}: {listed(lines)}"]


def _lines(tree: ConfTree) -> list[str]:
    """The lines that turn compression on, or shape it where it is on; each once."""
    found: dict[str, None] = {}
    for scope in scopes(tree):
        for coding in _CODINGS:
            if not any(_is_on(scope.value(f"{coding}{switch}", "off")) for switch in _SWITCHES):
                continue
            lines = (scope.effective(f"{coding}{what}") for what in _SHAPING)
            found |= dict.fromkeys(str(line) for line in lines if line is not None)
    return list(found)


def _is_on(value: str) -> bool:
    return value != "off"
