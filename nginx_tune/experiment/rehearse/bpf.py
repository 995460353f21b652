"""``quic_bpf on`` where the sandbox allows no bpf(2): taken for off, and said; pure.

Else nginx does not start with it, and logs an emergency at a reload that takes all the rest, both
of them the sandbox's doing. Source: ngx_quic_bpf_module_init() in ngx_event_quic_bpf.c.
"""

from __future__ import annotations

from collections.abc import Mapping

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import apply_edits, set_arguments
from nginx_tune.conf.tree import ConfTree

BPF_NOTE = (
    "quic_bpf on is off here, in both configurations: the sandbox allows no bpf; what a reload "
    "does to it is among the predictions"
)


def wants_bpf(tree: ConfTree) -> list[Directive]:
    """The lines that ask for it."""
    return [line for line in tree.main.all("quic_bpf") if line.value == "on"]


def without_bpf(
    old: ConfTree, new: ConfTree, change: Mapping[str, bytes]
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What is laid over the old files before the change, and by it.

    ``change``: the files in which the new configuration differs, at the places of the old one's.
    """
    laid = _off(old)
    own = {one.source.file: one.source.data for one in new.parsed}
    instead = {own[path]: data for path, data in _off(new).items()}
    changed = {path: instead.get(data, data) for path, data in change.items()}
    return laid, {**laid, **changed}


def _off(tree: ConfTree) -> dict[str, bytes]:
    """The bytes of the files that ask for it, with ``off``."""
    found: dict[str, bytes] = {}
    for one in tree.parsed:
        edits = [
            set_arguments(line, "off") for line in wants_bpf(tree) if line.file == one.source.file
        ]
        if edits:
            found[one.source.file] = apply_edits(one.source, edits)
    return found
