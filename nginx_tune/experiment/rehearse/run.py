"""A rehearsal: changes a running nginx under load in each manner, and reports the effects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from nginx_tune.change.generate.reload_warnings import reload_warnings
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.logs import error_logs
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.progress import part_of
from nginx_tune.documents.rehearsal import Manner, Rehearsal, RehearsedReload
from nginx_tune.documents.units import plural
from nginx_tune.errors import ConfigurationError, NginxTuneError
from nginx_tune.experiment.operations import MODULE_INSIDE, RehearseRequest, Response, Side, Variant
from nginx_tune.experiment.rehearse.change import (
    BPF_NOTE,
    ClientsToHold,
    answered_by_either,
    as_read,
    at_rate,
    dropped_places,
    held_clients,
    wants_bpf,
    without_bpf,
)
from nginx_tune.experiment.session import bytes_below, has_files
from nginx_tune.experiment.target import written_files
from nginx_tune.experiment.validate.client_limits import ClientLimits
from nginx_tune.experiment.validate.site import SiteFiles, SitePair, read_site
from nginx_tune.experiment.validate.site_load import default_load
from nginx_tune.experiment.validate.successors import lost_answer
from nginx_tune.experiment.validate.workbench import Workbench, open_workbench
from nginx_tune.experiment.validate.workbench_notes import asked_notes
from nginx_tune.measure.proof.rehearsal import judge_rehearsal
from nginx_tune.nginx.binary import build_title, runnable_program
from nginx_tune.nginx.lab.sandbox import Sandbox
from nginx_tune.nginx.lab.spec import LabPlan
from nginx_tune.nginx.reload.address import Address, addresses_of
from nginx_tune.nginx.subject import refuse_foreign_code

_OLD, _NEW = "baseline", "candidate"
_NAMES = {_OLD: "OLD", _NEW: "NEW"}
_LONGEST_WARMUP_SECONDS = 1.0
_MESSAGE_HEAD = re.compile(r"^.*?\[emerg\] (?:[0-9]+#[0-9]+: )?")
"""The prefix of an nginx message: time, level and process."""


class OldAndNew(NamedTuple):
    """The old and the new configuration, with the new one placed at the paths of the old one."""

    old: ConfTree
    new: ConfTree
    change: Mapping[str, bytes]
    """The files that differ in the new configuration, by path."""
    prefix: str | None
    """nginx's ``-p``; None for the build's own."""
    nginx: Nginx
    new_nginx: Nginx | None
    """The new program; None for the same program."""
    new_path: str = ""
    refused_here: Sequence[str] = ()
    """Parts of the new configuration that the sandbox accepts, but this host would refuse."""
    unseen: Sequence[str] = ()
    """Parts of the host that could not be checked."""


class RehearseOptions(NamedTuple):
    """The options of a rehearsal."""

    manners: Sequence[Manner]
    goes_back: bool
    rate_per_second: float
    idle: int
    active: int
    before_seconds: float
    after_seconds: float
    drain_seconds: float
    sysctls: Mapping[str, str]
    """Settings of the sandbox's network namespace."""
    requires: Sequence[str]
    lab: LabPlan | None = None
    """The host to emulate; None for this machine as it is."""
    scale: float | None = None
    """The share of data and memory that a lab made from facts keeps."""


class _Trial(NamedTuple):
    """The load, the clients, and the answers of both sides before any change."""

    workbench: Workbench
    load: LoadPlan
    limits: ClientLimits
    limited: dict[str, list[int]]
    held: ClientsToHold
    answers: ComparedAnswers
    variant: Variant
    notes: list[str]
    """The limits that the load stays below."""


