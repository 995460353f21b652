"""The limit of descriptors for the connections and open files that a configuration has already."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.running import open_file_caches
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.answer import setting
from nginx_tune.decide.descriptors import PER_CONNECTION, limit_for, suffices
from nginx_tune.decide.file_limits import NEEDED
from nginx_tune.documents.decisions import Decision, Decisions, Setting

_DIRECTIVE = "worker_rlimit_nofile"
_CEILINGS = ("limits.nofile_hard", "limits.nr_open")
_OF_NGINX = ("limits.nofile_hard", "limits.nofile_soft")


def descriptors_for(decisions: Decisions, tree: ConfTree) -> Callable[[Decision], Decision]:
    """Holds ``file-limits`` against what stands, so that no worker gets fewer than it has.

    More ``worker_connections`` than were decided stay, as an ``open_file_cache`` does of which
    nothing was decided, and need room: ``worker_rlimit_nofile`` sets the limit, whatever it was. A
    line that stands says what workers have, and stays where that is enough; without one nothing is
    written where nobody knows what nginx is started with. Source: ngx_worker_process_init().
    """
    every = [one for decision in decisions.decisions for one in decision.settings]
    decided = [int(one.args[0]) for one in every if one.directive == "worker_connections"]
    blocks = [line.block for line in tree.main.all("events") if line.block is not None]
    lines = [line for block in blocks for line in block.all("worker_connections")]
    own = int(lines[-1].value) if lines and lines[-1].value.isdigit() else 0
    more = max(0, own - decided[0]) if decided else 0
    held = 0 if any(map(_decides_open_files, decisions.decisions)) else open_files_in(tree)
    limit = tree.main.first(_DIRECTIVE)

    def fitted(decision: Decision) -> Decision:
        if decision.id != "file-limits" or not decided:
            return decision
        if not decision.settings and limit is not None:
            decision = _for_a_low_line(decision, limit, int(more * PER_CONNECTION) + held)
        settings, risks = [], list(decision.risks)
        for one in decision.settings:
            if one.directive != _DIRECTIVE:
                settings.append(one)
                continue
            if limit is None and not any(map(_known(decision).get, _OF_NGINX)):
                risks.append(f"{_DIRECTIVE} is left out: what nginx is started with is not known")
                continue
            what = _what(decided[0] + more, held)
            needed = _needed(one, decision) + int(more * PER_CONNECTION) + held
            if limit is not None and limit.value.isdigit() and suffices(int(limit.value), needed):
                settings.append(replace(one, same=[*one.same, limit.value]))
                continue
            wanted = _fitted(one, needed, what) if more or held else one
            ceiling = min(filter(None, map(_known(decision).get, _CEILINGS)), default=None)
            is_over = ceiling is not None and int(wanted.args[0]) > ceiling
            if is_over and limit is not None and _is_below(limit, ceiling):
                settings.append(replace(wanted, args=[f"{ceiling:.0f}"]))
            elif wanted is not one and is_over:
                risks.append(
                    f"{_DIRECTIVE} is left out: {what} could need {wanted.args[0]} "
                    f"descriptors, and there can be {ceiling:.0f}"
                )
            else:
                settings.append(wanted)
        return replace(decision, settings=settings, risks=risks)

    return fitted


def _known(decision: Decision) -> dict[str, float]:
    """The numbers that a decision was made of."""
    return {one.fact: one.value for one in decision.evidence if isinstance(one.value, int | float)}


def _is_below(limit: Directive, ceiling: float | None) -> bool:
    """Tell whether a line gives workers fewer descriptors than the limit allows."""
    return ceiling is not None and limit.value.isdigit() and int(limit.value) < ceiling


def _for_a_low_line(decision: Decision, limit: Directive, extra: int) -> Decision:
    """The decision where a line takes descriptors away that nginx is started with."""
    needed = int(_known(decision).get(NEEDED, 0)) + extra
    if not limit.value.isdigit() or suffices(int(limit.value), needed):
        return decision
    reason = f"{needed} descriptors are needed, and the line allows fewer than nginx starts with"
    wanted = setting("file-limits", "main", _DIRECTIVE, str(limit_for(needed)), reason=reason)
    return replace(decision, verdict="raise", settings=[wanted])


def _needed(one: Setting, decision: Decision) -> int:
    """The descriptors that a worker needs for the decided connections."""
    return int(_known(decision).get(NEEDED, int(one.args[0])))


def _fitted(one: Setting, needed: int, what: str) -> Setting:
    """The limit with room for what stands."""
    value = max(int(one.args[0]), limit_for(needed))
    reason = f"{what} stand, with {PER_CONNECTION:.0f} descriptors each connection"
    return replace(one, args=[str(value)], reason=reason)


def _what(connections: int, held: int) -> str:
    files = f" and {held} open files" if held else ""
    return f"{connections} connections{files}"


def _decides_open_files(decision: Decision) -> bool:
    return decision.id == "open-file-cache" and (
        decision.verdict == "disable" or bool(decision.settings)
    )


def open_files_in(tree: ConfTree) -> int:
    """The entries of all caches of open files of a worker: each holds a descriptor."""
    return sum(open_file_caches(tree).values())
