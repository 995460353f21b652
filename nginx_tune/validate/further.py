"""The places beside the first root: asked once of both arms, then loaded where they serve alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, TypedDict

from nginx_tune.documents.loadplan import LoadClass
from nginx_tune.experiment.arm import Arm
from nginx_tune.experiment.operations import Question, Response
from nginx_tune.experiment.session import Session
from nginx_tune.experiment.site_files import as_url, shown
from nginx_tune.load.classes import ServedFile
from nginx_tune.validate.apart import Kinds, places_apart
from nginx_tune.validate.asks import Ask
from nginx_tune.validate.entry_answers import (
    judge_own,
    label_of,
    own_questions,
    served_elsewhere,
)
from nginx_tune.validate.lost import Kind, is_loaded, lost_answer, lost_content, moved_content
from nginx_tune.validate.site import MOST_LOOKED_AT, SitePair
from nginx_tune.validate.site_load import MOST_FILES, offered, plan_classes, share_of

ListFiles = Callable[[str], Sequence[ServedFile]]


class Further(NamedTuple):
    """What was found of the other places."""

    classes: dict[str, list[LoadClass]]
    """By the arm's name."""
    asked: list[tuple[str, str, str]]
    """Of what is loaded: the name of its class, the place, and what it is."""
    refused: dict[str, str]
    """Why others are not loaded."""
    lost: dict[str, str]
    """Why the candidate serves some no longer."""
    questions: dict[str, Question]
    """What the baseline is asked of each place, by its label."""
    files: Sequence[ServedFile]
    """The first root's, but for those that are refused to who asks."""
    has_memory: bool
    """Whether the URL without a file is answered as it says, by all that are asked."""


class _Asked(NamedTuple):
    """A place as each arm is asked for it."""

    asks: tuple[Ask, Ask]
    files: list[ServedFile]
    """By their URLs; empty where its own URL is asked."""
    is_loaded: bool
    has_partner: bool
    """Whether the candidate has a place of that name."""

    def url(self, ask: Ask) -> str:
        return self.files[0].url if self.files else ask.url


def find_further(
    session: Session,
    arms: Sequence[Arm],
    site: SitePair,
    *,
    files: Sequence[ServedFile],
    files_of: ListFiles,
    is_there: Callable[[str], bool],
    has_silent: bool,
    asks_both: bool,
) -> Further:
    """Ask both arms once for each place, or the baseline alone for both.

    ``files`` are the first root's, by their URLs; ``files_of`` lists those that the arms see below
    a directory, ``is_there`` says whether they see one of a path.
    """
    files_of = cache(files_of)
    places = _places(site, files_of, asks_both=asks_both)
    asked_first = [own_questions(entry, files) for entry in site.entries]
    surveyed = [
        session.survey(
            arm,
            [
                *asked_first[n].values(),
                *(Question(target=one.asks[n].target, url=one.url(one.asks[n])) for one in places),
            ],
        )
        for n, arm in enumerate(arms[: 2 if asks_both else 1])
    ]
    surveyed = surveyed if asks_both else surveyed * 2
    answers = [found[len(asked) :] for found, asked in zip(surveyed, asked_first, strict=True)]
    baseline, candidate = (
        dict(zip(asked, found, strict=False))
        for found, asked in zip(surveyed, asked_first, strict=True)
    )
    at_entry = judge_own(
        asked_first[1],
        (baseline, candidate),
        files,
        # A configuration that is changed while it runs has its requests judged one by one.
        lambda: served_elsewhere(session, arms, site, files) if asks_both else files,
    )
    kinds = [Kinds(tree) for tree in site.trees]
    questions = {
        one.asks[0].label: Question(target=one.asks[0].target, url=one.url(one.asks[0]))
        for one in places
        if not one.asks[0].is_news
    }
    found = Further({arm.name: [] for arm in arms}, [], questions=questions, **at_entry._asdict())
    for place, *answered in zip(places, *answers, strict=True):
        own = place.asks[0]
        made_of = _made_of(place, site, kinds) if asks_both else None
        if own.is_news and (made_of is None or made_of["after"] != "own"):
            continue  # of a new place for files, or for another server, its own URL tells nothing
        gone = lost_answer(*answered, has_silent=has_silent)
        if not gone and made_of and not own.is_news:
            gone = lost_content(
                *answered,
                **made_of,
                has_partner=place.has_partner,
                has_file=_has_file(place, site, kinds[1], is_there),
            )
        moved = (
            moved_content(*answered, **made_of) if made_of and not gone and not own.is_news else ""
        )
        if gone:
            where = f" ({shown(place.url(own))})" if place.files else ""
            found.lost.setdefault(own.label, gone + where)
        elif moved:
            found.refused[own.label] = moved
        elif place.is_loaded:
            _load(found, place, answered, arms, site)
    return found


