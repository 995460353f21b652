"""The site of a validation: entry points, files and requests of both configurations.

Everything here is derived from the configurations, before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.scenario import MultiplexedVersion, ScenarioClass, SiteLoad
from nginx_tune.errors import ConfigurationError, UndecidedError, UsageError
from nginx_tune.experiment.session import shown
from nginx_tune.experiment.target import EntryPoint, FilePlace, file_places, plan_entry
from nginx_tune.experiment.validate.site_load import (
    MOST,
    class_names,
    protocols_of,
    share_of,
    with_rest,
)
from nginx_tune.experiment.validate.site_requests import (
    MADE_UP,
    SiteRequest,
    common_requests,
    plan_requests,
)
from nginx_tune.experiment.validate.successors import Successors, find_successors, lost_listeners
from nginx_tune.experiment.validate.touched import TouchedPlaces
from nginx_tune.measure.proof.gates import check_expressions
from nginx_tune.measure.proof.objective import parse_objective

MOST_LOOKED_AT = 200
"""Bound on places that are requested only once, since a place that hangs takes seconds."""
_MOST_WEIGHED = 40
"""Bound on the roots whose files are added up."""
NO_CLASSES = frozenset({"server", "generator", "total"})
"""First words of metrics that do not name a class."""


class SitePair(NamedTuple):
    """Both variants' trees, entry points and requests, the baseline's first."""

    trees: tuple[ConfTree, ConfTree]
    entries: tuple[EntryPoint, EntryPoint]
    load: SiteLoad
    classes: list[ScenarioClass]
    """Classes at the entry point: files of the first root, and the URL without a file."""
    requests: list[tuple[SiteRequest, SiteRequest]]
    """Requests for the other places to load."""
    looked_at: list[tuple[SiteRequest, SiteRequest]]
    """Requests made only once, to check that the candidate serves those places too."""
    lost: list[str]
    """Addresses and names at which only the baseline answers."""
    successors: Successors
    """For each server of the baseline, the candidate's server in its place."""
    left_out: dict[str, str]
    """The places that are not requested, with the reasons."""
    primary_metric: str
    is_primary_given: bool
    """True if the user named the primary metric."""
    builds: tuple[Nginx, Nginx]
    planned: Mapping[str, bytes]
    """The bytes of the candidate's files that replace the baseline's, by path."""
    without_files: list[str]
    """The baseline's directories, if none of them has any file."""
    touched: TouchedPlaces

    @property
    def entry(self) -> EntryPoint:
        """The candidate's entry point."""
        return self.entries[1]