class _Share:
    """The progress of a rehearsal over all its parts."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._before = self._total = 0.0

    def __call__(self, text: str) -> None:
        """Report progress of the current part."""
        part_of(self._progress, self._before, self._total)(text)

    @contextmanager
    def of(self, seconds: float, parts: int) -> Iterator[None]:
        """Run one of ``parts`` parts of about the same length, and count it as done at its end."""
        self._total = self._total or seconds * parts
        yield
        self._before += seconds


def run_rehearsal(
    sides: OldAndNew, wish: RehearseOptions, *, progress: Callable[[str], None]
) -> Rehearsal:
    """Rehearse the change in each manner: reload, upgrade, restart.

    On KeyboardInterrupt the result has the finished manners; if none is finished, the interruption
    is raised.
    Errors: ConfigurationError for a tree that cannot be parsed or that ``nginx -t`` rejects,
            UndecidedError if there is nothing to load or a tool is missing.
    """
    programs = _programs(sides)
    site = _site(sides, makes_files=wish.lab is not None)
    reloads: list[RehearsedReload] = []
    interrupted = False
    share = _Share(progress)
    with Sandbox(MODULE_INSIDE, progress=share) as sandbox:
        workbench = _open(sandbox, sides, site, wish)
        _check(workbench, sides)
        trial = _prepare(workbench, sides, site, wish)
        try:
            for manner in wish.manners:
                request = _request(trial, sides, wish, manner, programs)
                with share.of(request.seconds, len(wish.manners)):
                    reloads += workbench.session.rehearse(request)
        except KeyboardInterrupt:
            if not reloads:
                raise
            interrupted = True
            progress("interrupted: reporting what was rehearsed so far")
    rehearsal = _rehearsal(trial, sides, wish, reloads, programs)
    return msgspec.structs.replace(rehearsal, interrupted=interrupted)


def _programs(sides: OldAndNew) -> tuple[str, str]:
    """The programs of both sides.

    Errors: UndecidedError for a new program that other users may write.
    """
    old = runnable_program(sides.nginx)
    new = old if sides.new_nginx is None else runnable_program(sides.new_nginx)
    refuse_foreign_code(new, [])
    return old, new


def _open(sandbox: Sandbox, sides: OldAndNew, site: SitePair, wish: RehearseOptions) -> Workbench:
    laid, changed = without_bpf(sides.old, sides.new, sides.change)
    try:
        return open_workbench(
            sandbox,
            site,
            lab=wish.lab,
            prefixes=(sides.prefix, sides.prefix),
            scale=wish.scale,
            changing={_OLD: laid, _NEW: changed},
        )
    except ConfigurationError as error:  # only the old one runs before both are tested
        raise ConfigurationError(f"{_side(sides, _OLD)}: {error.message}") from None


def _prepare(
    workbench: Workbench, sides: OldAndNew, site: SitePair, wish: RehearseOptions
) -> _Trial:
    """Plan the load and the long connections, and compare the answers of both sides."""
    plan = at_rate(workbench.experiment.plans[_OLD], wish.rate_per_second)
    warmup = min(_LONGEST_WARMUP_SECONDS, wish.before_seconds)
    plan = msgspec.structs.replace(plan, warmup_seconds=warmup)
    limits = ClientLimits((sides.old, sides.new), of_all=True)
    below = limits.below({_OLD: plan})
    notes = []
    if below.plans[_OLD].classes:  # else all places let hardly anything pass: some load is better
        plan = below.plans[_OLD]
        notes = [*asked_notes([], below.refused), *limits.notes(plan, below.paced)]
    limited = limits.statuses_of(plan)
    answers = compare_answers(workbench, limits)
    requests = [pair[0] for pair in site.requests]
    held = held_clients(
        sides.old, plan, requests, idle=wish.idle, active=wish.active, paced=below.paced
    )
    held = held._replace(
        clients=[
            msgspec.structs.replace(client, limited=sorted(limits.statuses(client.target)))
            for client in held.clients
        ]
    )
    first = workbench.experiment.variants[0]
    conduct = msgspec.structs.replace(first.conduct, sysctls=dict(wish.sysctls))
    variant = msgspec.structs.replace(first, prime=[], limited=limited, conduct=conduct)
    return _Trial(workbench, plan, limits, limited, held, answers, variant, notes)


def _request(
    trial: _Trial,
    sides: OldAndNew,
    wish: RehearseOptions,
    manner: Manner,
    programs: tuple[str, str],
) -> RehearseRequest:
    old, new = programs
    # A reload keeps the running program.
    after = old if manner == "reload" else new
    return RehearseRequest(
        manner=manner,
        variant=trial.variant,
        old=Side(variant=_OLD, binary=old, addresses=_addresses(sides.old)),
        new=Side(variant=_NEW, binary=after, addresses=_addresses(sides.new)),
        goes_back=wish.goes_back,
        plan=answered_by_either(trial.load, trial.limited),
        held=trial.held.clients,
        error_logs=_logs(sides),
        before_seconds=wish.before_seconds,
        after_seconds=wish.after_seconds,
        drain_seconds=wish.drain_seconds,
    )


def _rehearsal(
    trial: _Trial,
    sides: OldAndNew,
    wish: RehearseOptions,
    reloads: list[RehearsedReload],
    programs: tuple[str, str],
) -> Rehearsal:
    new_nginx, answers, load = sides.new_nginx, trial.answers, trial.load
    bpf = [BPF_NOTE] if wants_bpf(sides.old) or wants_bpf(sides.new) else []
    return Rehearsal(
        conf_path=sides.old.path,
        new_path=sides.new_path,
        nginx_binary=programs[0],
        nginx_version=sides.nginx.version or "",
        nginx_choice=sides.nginx.choice,
        new_nginx_binary="" if new_nginx is None else programs[1],
        new_nginx_version="" if new_nginx is None else new_nginx.version or "",
        files=sorted(sides.change),
        rate_per_second=wish.rate_per_second,
        asked={class_.name: class_.paths.paths[0] for class_ in load.classes if class_.paths.paths},
        warnings=reload_warnings(sides.old, sides.new),
        notes=[
            *trial.workbench.notes,
            *trial.notes,
            *_held_notes(trial.held),
            *bpf,
            *sides.unseen,
            *answers.notes,
        ],
        refused_here=list(sides.refused_here),
        worse_answers=answers.worse,
        other_answers=answers.other,
        limited=trial.limits.met(load, _summed(reload.limited for reload in reloads)),
        dropped=dropped_places(sides.old, sides.new),
        reloads=[_with_refusals_named(reload, trial) for reload in reloads],
        gates=judge_rehearsal(wish.requires, reloads),
        lab=trial.workbench.session.lab.name,
    )


def _site(sides: OldAndNew, *, makes_files: bool) -> SitePair:
    """The site for both sides, with the servers, files and requests of the old configuration."""
    site = read_site(
        sides.old,
        sides.old,
        default_load(),
        files=SiteFiles(has_files, bytes_below, makes_files=makes_files),
        builds=(sides.nginx, sides.new_nginx or sides.nginx),
        primary_metric=None,
        requires=(),
        objectives=(),
    )
    entry = site.entries[0]
    after = entry._replace(written=written_files(sides.new))
    return site._replace(trees=(sides.old, sides.new), entries=(entry, after), looked_at=[])


def _build_and_path(sides: OldAndNew, name: str) -> tuple[Nginx, str]:
    """The program of a side, and the path of its main file."""
    if name == _OLD:
        return sides.nginx, sides.old.path
    return sides.new_nginx or sides.nginx, sides.new_path or sides.new.path


def _side(sides: OldAndNew, name: str) -> str:
    nginx, path = _build_and_path(sides, name)
    return f"{_NAMES[name]} {path}, run by {build_title(nginx)} ({runnable_program(nginx)})"


def _check(workbench: Workbench, sides: OldAndNew) -> None:
    """Test each side with ``nginx -t`` of the side's own program.

    Errors: ConfigurationError with the side and nginx's message.
    """
    for variant in workbench.experiment.variants:
        nginx, path = _build_and_path(sides, variant.name)
        tried = workbench.session.try_laid(variant, runnable_program(nginx))
        if tried.status != 0:
            lines = [line for line in tried.messages if "[emerg]" in line] or tried.messages
            message = _MESSAGE_HEAD.sub("", lines[0]) if lines else "no message"
            message = as_read(message, laid=sides.old.path, read=path)
            side = _side(sides, variant.name)
            raise ConfigurationError(f"{side}: nginx -t rejects it: {message}")


def _addresses(tree: ConfTree) -> list[Address]:
    return addresses_of(listener for listener in listeners(tree) if not listener.is_quic)


def _logs(sides: OldAndNew) -> list[str]:
    programs = (sides.nginx, sides.new_nginx or sides.nginx)
    trees = zip((sides.old, sides.new), programs, strict=True)
    found = [path for tree, nginx in trees for path in error_logs(tree, nginx.error_log_path)]
    return [path for path in dict.fromkeys(found) if path != "/dev/stderr"]


def _with_refusals_named(reload: RehearsedReload, trial: _Trial) -> RehearsedReload:
    """The reload, with the names of limits that refused connections instead of a status."""
    modules = {
        f"answers {limit.status}": f"refused by {limit.module}"
        for client in trial.held.clients
        for limit in trial.limits.at(client.target)
    }
    held = []
    for item in reload.held:
        reasons: Counter[str] = Counter()
        for reason, count in item.reasons.items():
            reasons[modules.get(" ".join(reason.split()[:2]), reason)] += count
        held.append(msgspec.structs.replace(item, reasons=dict(reasons)))
    return msgspec.structs.replace(reload, held=held)


def _summed(found: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for text in found:
        counts.update(text)
    return counts


def _held_notes(held: ClientsToHold) -> list[str]:
    return [f"no {kind} connection was tried: {why}" for kind, why in held.left_out.items()]


_MOST_RETRIES = 12
"""Bound on retries of places that a limit refused; each retry starts nginx."""


class ComparedAnswers(NamedTuple):
    """Sentences on the places whose answers became worse or different, and notes."""

    worse: list[str]
    other: list[str]
    notes: list[str]


def compare_answers(workbench: Workbench, limits: ClientLimits) -> ComparedAnswers:
    """Request each place from both sides, twice from the old one to detect varying answers.

    Requests refused by a limit on clients are repeated on a new nginx, whose counters are empty.
    """
    questions = list(workbench.questions.values())
    old, new = workbench.experiment.variants
    try:
        first = workbench.session.survey(old, [*questions, *questions])
        after = workbench.session.survey(new, questions)
        refused = [
            at
            for at, question in enumerate(questions)
            if after[at].status in limits.statuses(question.target)
        ]
        for at in refused[:_MOST_RETRIES]:
            after[at] = workbench.session.survey(new, [questions[at]])[0]
    except NginxTuneError as error:  # the change itself reports why NEW does not start
        return ComparedAnswers([], [], [f"NEW's answers were not compared: {error.message}"])
    unknown = set(refused[_MOST_RETRIES:])
    twice = zip(first[: len(questions)], first[len(questions) :], strict=True)
    rows = enumerate(zip(workbench.questions, twice, after, strict=True))
    result = compared(
        (row for at, row in rows if at not in unknown), has_silent=workbench.has_silent
    )
    if unknown:
        result.notes.append(
            f"{plural(len(unknown), 'further place')}: refused by a limit of NEW and not tried "
            "again, so the answers are unknown"
        )
    return result


def compared(
    rows: Iterable[tuple[str, tuple[Response, Response], Response]], *, has_silent: bool
) -> ComparedAnswers:
    """Compare answers; a row is a label, the two old answers, and the new answer."""
    result = ComparedAnswers([], [], [])
    for label, (first, second), after in rows:
        if lost_answer(first, after, has_silent=has_silent):
            now = after.fault if after.status is None else str(after.status)
            result.worse.append(f"{label}: OLD answers {first.status}, NEW {now}")
        elif first == second and (difference := _difference(first, after)):
            result.other.append(f"{label}: {difference}")
    return result


def _difference(old: Response, new: Response) -> str:
    """The difference between two good answers; empty if they are equal or either is an error."""
    is_served = old.status is not None and old.status < 400  # noqa: PLR2004
    if not is_served or new.status is None or new.status >= 400:  # noqa: PLR2004
        return ""
    if old.status != new.status:
        return f"OLD answers {old.status}, NEW {new.status}"
    if None not in (old.length_bytes, new.length_bytes) and old.length_bytes != new.length_bytes:
        return f"{old.length_bytes} bytes from OLD, {new.length_bytes} from NEW"
    if old.digest and new.digest and old.digest != new.digest:
        return "different contents"
    return ""
