"""The limit of descriptors for the connections that a configuration has already."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Decision, Decisions, Setting

_CEILINGS = ("limits.nofile_hard", "limits.nr_open")


def descriptors_for(decisions: Decisions, tree: ConfTree) -> Callable[[Decision], Decision]:
    """Gives ``file-limits`` the room that more ``worker_connections`` than were decided need.

    They stay, so a limit for the fewer ones could take descriptors away that workers have now:
    ``worker_rlimit_nofile`` sets the limit, whatever it was. Source: ngx_worker_process_init().
    """
    every = [one for decision in decisions.decisions for one in decision.settings]
    decided = [int(one.args[0]) for one in every if one.directive == "worker_connections"]
    blocks = [line.block for line in tree.main.all("events") if line.block is not None]
    lines = [line for block in blocks for line in block.all("worker_connections")]
    own = int(lines[-1].value) if lines and lines[-1].value.isdigit() else 0

    def enlarged(decision: Decision) -> Decision:
        if decision.id != "file-limits" or not decided or own <= decided[0]:
            return decision
        values = [one.value for one in decision.evidence if one.fact in _CEILINGS]
        ceiling = min((one for one in values if isinstance(one, int | float)), default=None)
        settings, risks = [], list(decision.risks)
        for one in decision.settings:
            wanted = _enlarged(one, own, decided[0])
            if wanted is not one and ceiling is not None and int(wanted.args[0]) > ceiling:
                risks.append(
                    f"worker_rlimit_nofile is left out: {own} connections could need "
                    f"{wanted.args[0]} descriptors, and there can be {ceiling:.0f}"
                )
            else:
                settings.append(wanted)
        return replace(decision, settings=settings, risks=risks)

    return enlarged


def _enlarged(one: Setting, own: int, decided: int) -> Setting:
    if one.directive != "worker_rlimit_nofile":
        return one
    each = max(1, int(one.args[0]) // decided)
    reason = f"{own} connections stand, with {each} descriptors each"
    return replace(one, args=[str(int(one.args[0]) + (own - decided) * each)], reason=reason)
