"""What the first server answers who asks from here: its files, and its URL without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from nginx_tune.experiment.entry import EntryPoint
from nginx_tune.experiment.operations import Question, Response
from nginx_tune.experiment.validate.lost import is_loaded, lost_answer
from nginx_tune.measure.load.classes import STATUSES_OF_MEMORY, ServedFile

Own = Literal["files", "memory"]
OwnAnswers = Mapping[Own, Response]


class MemoryAnswers(NamedTuple):
    """Whether the URL without a file is loaded."""

    has_memory: bool
    """Whether it is answered as its line says, by all that are asked."""
    refused: dict[str, str]
    """Why it is not."""
    lost: dict[str, str]
    """Why the candidate serves it no longer."""


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


def judge_memory(
    questions: Mapping[Own, Question], answered: tuple[OwnAnswers, OwnAnswers]
) -> MemoryAnswers:
    """By what the baseline and the candidate answer for the URL without a file."""
    found = MemoryAnswers(False, {}, {})
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