def _require_protocols(
    tree: ConfTree, entry: EntryPoint, protocols: Sequence[MultiplexedVersion]
) -> None:
    """Raise UndecidedError if the server at the entry point lacks a requested protocol."""
    for protocol in protocols:
        if entry.spoken.at(protocol) is None:
            target = entry.target
            place = target.unix or f"{target.address} port {target.port}"
            name = "HTTP/2 over TLS" if protocol == "2" else "HTTP/3"
            raise UndecidedError(
                f"{shown(tree.path)}: the server at {shown(place)} does not offer {name}",
                hint=f"leave out --http{protocol}, or add such a listener to that server in both "
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
    """The site of both variants, with the load and the primary metric.

    Errors: ConfigurationError for a tree that cannot be parsed, UndecidedError if there is nothing
            to load, UsageError for a gate on an unknown metric.
    """
    protocols = protocols_of(load)
    for tree in (baseline, candidate):
        _require_whole(tree)
    successors = find_successors(baseline, candidate)
    touched = TouchedPlaces((baseline, candidate), successors)
    found = plan_entries(
        (baseline, candidate),
        successors,
        touched,
        files,
        error_logs=(builds[0].error_log_path, builds[1].error_log_path),
        protocols=protocols,
    )
    entries = found.pair
    for tree, entry in zip((baseline, candidate), entries, strict=True):
        _require_protocols(tree, entry, protocols)
    if found.without_files and load.asks == "files":
        raise without_files(found.without_files)
    requests, looked_at, left_out = _requests((baseline, candidate), entries, load, successors)
    elsewhere = [share_of(load, request.server, request.location) or 0.0 for request, _ in requests]
    classes = [
        item
        for item in with_rest(load.classes, 1.0 - math.fsum(elsewhere))
        if all(_can_ask(item, entry) for entry in entries)
    ]
    named = (name for pair in requests for name in class_names(pair, load.protocols))
    names = [*(item.name for item in classes), *named]
    if not names and found.without_files:
        raise without_files(found.without_files)
    if not names:
        raise UndecidedError(f"{candidate.path}: {_why_nothing(left_out)}")
    metric = primary_metric or _metric_of(load, names)
    _check_metrics(metric, names, requires, objectives, accept_worse=accept_worse)
    return SitePair(
        (baseline, candidate),
        entries,
        load,
        classes,
        requests,
        looked_at,
        [*lost_listeners(baseline, candidate), *successors.lost],
        successors,
        left_out,
        metric,
        primary_metric is not None,
        builds,
        planned or {},
        found.without_files,
        touched,
    )


def _metric_of(load: SiteLoad, names: Sequence[str]) -> str:
    """The default primary metric: the load's own, if its class is loaded."""
    own = load.primary_metric
    return own if own and own.partition(".")[0] in names else f"{names[0]}.mean"


def _check_metrics(
    primary: str,
    names: Sequence[str],
    requires: Sequence[str],
    objectives: Sequence[str],
    *,
    accept_worse: Sequence[str],
) -> None:
    """Raise UsageError for an unknown metric, or a gate or objective that cannot be judged."""
    if primary in accept_worse:
        raise UsageError(
            f"{primary} is the primary metric, so it cannot be accepted as worse",
            hint="name another metric with --primary",
        )
    check_expressions([*requires, *(f"{name} >= 0" for name in (primary, *accept_worse))], names)
    if objectives:
        parse_objective(objectives, names)


def primary_of(
    site: SitePair, loaded: Sequence[str], paced: Sequence[str], reached: Sequence[str]
) -> str:
    """The primary metric, chosen among the classes that are really loaded.

    A class that reaches the change (``reached``) is preferred. For classes with a fixed rate
    (``paced``), it is the mean and not the rate.
    Errors: UndecidedError if the user named a metric of a class that is not loaded.
    """
    head = site.primary_metric.partition(".")[0]
    if reached and head not in reached and not site.is_primary_given:
        return f"{next(name for name in loaded if name in reached)}.mean"
    if head in paced and not site.is_primary_given:
        return f"{head}.mean"
    if head in loaded or head in NO_CLASSES:
        return site.primary_metric
    if site.is_primary_given:
        raise UndecidedError(
            f"class {head} gets no load, so {site.primary_metric} cannot decide",
            hint=f"name a metric of {', '.join(loaded)} with --primary",
        )
    return f"{loaded[0]}.mean"


def without_files(roots: Sequence[str]) -> UndecidedError:
    """The error for a site that serves only files, but whose directories are empty."""
    return UndecidedError(
        f"{', '.join(map(shown, roots))}: no readable files to load", hint=NO_FILES_HINT
    )


def _require_whole(tree: ConfTree) -> None:
    """Raise ConfigurationError for a tree with which nginx would not start."""
    for broken in tree.unparsed:
        raise ConfigurationError(broken.reason, file=broken.file, line=broken.line or 0)
    # An empty file, say, is no configuration at all, not just one without a server.
    if any(source.mark for source, _ in tree.parsed):
        raise ConfigurationError("it begins with a byte order mark", file=tree.path, line=1)
    if tree.main.first("events") is None:
        raise ConfigurationError('it has no "events" section', file=tree.path, line=1)


def _can_ask(item: ScenarioClass, entry: EntryPoint) -> bool:
    return bool(entry.memory_url if item.source == "memory" else entry.root)


def _requests(
    trees: tuple[ConfTree, ConfTree],
    entries: tuple[EntryPoint, EntryPoint],
    load: SiteLoad,
    successors: Successors,
) -> tuple[
    list[tuple[SiteRequest, SiteRequest]], list[tuple[SiteRequest, SiteRequest]], dict[str, str]
]:
    if load.asks == "files":
        return [], [], {}
    own = [plan_requests(tree, entry) for tree, entry in zip(trees, entries, strict=True)]
    requests, alone, left_out = common_requests(own[0], own[1], successors)
    if load.asks == "locations":
        stated = {(share.server, share.location) for share in load.locations}
        requests = [
            (request, other)
            for request, other in requests
            if (request.server, request.location) in stated
        ]
        labels = {" ".join(filter(None, place)) for place in stated}
        left_out = {label: why for label, why in left_out.items() if label in labels}
    left_out |= {
        request.label: f"the load takes the first {MOST} places" for request, _ in requests[MOST:]
    }
    looked_at = [*requests[MOST:], *alone][:MOST_LOOKED_AT] if trees[0] is not trees[1] else []
    return requests[:MOST], looked_at, left_out


def _why_nothing(left_out: dict[str, str]) -> str:
    if not left_out:
        return "no server answers by itself, so there is nothing to load"
    reasons = "; ".join(f"{label}: {why}" for label, why in left_out.items())
    return f"nothing can be loaded: {reasons}"


NO_FILES_HINT = "put the site's files there, or use --lab to make some"


class SiteFiles(NamedTuple):
    """Knowledge of the files before anything is started."""

    has_files: Callable[[str], bool]
    """True for a directory with files to load."""
    bytes_below: Callable[[str], int]
    """The size of a directory's files."""
    makes_files: bool
    """True if a lab makes the files of the chosen root."""


class Entries(NamedTuple):
    """The entry points of the baseline and the candidate, at the same files."""

    pair: tuple[EntryPoint, EntryPoint]
    without_files: list[str]
    """The baseline's directories, if none of them has any file."""


def plan_entries(
    trees: tuple[ConfTree, ConfTree],
    successors: Successors,
    touched: TouchedPlaces,
    files: SiteFiles,
    *,
    error_logs: tuple[str | None, str | None],
    protocols: Sequence[MultiplexedVersion],
) -> Entries:
    """The entry points at the first place with files that both serve by the same URLs.

    Places that the change touches come first, the one with the most bytes before the others.

    Empty directories (ACME challenges, future uploads) do not count, except, as a last choice, if
    the lab makes the files. If neither variant has files, the entry points have none.
    Errors: UndecidedError if both have files but no common ones, or if no server is reachable.
    """
    own = [file_places(tree, protocols=protocols) for tree in trees]
    full = [[place for place in places if files.has_files(place.root)] for places in own]
    taken = full
    if files.makes_files:
        taken = [[*some, *places] for some, places in zip(full, own, strict=True)]
    chosen = _in_common(taken, successors, touched, files.bytes_below)
    if chosen is None and all(taken):
        own_sites = [f"{shown(pair[0].root)} at {pair[0].url_prefix or '/'}" for pair in taken]
        raise UndecidedError(
            f"the two configurations serve different sites: {' and '.join(own_sites)}",
            hint="compare two configurations of one site",
        )
    first = plan_entry(
        trees[0], chosen and chosen[0], default_error_log=error_logs[0], protocols=protocols
    )
    second = plan_entry(
        trees[1],
        chosen and chosen[1],
        default_error_log=error_logs[1],
        protocols=protocols,
        server=successors.servers.get(first.server),
    )
    none = [] if chosen or any(full) else list(dict.fromkeys(place.root for place in own[0]))
    return Entries(_alike(first, second), none)


def _in_common(
    places: Sequence[Sequence[FilePlace]],
    successors: Successors,
    touched: TouchedPlaces,
    bytes_below: Callable[[str], int],
) -> tuple[FilePlace, FilePlace] | None:
    """The first place of the baseline that the candidate has too.

    A place that the change touches is preferred, of these the one with the most bytes, and a place
    in the successor of its server. Without a change, the order of the places decides.
    """
    there: dict[tuple[str, str], list[FilePlace]] = {}
    for other in places[1]:
        there.setdefault((other.url_prefix, other.root), []).append(other)
    pairs = [
        (number, place, other)
        for number, place in enumerate(places[0])
        for other in there.get((place.url_prefix, place.root), ())
    ]
    if not pairs:
        return None
    kept: dict[tuple[bool, bool], list[tuple[int, FilePlace, FilePlace]]] = {}
    for number, one, other in pairs:
        is_untouched = not touched.take(one.server, [f"{one.url_prefix.rstrip('/')}/{MADE_UP}"])
        kept.setdefault((one.lacks or other.lacks, is_untouched), []).append((number, one, other))
    best = kept[min(kept)]
    roots = list(dict.fromkeys(one.root for _, one, _ in best))[:_MOST_WEIGHED]
    is_weighed = touched.has_change and len(roots) > 1
    sizes = {root: bytes_below(root) for root in roots} if is_weighed else {}
    _, one, other = min(
        best,
        key=lambda pair: (
            -sizes.get(pair[1].root, 0),
            pair[0],
            successors.servers.get(pair[1].server) is not pair[2].server,
        ),
    )
    return one, other


def _alike(baseline: EntryPoint, candidate: EntryPoint) -> tuple[EntryPoint, EntryPoint]:
    """Both entry points, with the URL without a file only if it is the same.

    Otherwise each variant's URL is requested like any other place.
    """
    if baseline.memory_url == candidate.memory_url:
        return baseline, candidate
    return baseline._replace(memory_url=None), candidate._replace(memory_url=None)
