"""What a validation asks of both configurations, settled before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.experiment import Protocol, SiteLoad
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.scenario import ScenarioClass
from nginx_tune.errors import ConfigurationError, UndecidedError, UsageError
from nginx_tune.experiment.entry import EntryPoint
from nginx_tune.experiment.site_files import shown
from nginx_tune.experiment.validate.asks import Ask, common_asks, plan_asks
from nginx_tune.experiment.validate.entries import NO_FILES_HINT, SiteFiles, plan_entries
from nginx_tune.experiment.validate.lost import lost_listeners
from nginx_tune.experiment.validate.site_load import (
    MOST,
    class_names,
    share_of,
    wanted_protocols,
    with_rest,
)
from nginx_tune.experiment.validate.successors import Successors, find_successors
from nginx_tune.measure.proof.gates import check_expressions
from nginx_tune.measure.proof.objective import parse_objective

MOST_LOOKED_AT = 200
"""Places that are asked once: one that hangs takes seconds."""

_NO_CLASSES = frozenset({"server", "generator", "total"})
"""What metrics begin with that are of no class."""


class SitePair(NamedTuple):
    """Both arms' trees and what is asked of them, the baseline first."""

    trees: tuple[ConfTree, ConfTree]
    entries: tuple[EntryPoint, EntryPoint]
    load: SiteLoad
    classes: list[ScenarioClass]
    """Of the files of the first root, and of what needs no file."""
    asks: list[tuple[Ask, Ask]]
    """What else is asked, of each arm."""
    looked_at: list[tuple[Ask, Ask]]
    """What is asked once, to see that the candidate serves it too."""
    lost: list[str]
    """Where the baseline is reached and the candidate is not."""
    successors: Successors
    """Which server of the candidate answers in the place of each of the baseline's."""
    left_out: dict[str, str]
    """What is not asked, and why."""
    primary_metric: str
    is_primary_given: bool
    """Whether it was asked for."""
    builds: tuple[Nginx, Nginx]
    """What each is run by."""
    planned: Mapping[str, bytes]
    """Files of the candidate that are the baseline's with other bytes, by their paths."""
    without_files: list[str]
    """The baseline's directories, where none of them has a file to ask for."""

    @property
    def entry(self) -> EntryPoint:
        """The candidate's."""
        return self.entries[1]


def _require_protocols(tree: ConfTree, entry: EntryPoint, wanted: Sequence[Protocol]) -> None:
    """Errors: UndecidedError where the server that is asked does not speak what is wanted."""
    for one in wanted:
        if entry.spoken.at(one) is None:
            target = entry.target
            place = target.unix or f"{target.address} port {target.port}"
            said = "HTTP/2 over TLS" if one == "2" else "HTTP/3"
            raise UndecidedError(
                f"{shown(tree.path)}: the server at {shown(place)} is asked, and does not speak "
                f"{said}",
                hint=f"leave --http{one} out, or give it a listener that does, in both "
                "configurations",
            )


def read_site(
    baseline: ConfTree,
    candidate: ConfTree,
    load: SiteLoad,
    *,
    files: SiteFiles,
    builds: tuple[Nginx, Nginx],
    primary_metric: str | None,
    requires: Sequence[str],
    objectives: Sequence[str],
    accept_worse: Sequence[str] = (),
    planned: Mapping[str, bytes] | None = None,
) -> SitePair:
    """What both arms are asked.

    Errors: ConfigurationError for a tree that could not be parsed, UndecidedError when there is
            nothing to ask, UsageError for a gate that names an unknown metric.
    """
    wanted = wanted_protocols(load)
    for tree in (baseline, candidate):
        _require_whole(tree)
    successors = find_successors(baseline, candidate)
    found = plan_entries(
        (baseline, candidate),
        successors,
        files,
        error_logs=(builds[0].error_log_path, builds[1].error_log_path),
        protocols=wanted,
    )
    entries = found.pair
    for tree, entry in zip((baseline, candidate), entries, strict=True):
        _require_protocols(tree, entry, wanted)
    if found.without_files and load.asks == "files":
        raise without_files(found.without_files)
    asks, looked_at, left_out = _asks((baseline, candidate), entries, load, successors)
    elsewhere = [share_of(load, one.server, one.location) or 0.0 for one, _ in asks]
    classes = [
        item
        for item in with_rest(load.classes, 1.0 - math.fsum(elsewhere))
        if all(_can_ask(item, one) for one in entries)
    ]
    named = (name for pair in asks for name in class_names(pair, load.protocols))
    names = [*(item.name for item in classes), *named]
    if not names and found.without_files:
        raise without_files(found.without_files)
    if not names:
        raise UndecidedError(f"{candidate.path}: {_why_nothing(left_out)}")
    metric = primary_metric or load.primary_metric or f"{names[0]}.mean"
    if primary_metric is None and metric.partition(".")[0] not in names:
        metric = f"{names[0]}.mean"
    if metric in accept_worse:
        raise UsageError(
            f"{metric} decides, so it cannot be accepted as worse",
            hint="name another metric with --primary",
        )
    check_expressions([*requires, *(f"{name} >= 0" for name in (metric, *accept_worse))], names)
    if objectives:
        parse_objective(objectives, names)
    return SitePair(
        (baseline, candidate),
        entries,
        load,
        classes,
        asks,
        looked_at,
        [*lost_listeners(baseline, candidate), *successors.lost],
        successors,
        left_out,
        metric,
        primary_metric is not None,
        builds,
        planned or {},
        found.without_files,
    )


