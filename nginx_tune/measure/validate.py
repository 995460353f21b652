"""A/B of two configurations on a scratch nginx behind the walls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote_from_bytes

import msgspec

from nginx_tune.conf.secrets import redact_configuration
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ArmText
from nginx_tune.documents.validation import Validation
from nginx_tune.documents.verdict import Environment, Stopped
from nginx_tune.errors import ConfigurationError, MissingToolError, UndecidedError
from nginx_tune.lab.check import is_below
from nginx_tune.lab.kinds import describe_disk
from nginx_tune.lab.spec import LabPlan, Planned, Shape
from nginx_tune.lab.walls import Walls
from nginx_tune.measure.experiment import Door, Load, find_warmup, run_pairs
from nginx_tune.measure.objective import search_arms
from nginx_tune.measure.plan_load import ServedFile
from nginx_tune.measure.plan_places import plan_places
from nginx_tune.measure.plan_site_load import SiteLoad, default_load
from nginx_tune.measure.plan_target import Target, listen_addresses, plan_target
from nginx_tune.measure.sequential import Deadline, Looking
from nginx_tune.measure.session import MODULE_INSIDE, Arm, Session
from nginx_tune.prove.gates import check_expressions
from nginx_tune.prove.objective import parse_objective
from nginx_tune.prove.statistics import ALPHA
from nginx_tune.prove.verdict import judge, measure_noise_floor

_MOST_FILES = 20_000
"""Files of the operator's root that the random load asks for."""


_SHARE_OF_PAIRS = 0.5
"""Of the time, when an objective's search wants the rest."""


class Plan(NamedTuple):
    """What the caller asks of a validation."""

    lab: LabPlan | None
    """Host to emulate; None runs on this machine as it is."""
    requires: Sequence[str]
    primary_metric: str | None
    pairs: int
    warmup_seconds: float | None
    """None has it found by a block of each arm."""
    duration_seconds: float
    seed: int
    self_check: bool
    prefix: str | None = None
    """nginx's ``-p``; None for the build's own."""
    max_seconds: float | None = None
    """Pairs are added until it is settled or this is over; None for just ``pairs``."""
    load: SiteLoad | None = None
    """What is asked for; None for a hot file and random ones."""
    objectives: Sequence[str] = ()
    """What the capacity of each arm is searched under; none for no search."""


