"""Rehearses a change: what it is tried with, in each manner, and what comes of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune.change.generate.reload_warnings import reload_warnings
from nginx_tune.conf.error_log import error_logs
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.progress import part_of
from nginx_tune.documents.rehearsal import Manner, Rehearsal, Turnover
from nginx_tune.errors import ConfigurationError
from nginx_tune.experiment.modules import MODULE_INSIDE
from nginx_tune.experiment.operations import RehearseRequest, Side
from nginx_tune.experiment.rehearse.answers import compare_answers
from nginx_tune.experiment.rehearse.bpf import BPF_NOTE, wants_bpf, without_bpf
from nginx_tune.experiment.rehearse.change import as_read
from nginx_tune.experiment.rehearse.clients import (
    ClientsToHold,
    answered_by_either,
    at_rate,
    held_clients,
)
from nginx_tune.experiment.rehearse.dropped import dropped_places
from nginx_tune.experiment.site_files import has_files
from nginx_tune.experiment.target import written_files
from nginx_tune.experiment.validate.client_limits import ClientLimits
from nginx_tune.experiment.validate.entries import SiteFiles
from nginx_tune.experiment.validate.site import SitePair, read_site
from nginx_tune.experiment.validate.site_load import default_load
from nginx_tune.experiment.validate.stage import Stage, open_stage
from nginx_tune.measure.proof.rehearsal import judge_rehearsal
from nginx_tune.nginx.binary import build_title
from nginx_tune.nginx.choice import runnable_program
from nginx_tune.nginx.lab.refused import refuse_foreign_code
from nginx_tune.nginx.lab.spec import LabPlan
from nginx_tune.nginx.lab.walls import Walls
from nginx_tune.nginx.reload.address import Address, addresses_of

_OLD, _NEW = "baseline", "candidate"
_NAMES = {_OLD: "OLD", _NEW: "NEW"}
_LONGEST_WARMUP_SECONDS = 1.0
_SAID = re.compile(r"^.*?\[emerg\] (?:[0-9]+#[0-9]+: )?")
"""What stands before nginx's own words."""


class OldAndNew(NamedTuple):
    """The configuration as it is and as it will be, in the same place."""

    old: ConfTree
    new: ConfTree
    change: Mapping[str, bytes]
    """The files in which the new one differs, by their paths."""
    prefix: str | None
    """The ``-p`` that nginx gets; None for the build's own."""
    nginx: Nginx
    new_nginx: Nginx | None
    """Another program; None for the same one."""
    new_path: str = ""
    refused_here: Sequence[str] = ()
    """What this host would refuse of the new one, whatever the sandbox takes."""
    unseen: Sequence[str] = ()
    """What of the host could not be looked at."""


class RehearseOptions(NamedTuple):
    """How it is rehearsed."""

    manners: Sequence[Manner]
    goes_back: bool
    rate_per_second: float
    idle: int
    active: int
    before_seconds: float
    after_seconds: float
    drain_seconds: float
    sysctls: Mapping[str, str]
    """Of the network namespace of the sandbox."""
    requires: Sequence[str]
    lab: LabPlan | None = None
    """Host to emulate; None runs on this machine as it is."""
    scale: float | None = None
    """Share of data and memory that a lab made from facts keeps."""


