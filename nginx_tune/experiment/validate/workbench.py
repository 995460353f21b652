"""The workbench of a validation: a lab with both trees, stubs around them, and their load."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from msgspec.structs import replace

from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.lab import Lab, Start
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.experiment import Experiment
from nginx_tune.experiment.operations import Conduct, Question, Variant, answer_clause
from nginx_tune.experiment.session import Session, as_url, lab_files, served_files, shown
from nginx_tune.experiment.target import listen_addresses, listen_sockets
from nginx_tune.experiment.validate.client_limits import ClientLimits
from nginx_tune.experiment.validate.extra_classes import (
    ExtraClasses,
    entry_questions,
    find_extra_classes,
)
from nginx_tune.experiment.validate.replay import Replay, open_replay, replayed_classes
from nginx_tune.experiment.validate.site import (
    NO_CLASSES,
    NO_FILES_HINT,
    SitePair,
    primary_of,
    without_files,
)
from nginx_tune.experiment.validate.site_load import (
    at_listeners,
    class_names,
    protocol_note,
    with_extra_classes,
)
from nginx_tune.experiment.validate.workbench_notes import (
    absent_notes,
    accepted_codings,
    asked_notes,
    compression_notes,
    file_notes,
    listed,
    place_notes,
    plan_outgoing_of_all,
    prefix_notes,
    stub_notes,
    unseen_log_notes,
    unspoken,
    with_codings,
)
from nginx_tune.experiment.view import (
    HEADER,
    build_prefix,
    merge_views,
    module_files,
    opened_files,
    outermost,
    plan_view,
    required_directories,
    with_worker_header,
    written_directories,
    written_places,
)
from nginx_tune.measure.load.classes import ServedFile, hot_urls, plan_load
from nginx_tune.nginx.binary import runnable_program
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.nginx.lab.sandbox import Sandbox
from nginx_tune.nginx.lab.spec import LabPlan, PlannedLab, Shape
from nginx_tune.nginx.subject import refuse_foreign_code, refuse_special_files

_OK = 200
Changing = Mapping[str, Mapping[str, bytes]]
"""The files of a configuration that is changed while it runs, by variant."""


class Workbench(NamedTuple):
    """An open lab with a planned experiment, before anything is measured."""

    session: Session
    experiment: Experiment
    """The experiment; its runs have no length yet."""
    notes: list[str]
    """Parts that do not run as configured."""
    lost: list[str]
    """Addresses that only the baseline serves."""
    questions: Mapping[str, Question]
    """The request for each place, by its label."""
    has_silent: bool
    """True if nginx sends requests to a server that has no stub, so that a 502 proves nothing."""
    primary_metric: str
    """The primary metric, of a class that is loaded."""
    unreached: str
    """A sentence on a load that does not meet the change; empty if the primary metric does."""


class _Side(NamedTuple):
    """A configuration and the build that runs it."""

    tree: ConfTree
    binary: str
    flags: Sequence[str]
    """Configure arguments."""
    prefix: str | None

    def places(self, written: Sequence[str]) -> set[str]:
        """The directories that nginx writes to; ``written``: the files that configurations name."""
        return written_places(self.flags, written, prefix=build_prefix(self.flags, self.prefix))

    def view(self) -> HostNeeds:
        """The part of the host that the side sees."""
        return plan_view([self.tree], self.flags, self.prefix, directory=str(Path.cwd()))


class _Places(NamedTuple):
    """The directories that the configurations write to, by their treatment in the sandbox."""

    covers: list[str]
    """Directories replaced by empty ones."""
    overlays: list[str]
    """Directories that are copied, since nginx also reads files there."""
    absent: list[str]
    """Directories that the host lacks, made inside the sandbox."""
    sockets: list[str]
    """Unix sockets of listeners."""


class Rival(NamedTuple):
    """A further variant: the candidate with other bytes in some files."""

    name: str
    """Neither ``baseline`` nor ``candidate``."""
    tree: ConfTree
    planned: Mapping[str, bytes]
    """The bytes of the rival's files that replace the baseline's, by path."""


class _Opened(NamedTuple):
    """A lab with all trees in place, before the first request."""

    session: Session
    variants: list[Variant]
    files: list[ServedFile]
    """Files of the first root, by URL."""
    classes: list[ScenarioClass]
    has_silent: bool
    addresses: list[str]
    """Addresses of the loopback link inside."""
    notes: list[str]


class _Load(NamedTuple):
    """The load of each variant, below the limits on clients."""

    variants: list[Variant]
    plans: dict[str, LoadPlan]
    paced: Sequence[str]
    """Classes slowed down to stay below a limit."""
    above: Mapping[str, str]
    """Places whose limit is too low to load them, with the reasons, by label."""
    notes: list[str]


def open_workbench(
    sandbox: Sandbox,
    site: SitePair,
    *,
    lab: LabPlan | None,
    prefixes: tuple[str | None, str | None],
    scale: float | None,
    starts: Literal["full", "cold"] = "full",
    changing: Changing | None = None,
    rivals: Sequence[Rival] = (),
) -> Workbench:
    """Open the lab, put all trees in place, survey what they serve, and plan its load.

    ``rivals`` run under the candidate's load and are not surveyed. ``changing``: by variant, the
    files of a configuration that changes while it runs. Then only the baseline is surveyed, and
    stubs accept upgrades.
    Errors: UndecidedError if there is nothing to load, ConfigurationError if nginx rejects a
            configuration, UsageError for a manifest that needs a lab.
    """
    replay = open_replay(sandbox, site, has_lab=lab is not None, scale=scale)
    own = served_files(site.entry.root) if site.entry.root and replay is None else []
    planned = _plan_lab(lab, site, _shape(site, own, replay))
    opened = _put_in_place(
        *(sandbox, site, planned.lab, own, replay),
        prefixes=prefixes,
        starts=starts,
        changing=changing,
        rivals=rivals,
    )
    limits = ClientLimits(site.trees, of_all=True)
    extra = _find_extra_classes(opened, site, own, limits, surveys_both=changing is None)
    load = _plan_load(opened, site, extra, limits if changing is None else None)
    asks_files = changing is not None and any(
        _is_served(class_, extra) for class_ in opened.classes
    )
    addresses = ", ".join(opened.addresses)
    notes = [
        *opened.notes,
        *(_failing(opened.session, load.variants[0], site, extra.files) if asks_files else []),
        *([f"on the sandbox's loopback link: {addresses}"] if addresses else []),
        *file_notes(opened.classes, extra.files, site.entry.root),
        *asked_notes(extra.asked, {**_unloaded(site, extra), **load.above}),
        *load.notes,
        *site.load.notes,
        *(replay.notes if replay else []),
        *planned.notes,
        *opened.session.notes,
    ]
    gone = [*site.lost, *(f"{label}: {why}" for label, why in extra.lost.items())]
    # A redirect comes last: it decides only if nothing else is served.
    classes = sorted(load.plans["candidate"].classes, key=lambda item: _OK not in item.status)
    loaded = [item.name for item in classes]
    reached = _reached(site, load)
    primary = primary_of(site, loaded, load.paced, reached)
    return Workbench(
        opened.session,
        Experiment(load.variants, load.plans),
        [*map(shown, notes)],
        [*map(shown, gone)],
        {**entry_questions(site, extra.files), **extra.questions},
        opened.has_silent,
        primary,
        _unreached(primary, reached),
    )


def _reached(site: SitePair, load: _Load) -> list[str]:
    """The classes that reach a place that the change touches."""
    servers = {
        name: pair[0].block
        for pair in site.requests
        for name in class_names(pair, site.load.protocols)
        if pair[0].block is not None
    }
    return site.touched.reached(load.plans["baseline"], servers, site.entries[0].server)


def _unreached(primary: str, reached: Sequence[str]) -> str:
    if not reached:
        return "no class of the load requests a place that the change touches"
    name = primary.partition(".")[0]
    if name in reached or name in NO_CLASSES:
        return ""
    return f"{name} requests no place that the change touches; these classes do: {listed(reached)}"


def _put_in_place(
    sandbox: Sandbox,
    site: SitePair,
    lab: Lab,
    own: Sequence[ServedFile],
    replay: Replay | None,
    *,
    prefixes: tuple[str | None, str | None],
    starts: Literal["full", "cold"],
    changing: Changing | None,
    rivals: Sequence[Rival],
) -> _Opened:
    """Open the lab, and make what all trees need around them."""
    sides = [
        _Side(tree, runnable_program(build), build.flags, prefix)
        for tree, build, prefix in zip(site.trees, site.builds, prefixes, strict=True)
    ]
    sides += [sides[1]._replace(tree=rival.tree) for rival in rivals]
    trees = [side.tree for side in sides]
    places = _sort_places(site, sides)
    for side in sides:
        refuse_special_files(opened_files(side.tree))
        refuse_foreign_code(side.binary, module_files(side.tree, side.flags, side.prefix))
    session = Session(
        sandbox,
        lab,
        binary=sides[1].binary,
        covers=places.covers,
        overlays=places.overlays,
        made=places.absent,
        view=merge_views([side.view() for side in sides]),
    )
    files = _files(session, site, own)
    classes = replayed_classes(site, replay, sandbox.directory)
    variants = _variants(site, sides, _start(lab, starts))
    variants += [replace(variants[1], name=rival.name) for rival in rivals]
    headed = with_worker_header(trees) if changing is None else ({}, {})
    addresses = sorted({address for tree in trees for address in listen_addresses(tree)})
    made = session.make_environment(
        addresses,
        variants,
        shown=changing or _seen(variants, [{}, site.planned, *(r.planned for r in rivals)], headed),
        outgoing=plan_outgoing_of_all(trees),
        sockets=places.sockets,
        echoes=changing is not None,
    )
    logs = [entry.error_log for entry in site.entries if entry.error_log is not None]
    notes = [
        *place_notes(session.lab, places.covers, places.overlays, is_root=os.geteuid() == 0),
        *prefix_notes(prefixes),
        *absent_notes(places.absent),
        *stub_notes(made, trees),
        *unseen_log_notes(log for log in logs if Path(log).is_char_device()),
        *([f"{HEADER} with the worker's id is added to each response"] if all(headed) else []),
    ]
    has_silent = bool(made.stubs.silent) or any(map(unspoken, trees))
    return _Opened(session, variants, files, classes, has_silent, addresses, notes)


def _sort_places(site: SitePair, sides: Sequence[_Side]) -> _Places:
    written = [path for entry in site.entries for path in entry.written]
    places = outermost({place for side in sides for place in side.places(written)})
    trees = [side.tree for side in sides]
    kept = {tree.path for tree in trees} | ({site.entry.root} if site.entry.root else set())
    stored = {path for tree in trees for path in written_directories(tree)}
    overlays = sorted({place for place in places if _holds(place, kept)} | stored)
    sockets = sorted({path for tree in trees for path in listen_sockets(tree)})
    required = required_directories([*written, *sockets])
    return _Places(
        covers=[place for place in places if place not in overlays],
        overlays=overlays,
        absent=[path for path in required if not Path(path).is_dir()],
        sockets=sockets,
    )


def _variants(site: SitePair, sides: Sequence[_Side], starts: Start) -> list[Variant]:
    """Both variants; each names its program only if the programs differ."""
    has_two = sides[0].binary != sides[1].binary
    return [
        Variant(
            name=name,
            conf_path=side.tree.path,
            error_log=entry.error_log,
            prefix=side.prefix,
            conduct=Conduct(binary=side.binary if has_two else None, starts=starts),
        )
        for name, side, entry in zip(
            ("baseline", "candidate"), sides[:2], site.entries, strict=True
        )
    ]


def _find_extra_classes(
    opened: _Opened,
    site: SitePair,
    own: Sequence[ServedFile],
    limits: ClientLimits,
    *,
    surveys_both: bool,
) -> ExtraClasses:
    session = opened.session
    return find_extra_classes(
        session,
        opened.variants[:2],
        site,
        files=opened.files,
        files_of=lambda directory: _on_disk(session, site, own, directory),
        # A lab's disks hide the host's files.
        is_there=lambda path: bool(session.lab.disks) or os.path.exists(path),  # noqa: PTH110
        has_silent=opened.has_silent,
        surveys_both=surveys_both,
        limits=limits,
    )


def _plan_load(
    opened: _Opened, site: SitePair, extra: ExtraClasses, limits: ClientLimits | None
) -> _Load:
    """Plan the load of all variants, below ``limits`` if given.

    Errors: UndecidedError if nothing is left to load.
    """
    files = list(extra.files)
    variants = [
        replace(variant, prime=hot_urls(opened.classes, files)) for variant in opened.variants
    ]
    plans = _plans(site, [item for item in opened.classes if _is_served(item, extra)], extra)
    plans |= {variant.name: plans["candidate"] for variant in variants[2:]}
    paced: Sequence[str] = ()
    above: Mapping[str, str] = {}
    if limits is not None:
        plans, paced, above = limits.below(plans, first=site.primary_metric.partition(".")[0])
        variants = [
            replace(variant, limited=limits.statuses_of(plans[variant.name]))
            for variant in variants
        ]
    if not plans["candidate"].classes:
        raise _nothing_loaded(site, extra, above)
    notes = [
        *protocol_note(plans["candidate"], site.load.protocols),
        *compression_notes(site.trees),
        *(limits.notes(plans["candidate"], paced) if limits is not None else []),
    ]
    return _Load(variants, plans, paced, above, notes)


def _plans(
    site: SitePair, classes: Sequence[ScenarioClass], extra: ExtraClasses
) -> dict[str, LoadPlan]:
    """The load of baseline and candidate: the classes at the entry point and at other places."""
    accepted = accepted_codings(site.trees)
    plans = {}
    for name, entry in zip(("baseline", "candidate"), site.entries, strict=True):
        plan = plan_load(classes, extra.files, target=entry.target, memory_url=entry.memory_url)
        plan = with_extra_classes(at_listeners(plan, entry), extra.classes[name])
        plans[name] = with_codings(plan, accepted)
    return plans


def _shape(site: SitePair, own: Sequence[ServedFile], replay: Replay | None) -> Shape:
    root = site.entry.root or ""
    if replay is not None:
        return Shape(root, list(replay.sizes.values()), replay.sizes, replay.share)
    return Shape(root, [file.bytes for file in own])


def _plan_lab(lab: LabPlan | None, site: SitePair, shape: Shape) -> PlannedLab:
    if lab is not None:
        planned = lab(shape)
        if any(not disk.mount for disk in planned.lab.disks):
            raise UndecidedError(
                f"{site.trees[1].path}: it serves no files, so there is no place for a lab disk",
                hint="leave out --lab, or name a TOML file without disks",
            )
        return planned
    if site.entry.root is not None and not shape.sizes:
        raise without_files([site.entry.root])
    return PlannedLab(Lab(name="none"))


def _is_served(item: ScenarioClass, extra: ExtraClasses) -> bool:
    """True if a class has anything to load; a manifest may include refused requests."""
    if item.manifest:
        return True
    return extra.has_memory if item.source == "memory" else bool(extra.files)


def _start(lab: Lab, starts: Literal["full", "cold"]) -> Start:
    """The page cache at the start of a run; without a memory limit, "full" means "warm"."""
    # Cold names need a cold start: reading a file warms its name.
    if starts == "cold" or lab.cold_names or not lab.disks:
        return "cold"
    return "warm" if lab.memory_bytes is None else "full"


def _failing(
    session: Session, variant: Variant, site: SitePair, files: Sequence[ServedFile]
) -> list[str]:
    """A note if nginx refuses the first root's files even before any change."""
    if not files:
        return []
    question = Question(target=site.entries[0].target, url=files[0].url)
    (answer,) = session.survey(variant, [question])
    if answer.status in (None, 200):
        return []
    return [
        f"{question.url} {answer_clause(answer.status)}: requests for files fail before any change"
    ]


