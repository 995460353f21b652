"""Answers to files below a root, and to the first server's URL without one, learnt by asking; pure.

A file below a root need not be what its URL is answered with: a location may hand it to an
application, refuse it, send it elsewhere or rewrite its body. What a location does is done to all
of its files that end alike, so a few of each are asked for. Where those differ all are.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.documents.loadplan import LoadClass
from nginx_tune.experiment.operations import Question, Response, answer_clause
from nginx_tune.experiment.target import EntryPoint
from nginx_tune.experiment.validate.successors import is_loaded, lost_answer
from nginx_tune.measure.load.classes import STATUSES_OF_MEMORY, ServedFile
from nginx_tune.nginx.lab.stub_server import BODY_BYTES

Answers = Mapping[str, tuple[Response, Response]]
"""The answers of the baseline and the candidate, by the URL."""
_OK = 200
_EACH = 3
_MOST_ENDINGS = 8
"""The most endings of one location: rarer ones are taken together."""
_MOST_BATCHES = 60
_MOST_AGAIN = 300
"""Files of one batch that are all asked for, where some of them are answered otherwise."""
_STUB_DIGEST = hashlib.sha256(b"x" * BODY_BYTES).hexdigest()


class Batch(NamedTuple):
    """Files that end alike and fall into the same location of either variant."""

    location: Directive | None
    """The baseline's."""
    files: list[ServedFile]
    """By their URLs."""

    @property
    def sample(self) -> list[ServedFile]:
        """The files that are asked for: the first, the last, and one between."""
        last = len(self.files) - 1
        return [self.files[at] for at in sorted({0, last // 2, last})[:_EACH]]


class LearntFiles(NamedTuple):
    """The files of a batch that are loaded."""

    files: list[ServedFile]
    """With the length that they are answered with."""
    refused: dict[str, str]
    """The reasons to leave others out, by the first of their URLs."""
    unsettled: list[ServedFile]
    """The files to be asked for before that can be said."""


def batches_of(
    files: Sequence[ServedFile],
    servers: tuple[Directive, Directive],
    matchers: Sequence[LocationMatcher],
) -> list[Batch]:
    """The files of a root by what answers them; ``servers`` are the variants'.

    Batches beyond what can be asked for in time are taken together.
    """
    found: dict[tuple[Directive | None, Directive | None], list[ServedFile]] = {}
    for file in files:
        own, there = (
            matcher.location_of(server, file.url)
            for matcher, server in zip(matchers, servers, strict=True)
        )
        found.setdefault((own, there), []).append(file)
    batches = [Batch(own, part) for (own, _), whole in found.items() for part in _by_ending(whole)]
    if len(batches) <= _MOST_BATCHES:
        return batches
    rest = [file for batch in batches[_MOST_BATCHES - 1 :] for file in batch.files]
    return [*batches[: _MOST_BATCHES - 1], Batch(None, rest)]


def _by_ending(files: Sequence[ServedFile]) -> list[list[ServedFile]]:
    endings = [posixpath.splitext(file.url)[1].lower() for file in files]
    usual = {ending for ending, _ in Counter(endings).most_common(_MOST_ENDINGS)}
    found: dict[str, list[ServedFile]] = {}
    for file, ending in zip(files, endings, strict=True):
        found.setdefault(ending if ending in usual else "", []).append(file)
    return list(found.values())


def settle(batch: Batch, answers: Answers) -> LearntFiles:
    """The files that are loaded, by the answers so far.

    Where all that were asked for come as they lie on the disk, so do the others. Where they come
    with other lengths, or some do not come, only what was asked for is loaded.
    """
    known = [(file, answers[file.url]) for file in batch.files if file.url in answers]
    served, reasons = [], {}
    for file, answered in known:
        length, why = answered_with(file, *answered)
        if length is None:
            reasons[file.url] = why
        else:
            served.append(ServedFile(file.url, length))
    if not reasons and served == [file for file, _ in known]:
        return LearntFiles(batch.files, {}, [])
    if not served:
        return LearntFiles([], _told(reasons, len(batch.files) - len(known)), [])
    unasked = [file for file in batch.files if file.url not in answers]
    if unasked and len(known) <= _EACH:
        return LearntFiles([], {}, unasked[:_MOST_AGAIN])
    refused = _told(reasons, 0)
    if unasked:
        label = f"{unasked[0].url} and {len(unasked) - 1} more"
        refused[label] = "not asked for: files beside them are answered otherwise"
    return LearntFiles(served, refused, [])


def _told(reasons: Mapping[str, str], more: int) -> dict[str, str]:
    """Each reason once, by its first URL and the number of others."""
    urls: dict[str, list[str]] = {}
    for url, why in reasons.items():
        urls.setdefault(why, []).append(url)
    counts = {why: len(found) - 1 for why, found in urls.items()}
    first = next(iter(urls), "")
    counts[first] = counts.get(first, 0) + more
    return {
        f"{found[0]} and {counts[why]} more" if counts[why] else found[0]: why
        for why, found in urls.items()
    }


def answered_with(
    file: ServedFile, baseline: Response, candidate: Response
) -> tuple[int | None, str]:
    """The length that a file comes with; None and why not where the baseline sends none.

    What the candidate alone refuses is loaded: that is to be seen.
    """
    if baseline.status is None:
        return None, f"no answer: {baseline.fault}"
    if baseline.status != _OK:
        return None, answer_clause(baseline.status)
    if is_stub(baseline):
        return None, (
            "not answered from the file: passed on to an application, in whose place a stub "
            f"answers {BODY_BYTES} bytes"
        )
    length = file.bytes if baseline.length_bytes is None else baseline.length_bytes
    if candidate.status == _OK and candidate.length_bytes not in (None, length):
        said = f"{length} and {candidate.length_bytes} bytes"
        return None, f"the configurations answer {said} for the same file"
    return length, ""


def unexpected(item: LoadClass, length: int | None, answer: Response) -> str:
    """The answer to a request of a class, where it is not what the class expects; else empty."""
    if answer.status is None:
        return f"is not answered: {answer.fault}"
    if answer.status not in item.status:
        return answer_clause(answer.status)
    if length is None or answer.length_bytes in (None, length):
        return ""
    who = " by a stub" if is_stub(answer) else ""
    return f"is answered with {answer.length_bytes} bytes{who} in the place of {length}"


def is_stub(answer: Response) -> bool:
    """True if it is the answer of stubs in the place of other servers."""
    return answer.digest == _STUB_DIGEST and answer.length_bytes == BODY_BYTES


def with_typical_first(files: Sequence[ServedFile], first: ServedFile) -> list[ServedFile]:
    """The files with a typical one at their head: it is asked for most.

    ``first`` is the one that was; of what is left, where that is not, the one of middle size.
    """
    if not files or files[0].url == first.url:
        return list(files)
    typical = sorted(files, key=lambda file: file.bytes)[len(files) // 2]
    return [typical, *(file for file in files if file != typical)]


AnsweredBy = Literal["files", "memory"]
OwnAnswers = Mapping[AnsweredBy, Response]


class MemoryAnswers(NamedTuple):
    """The verdict on the URL without a file."""

    has_memory: bool
    """It is answered as its line says, by all that are asked."""
    refused: dict[str, str]
    """The reason to leave it out."""
    lost: dict[str, str]
    """The reason why the candidate serves it no longer."""


def own_questions(entry: EntryPoint, files: Sequence[ServedFile]) -> dict[AnsweredBy, Question]:
    """The file that is loaded most, and the URL without a file."""
    urls: dict[AnsweredBy, str | None] = {
        "files": files[0].url if files else None,
        "memory": entry.memory_url,
    }
    return {own: Question(target=entry.target, url=url) for own, url in urls.items() if url}


def label_of(question: Question) -> str:
    """As people know it."""
    return f"{question.target.host} {question.url}"


def judge_memory(
    questions: Mapping[AnsweredBy, Question], answered: tuple[OwnAnswers, OwnAnswers]
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