def run_validation(
    candidate: ConfTree,
    baseline: ConfTree,
    plan: Plan,
    *,
    nginx: Nginx,
    progress: Callable[[str], None],
) -> Validation:
    """Run both configurations interleaved and judge them.

    Errors: ConfigurationError for a tree that could not be parsed or that nginx rejects,
            UndecidedError when there is nothing to load or a tool is missing, UsageError for a
            gate that names an unknown metric (before anything runs).
    """
    if nginx.binary is None:
        raise MissingToolError(
            "nginx is not installed", hint="apt-get install nginx, or name one with --nginx"
        )
    deadline = Deadline(plan.max_seconds)
    targets = [_target(tree, nginx) for tree in (baseline, candidate)]
    asked = plan.load or default_load()
    classes = [
        item
        for item in asked.classes
        if item.source != "memory" or all(target.memory_url for target in targets)
    ]
    names = [item.name for item in classes]
    metric = plan.primary_metric or asked.primary_metric
    check_expressions([*plan.requires, f"{metric} >= 0"], names)
    if plan.objectives:
        parse_objective(plan.objectives, names)
    _same_site(*targets)
    target = targets[1]
    shape = served_files(target.root)
    planned = _lab(plan, target, shape)
    written = [path for item in targets for path in item.written]
    kept = {target.root, candidate.path, baseline.path}
    places = plan_places(nginx.flags, written)
    overlays = [place for place in places if _holds(place, kept)]
    covers = [place for place in places if place not in overlays]
    with Walls(MODULE_INSIDE, progress=progress) as walls:
        session = Session(walls, planned.lab, binary=nginx.binary, covers=covers, overlays=overlays)
        lab = session.lab
        files = _lab_files(session, target.root) if lab.disks else shape
        load = Load(
            classes=classes,
            files=[_url(file, target) for file in files],
            port=target.port,
            memory_url=target.memory_url,
            host=target.host,
            warmup_seconds=plan.warmup_seconds or 0.0,
            duration_seconds=plan.duration_seconds,
        )
        arms = [
            Arm(name, tree.path, None, item.error_log, plan.prefix)
            for name, tree, item in zip(
                ("baseline", "candidate"), (baseline, candidate), targets, strict=True
            )
        ]
        load = load._replace(doors=_doors(arms, targets))
        addresses = {one for tree in (baseline, candidate) for one in listen_addresses(tree)}
        names = session.surround(sorted(addresses), arms)
        if plan.warmup_seconds is None:
            found = find_warmup(session, arms, load, seed=plan.seed, progress=progress)
            load = load._replace(warmup_seconds=found)
        checked: list[Measurement] = []
        if plan.self_check:
            same = [arms[0], arms[0]._replace(name="candidate")]
            progress("self-check: the baseline against itself")
            checked = run_pairs(
                session, same, load, pairs=plan.pairs, seed=plan.seed + 1000, progress=progress
            )
        # A search for the capacity has the other half of the time.
        share = _SHARE_OF_PAIRS if plan.objectives else 1.0
        looking = Looking(metric, deadline, first_pairs=plan.pairs, share=share)
        measurements = run_pairs(
            session,
            arms,
            load,
            pairs=plan.pairs,
            seed=plan.seed,
            progress=progress,
            goes_on=looking.wants_more if plan.max_seconds is not None else None,
        )
        capacities = (
            search_arms(
                session,
                arms,
                load,
                plan.objectives,
                seed=plan.seed,
                has_time=lambda: deadline.has(load.warmup_seconds + load.duration_seconds),
                progress=progress,
            )
            if plan.objectives
            else {}
        )
    floor = measure_noise_floor(checked)
    verdict = judge(
        measurements,
        primary_metric=metric,
        requires=plan.requires,
        noise_floor=floor,
        alpha=looking.look.alpha if looking.look else ALPHA,
        environment=Environment(
            nginx_version=nginx.version,
            kernel_release=os.uname().release,
            lab=lab.name,
            seed=plan.seed,
            differences=[
                *_differences(lab, covers, overlays),
                *_stubbed(names, sorted(addresses)),
                *asked.notes,
                *planned.notes,
                *session.notes,
            ],
        ),
    )
    verdict = msgspec.structs.replace(
        verdict,
        looks=looking.look.number if looking.look else 1,
        stopped=_why_stopped(plan, looking),
        capacities=capacities,
    )
    return Validation(
        verdict=verdict,
        requires=list(plan.requires),
        noise_floor=floor,
        arms=[
            ArmText(arm=arm.name, nginx_conf=_dump(tree))
            for arm, tree in zip(arms, (baseline, candidate), strict=True)
        ],
        measurements=measurements,
        self_check=checked,
    )


def _doors(arms: Sequence[Arm], targets: Sequence[Target]) -> dict[str, Door]:
    """Each arm is asked where it listens, by its own name."""
    return {
        arm.name: Door(target.address, target.port, target.host, target.memory_url)
        for arm, target in zip(arms, targets, strict=True)
    }


def _stubbed(names: Sequence[str], addresses: Sequence[str]) -> list[str]:
    found = []
    if addresses:
        found.append(f"on the loopback link inside: {', '.join(addresses)}")
    if names:
        shown = ", ".join(map(_shown, dict.fromkeys(names)))
        found.append(f"resolved to an address where nothing answers: {shown}")
    return found


def _why_stopped(plan: Plan, looking: Looking) -> Stopped:
    if plan.max_seconds is None:
        return "pairs"
    return "settled" if looking.is_over else "time"


def _dump(tree: ConfTree) -> str:
    """The configuration in the form of ``nginx -T``, without its secrets."""
    parts = [
        f"# configuration file {_shown(file.source.file)}:\n"
        + redact_configuration(file.source.text.encode("utf-8", "surrogateescape")).decode(
            errors="replace"
        )
        for file in tree.parsed
    ]
    return "\n".join(parts)


