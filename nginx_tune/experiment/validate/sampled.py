"""The files below a root that can be loaded, found by samples; and the URL without a file.

A URL below a root need not be answered with its file: a location may pass it to an application,
refuse it, redirect it or rewrite its body. A location treats files of one ending alike, so a few
files of each ending are requested, and all of them if the answers differ.
"""

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
"""The answers of the baseline and the candidate by URL."""
_OK = 200
_EACH = 3
_MOST_ENDINGS = 8
"""Bound on the file endings of a location; files with rarer endings form one batch."""
_MOST_BATCHES = 60
_MOST_FILES = 300
"""Bound on the files of a batch to request when its samples differ."""
_STUB_DIGEST = hashlib.sha256(b"x" * BODY_BYTES).hexdigest()


class Batch(NamedTuple):
    """Files of one ending that fall into the same locations of the variants."""

    location: Directive | None
    """The location in the baseline."""
    files: list[ServedFile]
    """The files, sorted by URL."""

    @property
    def sample(self) -> list[ServedFile]:
        """The first file, one in the middle, and the last."""
        last = len(self.files) - 1
        return [self.files[at] for at in sorted({0, last // 2, last})[:_EACH]]


class LearntFiles(NamedTuple):
    """The files of a batch that can be loaded."""

    files: list[ServedFile]
    """Files to load, with the lengths of the answers."""
    refused: dict[str, str]
    """Files left out, by the first of their URLs, with the reasons."""
    unsettled: list[ServedFile]
    """Files to request before the batch can be settled."""


def batches_of(
    files: Sequence[ServedFile],
    servers: tuple[Directive, Directive],
    matchers: Sequence[LocationMatcher],
) -> list[Batch]:
    """The files of a root in batches; ``servers``: one of each variant.

    Batches beyond the maximum number are merged into one.
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
    """The files of a batch that can be loaded, by the answers so far.

    If all samples are answered with their files, the whole batch is loaded. Otherwise only files
    that were themselves requested are loaded.
    """
    known = [(file, answers[file.url]) for file in batch.files if file.url in answers]
    served, reasons = [], {}
    for file, answered in known:
        length, why = served_length(file, *answered)
        if length is None:
            reasons[file.url] = why
        else:
            served.append(ServedFile(file.url, length))
    if not reasons and served == [file for file, _ in known]:
        return LearntFiles(batch.files, {}, [])
    if not served:
        return LearntFiles([], _grouped(reasons, len(batch.files) - len(known)), [])
    unknown = [file for file in batch.files if file.url not in answers]
    if unknown and len(known) <= _EACH:
        return LearntFiles([], {}, unknown[:_MOST_FILES])
    refused = _grouped(reasons, 0)
    if unknown:
        label = f"{unknown[0].url} and {len(unknown) - 1} more"
        refused[label] = "not requested: similar files have differing answers"
    return LearntFiles(served, refused, [])


def _grouped(reasons: Mapping[str, str], more: int) -> dict[str, str]:
    """Each reason once, with its first URL and the number of its other URLs."""
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


def served_length(
    file: ServedFile, baseline: Response, candidate: Response
) -> tuple[int | None, str]:
    """The length with which a file is served; None and the reason if it cannot be loaded.

    Files that only the candidate refuses are loaded, as that is a difference.
    """
    if baseline.status is None:
        return None, f"no answer: {baseline.fault}"
    if baseline.status != _OK:
        return None, answer_clause(baseline.status)
    if is_stub(baseline):
        return None, (
            f"answered by an application instead of the file; its stub answers {BODY_BYTES} bytes"
        )
    length = file.bytes if baseline.length_bytes is None else baseline.length_bytes
    if candidate.status == _OK and candidate.length_bytes not in (None, length):
        lengths = f"{length} and {candidate.length_bytes} bytes"
        return None, f"the configurations answer {lengths} for the same file"
    return length, ""


def unexpected(item: LoadClass, length: int | None, answer: Response) -> str:
    """A clause on an answer that a class does not expect; empty for an expected one."""
    if answer.status is None:
        return f"is not answered: {answer.fault}"
    if answer.status not in item.status:
        return answer_clause(answer.status)
    if length is None or answer.length_bytes in (None, length):
        return ""
    stub = " by a stub" if is_stub(answer) else ""
    return f"is answered with {answer.length_bytes} bytes{stub} instead of {length}"


def is_stub(answer: Response) -> bool:
    """True for the answer of a stub."""
    return answer.digest == _STUB_DIGEST and answer.length_bytes == BODY_BYTES


def with_typical_first(files: Sequence[ServedFile], first: ServedFile) -> list[ServedFile]:
    """The files with a typical one first, which the load requests most.

    That is ``first``, or if it was left out, the file of median size.
    """
    if not files or files[0].url == first.url:
        return list(files)
    typical = sorted(files, key=lambda file: file.bytes)[len(files) // 2]
    return [typical, *(file for file in files if file != typical)]


AnsweredBy = Literal["files", "memory"]
OwnAnswers = Mapping[AnsweredBy, Response]


class MemoryAnswers(NamedTuple):
    """The result for the URL without a file."""

    has_memory: bool
    """True if all variants answer the URL as configured."""
    refused: dict[str, str]
    """The reason to leave the URL out, by label."""
    lost: dict[str, str]
    """The reason why the candidate no longer serves the URL, by label."""


def own_questions(entry: EntryPoint, files: Sequence[ServedFile]) -> dict[AnsweredBy, Question]:
    """The requests for the most loaded file and for the URL without a file."""
    urls: dict[AnsweredBy, str | None] = {
        "files": files[0].url if files else None,
        "memory": entry.memory_url,
    }
    return {own: Question(target=entry.target, url=url) for own, url in urls.items() if url}


def label_of(question: Question) -> str:
    """A question as host and URL."""
    return f"{question.target.host} {question.url}"


def judge_memory(
    questions: Mapping[AnsweredBy, Question], answered: tuple[OwnAnswers, OwnAnswers]
) -> MemoryAnswers:
    """The result for the URL without a file, from both variants' answers."""
    result = MemoryAnswers(False, {}, {})
    question = questions.get("memory")
    if question is None or any("memory" not in answer for answer in answered):
        return result
    baseline, candidate = (answer["memory"] for answer in answered)
    if {baseline.status, candidate.status} <= set(STATUSES_OF_MEMORY):
        return result._replace(has_memory=True)
    label = label_of(question)
    if baseline.status in STATUSES_OF_MEMORY and (
        gone := lost_answer(baseline, candidate, has_silent=False)
    ):
        result.lost[label] = gone
    status, why = is_loaded((baseline, candidate))
    result.refused[label] = why or f"answers {status}, though configured to return 200 or 204"
    return result
