"""Where the load enters each configuration: the files that both serve; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.experiment import Protocol
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.entry import EntryPoint, FilePlace, file_places, plan_entry
from nginx_tune.experiment.site_files import shown
from nginx_tune.experiment.validate.successors import Successors

NO_FILES_HINT = "put the site's files there, or use --lab to make some"


class SiteFiles(NamedTuple):
    """What is known of files before anything is started."""

    has_files: Callable[[str], bool]
    """Whether a directory has any that can be asked for."""
    makes_files: bool
    """Whether a lab makes those of the root that is chosen."""


class Entries(NamedTuple):
    """Of the baseline and the candidate, at the same files."""

    pair: tuple[EntryPoint, EntryPoint]
    without_files: list[str]
    """Directories of the baseline in which there is nothing to ask for, where none has anything."""


def plan_entries(
    trees: tuple[ConfTree, ConfTree],
    successors: Successors,
    files: SiteFiles,
    *,
    error_logs: tuple[str | None, str | None],
    protocols: Sequence[Protocol],
) -> Entries:
    """The first place with files that both serve by the same URLs; without files where none is.

    A directory without files (of challenges, of uploads that are to come) is no such place, and
    what one of them alone has is not compared here. Where the lab makes the files, a directory is
    one all the same, after those that have some.
    Errors: UndecidedError when both have files, and none in common, or when none can be asked.
    """
    own = [file_places(tree, protocols=protocols) for tree in trees]
    full = [[one for one in places if files.has_files(one.root)] for places in own]
    taken = full
    if files.makes_files:
        taken = [[*some, *places] for some, places in zip(full, own, strict=True)]
    chosen = _in_common(taken, successors)
    if chosen is None and all(taken):
        said = [f"{shown(one[0].root)} at {one[0].url_prefix or '/'}" for one in taken]
        raise UndecidedError(
            f"the two configurations serve different sites: {said[0]} and {said[1]}",
            hint="compare two configurations of one site",
        )
    first = plan_entry(
        trees[0],
        chosen and chosen[0],
        default_error_log=error_logs[0],
        protocols=protocols,
    )
    second = plan_entry(
        trees[1],
        chosen and chosen[1],
        default_error_log=error_logs[1],
        protocols=protocols,
        server=successors.servers.get(first.server),
    )
    none = [] if chosen or any(full) else list(dict.fromkeys(one.root for one in own[0]))
    return Entries(_alike(first, second), none)


def _in_common(
    places: Sequence[Sequence[FilePlace]], successors: Successors
) -> tuple[FilePlace, FilePlace] | None:
    """By the baseline's order, of the server that answers in its place before another's."""
    there: dict[tuple[str, str], list[FilePlace]] = {}
    for other in places[1]:
        there.setdefault((other.url_prefix, other.root), []).append(other)
    pairs = [
        (number, one, other)
        for number, one in enumerate(places[0])
        for other in there.get((one.url_prefix, one.root), ())
    ]
    if not pairs:
        return None
    _, one, other = min(
        pairs,
        key=lambda pair: (
            pair[1].lacks or pair[2].lacks,
            pair[0],
            successors.servers.get(pair[1].server) is not pair[2].server,
        ),
    )
    return one, other


def _alike(baseline: EntryPoint, candidate: EntryPoint) -> tuple[EntryPoint, EntryPoint]:
    """Both arms' entries, with a URL without a file where it is the same one.

    Else each arm's is asked as any other place is.
    """
    if baseline.memory_url == candidate.memory_url:
        return baseline, candidate
    return baseline._replace(memory_url=None), candidate._replace(memory_url=None)