def primary_of(site: SitePair, loaded: Sequence[str], paced: Sequence[str] = ()) -> str:
    """The metric that decides, of the classes that are loaded after all.

    Of those that ask at a fixed rate (``paced``) the rate says nothing, and the mean does.
    Errors: UndecidedError where another was asked for.
    """
    head = site.primary_metric.partition(".")[0]
    if head in paced and not site.is_primary_given:
        return f"{head}.mean"
    if head in loaded or head in _NO_CLASSES:
        return site.primary_metric
    if site.is_primary_given:
        raise UndecidedError(
            f"{head} is not loaded, so {site.primary_metric} decides nothing",
            hint=f"name a metric of {', '.join(loaded)} with --primary",
        )
    return f"{loaded[0]}.mean"


def without_files(roots: Sequence[str]) -> UndecidedError:
    """That nothing lies in the directories of a site that serves files alone."""
    return UndecidedError(
        f"{', '.join(map(shown, roots))}: no readable files to ask for", hint=NO_FILES_HINT
    )


def _require_whole(tree: ConfTree) -> None:
    """Errors: ConfigurationError for a tree of which something is missing."""
    if not tree.complete:
        first = tree.unparsed[0]
        raise ConfigurationError(first.reason, file=first.file, line=first.line or 0)
    # Else an empty file would be one that merely has no server.
    if any(source.mark for source, _ in tree.parsed):
        raise ConfigurationError("it begins with a byte order mark", file=tree.path, line=1)
    if tree.main.first("events") is None:
        raise ConfigurationError('it has no "events" section', file=tree.path, line=1)


def _can_ask(item: ScenarioClass, entry: EntryPoint) -> bool:
    return bool(entry.memory_url if item.source == "memory" else entry.root)


def _asks(
    trees: tuple[ConfTree, ConfTree],
    entries: tuple[EntryPoint, EntryPoint],
    load: SiteLoad,
    successors: Successors,
) -> tuple[list[tuple[Ask, Ask]], list[tuple[Ask, Ask]], dict[str, str]]:
    if load.asks == "files":
        return [], [], {}
    own = [plan_asks(tree, entry) for tree, entry in zip(trees, entries, strict=True)]
    asks, alone, left_out = common_asks(own[0], own[1], successors)
    if load.asks == "locations":
        told = {(share.server, share.location) for share in load.locations}
        asks = [(one, other) for one, other in asks if (one.server, one.location) in told]
        labels = {" ".join(filter(None, place)) for place in told}
        left_out = {label: why for label, why in left_out.items() if label in labels}
    left_out |= {one.label: f"more than {MOST} others" for one, _ in asks[MOST:]}
    looked_at = [*asks[MOST:], *alone][:MOST_LOOKED_AT] if trees[0] is not trees[1] else []
    return asks[:MOST], looked_at, left_out


def _why_nothing(left_out: dict[str, str]) -> str:
    if not left_out:
        return "no server of it answers by itself, so there is nothing to ask"
    said = "; ".join(f"{label}: {why}" for label, why in left_out.items())
    return f"nothing of it can be asked: {said}"
