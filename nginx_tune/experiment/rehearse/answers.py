"""What the new configuration answers where the old one is asked: both started alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nginx_tune.documents.units import plural
from nginx_tune.errors import NginxTuneError
from nginx_tune.experiment.operations import Response
from nginx_tune.experiment.validate.client_limits import ClientLimits
from nginx_tune.experiment.validate.lost import lost_answer
from nginx_tune.experiment.validate.stage import Stage

_MOST_AGAIN = 12
"""Places that a limit refused and that are asked again: each needs a start of nginx."""


class ComparedAnswers(NamedTuple):
    """Places by what has become of them, for people."""

    worse: list[str]
    other: list[str]
    notes: list[str]


def compare_answers(stage: Stage, limits: ClientLimits) -> ComparedAnswers:
    """Ask each place of both: of the old one twice, since some answer otherwise each time.

    What a limit for each client refused is asked again of a new one that has nothing counted.
    """
    questions = list(stage.questions.values())
    old, new = stage.experiment.arms
    try:
        first = stage.session.survey(old, [*questions, *questions])
        after = stage.session.survey(new, questions)
        refused = [
            at
            for at, question in enumerate(questions)
            if after[at].status in limits.statuses(question.target)
        ]
        for at in refused[:_MOST_AGAIN]:
            after[at] = stage.session.survey(new, [questions[at]])[0]
    except NginxTuneError as error:  # what keeps NEW from starting is told by the change itself
        return ComparedAnswers([], [], [f"NEW's answers were not compared: {error.message}"])
    unknown = set(refused[_MOST_AGAIN:])
    twice = zip(first[: len(questions)], first[len(questions) :], strict=True)
    rows = enumerate(zip(stage.questions, twice, after, strict=True))
    found = compared((row for at, row in rows if at not in unknown), has_silent=stage.has_silent)
    if unknown:
        found.notes.append(
            f"{plural(len(unknown), 'place')} more that a limit for each client refused in NEW: "
            "not asked again, so whether they are served is not known"
        )
    return found


def compared(
    found: Iterable[tuple[str, tuple[Response, Response], Response]], *, has_silent: bool
) -> ComparedAnswers:
    """By label: what the old one answered, twice, and what the new one does."""
    result = ComparedAnswers([], [], [])
    for label, (first, second), after in found:
        if lost_answer(first, after, has_silent=has_silent):
            now = after.fault if after.status is None else str(after.status)
            result.worse.append(f"{label}: OLD answers {first.status}, NEW {now}")
        elif first == second and (said := _other(first, after)):
            result.other.append(f"{label}: {said}")
    return result


def _other(old: Response, new: Response) -> str:
    """What is other; of an error and of what was not asked nothing is said."""
    is_served = old.status is not None and old.status < 400  # noqa: PLR2004
    if not is_served or new.status is None or new.status >= 400:  # noqa: PLR2004
        return ""
    if old.status != new.status:
        return f"OLD answers {old.status}, NEW {new.status}"
    if None not in (old.length_bytes, new.length_bytes) and old.length_bytes != new.length_bytes:
        return f"{old.length_bytes} bytes from OLD, {new.length_bytes} from NEW"
    if old.digest and new.digest and old.digest != new.digest:
        return "other bytes than before"
    return ""