def _target(tree: ConfTree, nginx: Nginx) -> Target:
    if not tree.complete:
        first = tree.unparsed[0]
        raise ConfigurationError(first.reason, file=first.file, line=first.line or 0)
    return plan_target(tree, default_error_log=nginx.error_log_path)


def _same_site(baseline: Target, candidate: Target) -> None:
    sites = [(target.url_prefix, target.root) for target in (baseline, candidate)]
    if sites[0] != sites[1]:
        raise UndecidedError(
            "the two configurations serve different sites: "
            f"{_shown(baseline.root)} at {baseline.url_prefix or '/'} and "
            f"{_shown(candidate.root)} at {candidate.url_prefix or '/'}",
            hint="compare two configurations of one site",
        )


def served_files(root: str) -> list[ServedFile]:
    """Files below a root, the largest of the most common kind first; paths on disk."""
    found: list[ServedFile] = []
    pending = [Path(root)]
    while pending and len(found) < _MOST_FILES:
        try:
            entries = sorted(os.scandir(pending.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
                size = entry.stat().st_size
                if size and entry.stat().st_mode & 0o004:
                    found.append(ServedFile(entry.path, size))
    # The hot file is a typical one, so that the hot load is not the easiest of all.
    typical = sorted(found, key=lambda file: file.bytes)[len(found) // 2] if found else None
    return [typical, *(f for f in found if f != typical)] if typical else []


def _lab(plan: Plan, target: Target, shape: Sequence[ServedFile]) -> Planned:
    if plan.lab is not None:
        return plan.lab(Shape(target.root, [file.bytes for file in shape]))
    if not shape:
        raise UndecidedError(
            f"{target.root}: no readable files to ask for",
            hint="put the site's files there, or use --lab to make some",
        )
    return Planned(Lab(name="none"))


def _lab_files(session: Session, root: str) -> list[ServedFile]:
    """What the lab's disks hold below the root that is served.

    Errors: UndecidedError when none of them is mounted there.
    """
    found = [file for files in session.files.values() for file in files]
    served = [file for file in found if is_below(file.url, root)]
    if not served:
        mounts = ", ".join(_shown(disk.mount) for disk in session.lab.disks)
        raise UndecidedError(
            f"{_shown(root)} is served, and the lab's disks are at {mounts}",
            hint="leave the lab's mount out, or name the root",
        )
    return served


def _url(file: ServedFile, target: Target) -> ServedFile:
    return ServedFile(
        f"{target.url_prefix}/{_escape(os.path.relpath(file.url, target.root))}", file.bytes
    )


def _escape(path: str) -> str:
    return quote_from_bytes(os.fsencode(path))


def _holds(place: str, paths: set[str]) -> bool:
    return any(
        PurePosixPath(place) in (PurePosixPath(path), *PurePosixPath(path).parents)
        for path in paths
    )


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def _differences(lab: Lab, covers: Sequence[str], overlays: Sequence[str]) -> list[str]:
    found = [f"empty and writable instead of the host's: {', '.join(map(_shown, covers))}"]
    if overlays:
        found.append(
            f"seen through an overlay that takes the writes: {', '.join(map(_shown, overlays))}"
        )
    for disk in lab.disks:
        data = [item for item in lab.data if item.disk == disk.name]
        files = sum(len(item.sizes) or item.files for item in data)
        total = sum(sum(item.sizes.values()) or item.files * item.file_bytes for item in data)
        found.append(
            f"{_shown(disk.mount)}: {files} generated files of {total} bytes in all on an "
            f"emulated {disk.class_name} ({describe_disk(disk)})"
        )
    if lab.memory_bytes is not None:
        found.append(f"memory of nginx limited to {lab.memory_bytes} bytes")
    found.append("no network but the loopback link: upstreams and resolvers are out of reach")
    if os.geteuid() != 0:
        found.append("not run as root: workers run as the calling user")
    return found
