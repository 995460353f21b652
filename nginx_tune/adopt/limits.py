"""The limit of descriptors for the connections and open files that a configuration has already."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from nginx_tune.conf.quantities import parameter, parse_count
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.decisions import Decision, Decisions, Setting

_CEILINGS = ("limits.nofile_hard", "limits.nr_open")


def descriptors_for(decisions: Decisions, tree: ConfTree) -> Callable[[Decision], Decision]:
    """Gives ``file-limits`` the room that more ``worker_connections`` than were decided need.

    They stay, as an ``open_file_cache`` does of which nothing was decided, so a limit for the fewer
    ones could take descriptors away that workers have now: ``worker_rlimit_nofile`` sets the limit,
    whatever it was. Source: ngx_worker_process_init().
    """
    every = [one for decision in decisions.decisions for one in decision.settings]
    decided = [int(one.args[0]) for one in every if one.directive == "worker_connections"]
    blocks = [line.block for line in tree.main.all("events") if line.block is not None]
    lines = [line for block in blocks for line in block.all("worker_connections")]
    own = int(lines[-1].value) if lines and lines[-1].value.isdigit() else 0
    more = max(0, own - decided[0]) if decided else 0
    held = 0 if any(map(_decides_open_files, decisions.decisions)) else _open_files(tree)

    def enlarged(decision: Decision) -> Decision:
        if decision.id != "file-limits" or not decided or not more + held:
            return decision
        values = [one.value for one in decision.evidence if one.fact in _CEILINGS]
        ceiling = min((one for one in values if isinstance(one, int | float)), default=None)
        settings, risks = [], list(decision.risks)
        for one in decision.settings:
            wanted = _enlarged(one, decided[0], more, held)
            if wanted is not one and ceiling is not None and int(wanted.args[0]) > ceiling:
                what = _what(decided[0] + more, held)
                risks.append(
                    f"worker_rlimit_nofile is left out: {what} could need {wanted.args[0]} "
                    f"descriptors, and there can be {ceiling:.0f}"
                )
            else:
                settings.append(wanted)
        return replace(decision, settings=settings, risks=risks)

    return enlarged


def _enlarged(one: Setting, decided: int, more: int, held: int) -> Setting:
    if one.directive != "worker_rlimit_nofile":
        return one
    each = max(1, int(one.args[0]) // decided)
    reason = f"{_what(decided + more, held)} stand, with {each} descriptors each connection"
    return replace(one, args=[str(int(one.args[0]) + more * each + held)], reason=reason)


def _what(connections: int, held: int) -> str:
    files = f" and {held} open files" if held else ""
    return f"{connections} connections{files}"


def _decides_open_files(decision: Decision) -> bool:
    return decision.id == "open-file-cache" and (
        decision.verdict == "disable" or bool(decision.settings)
    )


def _open_files(tree: ConfTree) -> int:
    """The entries of all caches of open files of a worker: each holds a descriptor."""
    lines = dict.fromkeys(scope.effective("open_file_cache") for scope in scopes(tree))
    return sum(parse_count(parameter(line.args, "max") or "") or 0 for line in lines if line)