def run_rehearsal(
    sides: OldAndNew, wish: RehearseOptions, *, progress: Callable[[str], None]
) -> Rehearsal:
    """Rehearse the change.

    Interrupted (KeyboardInterrupt) after one manner is whole, it tells of those that are.
    Errors: ConfigurationError for a tree that could not be parsed or that ``nginx -t`` rejects,
            UndecidedError when there is nothing to load or a tool is missing.
    """
    binary = runnable_program(sides.nginx)
    new_binary = binary if sides.new_nginx is None else runnable_program(sides.new_nginx)
    refuse_foreign_code(new_binary, [])
    site = _site(sides, makes_files=wish.lab is not None)
    bpf = [BPF_NOTE] if wants_bpf(sides.old) or wants_bpf(sides.new) else []
    laid, changed = without_bpf(sides.old, sides.new, sides.change)
    turnovers: list[Turnover] = []
    interrupted = False
    before = whole = 0.0

    def tell(text: str) -> None:
        part_of(progress, before, whole)(text)

    with Walls(MODULE_INSIDE, progress=tell) as walls:
        try:
            stage = open_stage(
                walls,
                site,
                lab=wish.lab,
                prefixes=(sides.prefix, sides.prefix),
                scale=wish.scale,
                changing={_OLD: laid, _NEW: changed},
            )
        except ConfigurationError as error:  # the old one alone is asked before both are tried
            raise ConfigurationError(f"{_side(sides, _OLD)}: {error.message}") from None
        _check(stage, sides)
        plan = at_rate(stage.experiment.plans["baseline"], wish.rate_per_second)
        warmup = min(_LONGEST_WARMUP_SECONDS, wish.before_seconds)
        plan = msgspec.structs.replace(plan, warmup_seconds=warmup)
        asks = [pair[0] for pair in site.asks]
        limits = ClientLimits((sides.old, sides.new))
        limited = limits.statuses_of(plan)
        answers = compare_answers(stage, limits)
        held = held_clients(sides.old, plan, asks, idle=wish.idle, active=wish.active)
        first = stage.experiment.arms[0]
        arm = msgspec.structs.replace(
            first,
            prime=[],
            limited=limited,
            conduct=msgspec.structs.replace(first.conduct, sysctls=dict(wish.sysctls)),
        )
        old = Side(arm=_OLD, binary=binary, addresses=_addresses(sides.old))
        new = Side(arm=_NEW, binary=new_binary, addresses=_addresses(sides.new))
        try:
            for manner in wish.manners:
                # A reload stays with the program that runs.
                to = new if manner != "reload" else msgspec.structs.replace(new, binary=binary)
                request = RehearseRequest(
                    manner=manner,
                    arm=arm,
                    old=old,
                    new=to,
                    goes_back=wish.goes_back,
                    plan=answered_by_either(plan, limited),
                    held=held.clients,
                    error_logs=_logs(sides),
                    before_seconds=wish.before_seconds,
                    after_seconds=wish.after_seconds,
                    drain_seconds=wish.drain_seconds,
                )
                whole = whole or request.seconds * len(wish.manners)
                turnovers += stage.session.rehearse(request)
                before += request.seconds
        except KeyboardInterrupt:
            if not turnovers:
                raise
            interrupted = True
            progress("interrupted: what was rehearsed so far is told")
    new_nginx = sides.new_nginx
    return Rehearsal(
        conf_path=sides.old.path,
        new_path=sides.new_path,
        nginx_binary=binary,
        nginx_version=sides.nginx.version or "",
        nginx_choice=sides.nginx.choice,
        new_nginx_binary="" if new_nginx is None else new_binary,
        new_nginx_version="" if new_nginx is None else new_nginx.version or "",
        files=sorted(sides.change),
        rate_per_second=wish.rate_per_second,
        asked={one.name: one.paths.paths[0] for one in plan.classes if one.paths.paths},
        warnings=reload_warnings(sides.old, sides.new),
        notes=[*stage.notes, *_held_notes(held), *bpf, *sides.unseen, *answers.notes],
        refused_here=list(sides.refused_here),
        worse_answers=answers.worse,
        other_answers=answers.other,
        limited=limits.met(plan, _summed(one.limited for one in turnovers)),
        dropped=dropped_places(sides.old, sides.new),
        turnovers=turnovers,
        gates=judge_rehearsal(wish.requires, turnovers),
        lab=stage.session.lab.name,
        interrupted=interrupted,
    )


def _site(sides: OldAndNew, *, makes_files: bool) -> SitePair:
    """What the clients of the old configuration ask, in the place of both."""
    site = read_site(
        sides.old,
        sides.old,
        default_load(),
        files=SiteFiles(has_files, makes_files=makes_files),
        builds=(sides.nginx, sides.new_nginx or sides.nginx),
        primary_metric=None,
        requires=(),
        objectives=(),
    )
    entry = site.entries[0]
    after = entry._replace(written=written_files(sides.new))
    return site._replace(trees=(sides.old, sides.new), entries=(entry, after), looked_at=[])


def _build_and_path(sides: OldAndNew, name: str) -> tuple[Nginx, str]:
    """What runs a side, and the main file that it was read from."""
    if name == _OLD:
        return sides.nginx, sides.old.path
    return sides.new_nginx or sides.nginx, sides.new_path or sides.new.path


def _side(sides: OldAndNew, name: str) -> str:
    nginx, path = _build_and_path(sides, name)
    return f"{_NAMES[name]} {path}, run by {build_title(nginx)} ({runnable_program(nginx)})"


def _check(stage: Stage, sides: OldAndNew) -> None:
    """That ``nginx -t`` takes both sides, each by its own program.

    Errors: ConfigurationError with the words of the first that it does not, and whose they are.
    """
    for arm in stage.experiment.arms:
        nginx, path = _build_and_path(sides, arm.name)
        tried = stage.session.try_laid(arm, runnable_program(nginx))
        if tried.status != 0:
            lines = [line for line in tried.messages if "[emerg]" in line] or tried.messages
            said = _SAID.sub("", lines[0]) if lines else "no message"
            said = as_read(said, laid=sides.old.path, read=path)
            raise ConfigurationError(f"{_side(sides, arm.name)}: nginx -t rejects it: {said}")


def _addresses(tree: ConfTree) -> list[Address]:
    return addresses_of(one for one in listeners(tree) if not one.is_quic)


def _logs(sides: OldAndNew) -> list[str]:
    programs = (sides.nginx, sides.new_nginx or sides.nginx)
    trees = zip((sides.old, sides.new), programs, strict=True)
    found = [path for tree, nginx in trees for path in error_logs(tree, nginx.error_log_path)]
    return [path for path in dict.fromkeys(found) if path != "/dev/stderr"]


def _summed(found: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for one in found:
        counts.update(one)
    return counts


def _held_notes(held: ClientsToHold) -> list[str]:
    return [f"no {kind} was held: {why}" for kind, why in held.left_out.items()]
