"""What the first server answers who asks from here: its files, and its URL without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.experiment.arm import Arm
from nginx_tune.experiment.entry import EntryPoint
from nginx_tune.experiment.operations import Question, Response
from nginx_tune.experiment.session import Session
from nginx_tune.experiment.unserved import said_of
from nginx_tune.load.classes import STATUSES_OF_MEMORY, ServedFile
from nginx_tune.validate.lost import is_loaded, lost_answer
from nginx_tune.validate.site import SitePair

Own = Literal["files", "memory"]
OwnAnswers = Mapping[Own, Response]

_OK = 200
_MOST_TRIED = 16
"""Locations that are tried where the one of the first file refuses it."""


class EntryAnswers(NamedTuple):
    """What of the first server is loaded."""

    files: Sequence[ServedFile]
    """Those that are not refused to who asks."""
    has_memory: bool
    """Whether the URL without a file is answered as it says, by all that are asked."""
    refused: dict[str, str]
    """Why something is not loaded."""
    lost: dict[str, str]
    """Why the candidate serves something no longer."""


def own_questions(entry: EntryPoint, files: Sequence[ServedFile]) -> dict[Own, Question]:
    """The file that is loaded most, and the URL without a file."""
    urls: dict[Own, str | None] = {
        "files": files[0].url if files else None,
        "memory": entry.memory_url,
    }
    return {own: Question(target=entry.target, url=url) for own, url in urls.items() if url}


def label_of(question: Question) -> str:
    """As people know it."""
    return f"{question.target.host} {question.url}"


def judge_own(
    questions: Mapping[Own, Question],
    answered: tuple[OwnAnswers, OwnAnswers],
    files: Sequence[ServedFile],
    otherwise: Callable[[], Sequence[ServedFile]],
) -> EntryAnswers:
    """By what the baseline and the candidate answer.

    Files that one of them alone refuses are loaded: what that does to clients is to be seen.
    ``otherwise`` finds those that are served where both refuse the first.
    """
    found = EntryAnswers(files, False, {}, {})
    if (asked := questions.get("files")) is not None:
        statuses = [one["files"].status for one in answered]
        if None not in statuses and _OK not in statuses:
            found = found._replace(files=otherwise())
            if found.files is not files:
                found.refused[label_of(asked)] = said_of(statuses[0])
    asked = questions.get("memory")
    if asked is None or any("memory" not in one for one in answered):
        return found
    baseline, candidate = (one["memory"] for one in answered)
    if {baseline.status, candidate.status} <= set(STATUSES_OF_MEMORY):
        return found._replace(has_memory=True)
    if baseline.status in STATUSES_OF_MEMORY and (
        gone := lost_answer(baseline, candidate, has_silent=False)
    ):
        found.lost[label_of(asked)] = gone
    status, why = is_loaded((baseline, candidate))
    found.refused[label_of(asked)] = why or f"answers {status}, and its line says 200 or 204"
    return found


def served_elsewhere(
    session: Session,
    arms: Sequence[Arm],
    site: SitePair,
    files: Sequence[ServedFile],
) -> list[ServedFile]:
    """The files that other locations than that of the first serve, in either arm.

    One of each location is asked for; what a location does is done to all of its files.
    """
    matchers = [LocationMatcher(tree) for tree in site.trees]
    found: dict[tuple[Directive | None, ...], list[ServedFile]] = {}
    for file in files:
        places = (
            matcher.location_of(entry.server, file.url)
            for matcher, entry in zip(matchers, site.entries, strict=True)
        )
        found.setdefault(tuple(places), []).append(file)
    groups = list(found.values())[1:][:_MOST_TRIED]
    if not groups:
        return []
    surveyed = [
        session.survey(arm, [Question(target=entry.target, url=group[0].url) for group in groups])
        for arm, entry in zip(arms, site.entries, strict=True)
    ]
    return [
        file
        for group, *answers in zip(groups, *surveyed, strict=True)
        if any(one.status == _OK for one in answers)
        for file in group
    ]