def entry_questions(site: SitePair, files: Sequence[ServedFile]) -> dict[str, Question]:
    """Of the baseline's first server, by labels: its files, and its answer from memory."""
    return {label_of(one): one for one in own_questions(site.entries[0], files).values()}


def _places(site: SitePair, files_of: ListFiles, *, asks_both: bool) -> list[_Asked]:
    pairs = [*site.asks, *site.looked_at]
    places = [
        _Asked(pair, _files_of(pair, files_of), number < len(site.asks), pair[0] is not pair[1])
        for number, pair in enumerate(pairs)
    ]
    if asks_both and site.trees[0] is not site.trees[1] and site.load.asks != "files":
        apart = places_apart(site.trees, site.successors, files_of)
        places += [_Asked((one.ask, one.ask), [one.file], False, True)
                   for one in apart[:MOST_LOOKED_AT]]  # fmt: skip
    return places


def _files_of(pair: tuple[Ask, Ask], files_of: ListFiles) -> list[ServedFile]:
    """The baseline's, which its clients ask for; the candidate's where it has none."""
    for ask in pair:
        if ask.root is not None and (found := files_of(ask.root)[:MOST_FILES]):
            return [as_url(file, root=ask.root, url_prefix=ask.url_prefix) for file in found]
    return []


class _MadeOf(TypedDict):
    before: Kind
    after: Kind


def _made_of(place: _Asked, site: SitePair, kinds: Sequence[Kinds]) -> _MadeOf | None:
    """What the answers of both arms are made of, where the same clients get them."""
    own, other = place.asks
    there = None if own.block is None else site.successors.servers.get(own.block)
    if own.block is None or there is None:
        return None
    return {
        "before": kinds[0].of(own.block, place.url(own)),
        "after": kinds[1].of(there, place.url(other)),
    }


def _has_file(
    place: _Asked, site: SitePair, candidate: Kinds, is_there: Callable[[str], bool]
) -> bool:
    """Whether what the candidate has for a file of the baseline is there, as far as is known."""
    block = place.asks[0].block
    there = None if block is None else site.successors.servers.get(block)
    if not place.files or there is None:
        return True
    path = candidate.file_at(there, place.files[0].url)
    return path is None or is_there(path)


def _load(
    found: Further,
    place: _Asked,
    answered: Sequence[Response],
    arms: Sequence[Arm],
    site: SitePair,
) -> None:
    own = place.asks[0]
    is_empty = own.root is not None and not place.files
    status, why = is_loaded(answered, are_files=bool(place.files), is_empty=is_empty)
    if status is None:
        found.refused[own.label] = f"{why}{_of_no_files(own) if is_empty else ''}"
        return
    found.asked.append((own.name, own.label, f"{_said(place)}, {status}"))
    share = share_of(site.load, own.server, own.location)
    rate = None if share is None else share * (site.load.rate_per_second or 0.0)
    protocols = offered(place.asks, site.load.protocols)
    for arm, ask in zip(arms, place.asks, strict=True):
        found.classes[arm.name] += plan_classes(
            ask, protocols, status=status, files=place.files, rate_per_second=rate
        )


def _said(place: _Asked) -> str:
    own = place.asks[0]
    if place.files:
        return "files"
    return f"{own.url}{_of_no_files(own)}"


def _of_no_files(own: Ask) -> str:
    return "" if own.root is None else f", as {shown(own.root)} has no files to ask for"