def _nothing_loaded(
    site: SitePair, extra: ExtraClasses, above: Mapping[str, str]
) -> UndecidedError:
    refused = {**site.left_out, **extra.refused, **extra.lost, **above}
    empty = dict.fromkeys(map(shown, site.without_files), "no readable files to load")
    why = "; ".join(f"{label}: {reason}" for label, reason in {**empty, **refused}.items())
    return UndecidedError(
        f"{site.trees[1].path}: nothing can be loaded: {why}", hint=NO_FILES_HINT if empty else ""
    )


def _files(session: Session, site: SitePair, own: Sequence[ServedFile]) -> list[ServedFile]:
    root = site.entry.root
    if root is None:
        return []
    found = _on_disk(session, site, own, root)
    return [as_url(file, root=root, url_prefix=site.entry.url_prefix) for file in found]


def _on_disk(
    session: Session, site: SitePair, own: Sequence[ServedFile], directory: str
) -> Sequence[ServedFile]:
    """The files below a directory that both variants see; ``own`` has the first root's files."""
    if directory != site.entry.root:
        return served_files(directory)
    return lab_files(session, directory) if session.lab.disks else own


def _seen(
    variants: Sequence[Variant],
    changed: Sequence[Mapping[str, bytes]],
    headed: Sequence[Mapping[str, bytes]],
) -> dict[str, dict[str, bytes]]:
    """The replaced files that each variant sees, by variant and path."""
    return {
        variant.name: {**own, **with_header}
        for variant, own, with_header in zip(variants, changed, headed, strict=True)
    }


def _unloaded(site: SitePair, extra: ExtraClasses) -> dict[str, str]:
    """The places that are neither loaded nor lost, with the reasons."""
    refused = {**site.left_out, **extra.refused}
    return {label: why for label, why in refused.items() if label not in extra.lost}


def _holds(place: str, paths: set[str]) -> bool:
    return any(
        PurePosixPath(place) in (PurePosixPath(path), *PurePosixPath(path).parents)
        for path in paths
    )
