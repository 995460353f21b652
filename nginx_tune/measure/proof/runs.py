"""Runs of two variants: their order, the pairs they make, and requests that fail in them.

A run is one fresh start of a variant in the same cache state. Runs ``2 k`` and ``2 k + 1`` are
pair ``k``: one of either variant, next to each other in time, so that a drift of the host affects
both. Two pairs in a row run as ABBA or as BAAB, so that a steady drift cancels.

A validity flag on either run discards the pair. Three kinds only warn:

- flags that a slow server raises by being slow: discarding those runs would select by result;
- too few connections to compare workers: everything else in the run is still valid;
- other work on the host: interleaving spreads it over both variants, and it widens the interval.

If the probe was late for only one class, the pair still counts for the other classes.

Requests that a limit of the configuration refuses are counted apart from failures: a faster server
meets a fixed limit more often and is not worse for it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import percent_text
from nginx_tune.errors import UsageError

VariantName = Literal["baseline", "candidate"]

_RESULT_FLAGS = ("at_cap", "censored", "not_http", "not_sent", "not_steady", "quic")
"""First words of the flags that depend on the server: arrivals waited for a connection because
requests took long, requests were unanswered or unsent at the end, an answer was not HTTP, the
server was still warming up, or it closed QUIC connections (failures of their class)."""

_CLASS_FLAG = "lateness"
"""First word of the flag that discards one class only. How late the probe may be depends on how
fast a class is answered."""

_WRONG_ANSWERS = ("truncated", "parse", "status", "length", "range", "hash")
"""Last words of the metrics that count wrong answers. The server causes them however late the probe
was, unlike failed connections and timeouts."""

_LOAD_FLAGS = ("few_connections",)
"""First words of the flags for a load that is too small to compare workers."""

_HOST_FLAGS = ("foreign_cpu", "steal", "throttled", "clock", "ack_stalls", "hlog")
"""First words of the flags about the host, which both variants share."""

_WARNING_FLAGS = _RESULT_FLAGS + _LOAD_FLAGS + _HOST_FLAGS

_MOST_FAILED_RATIO = 0.01
_KINDS_SHOWN = 3


def schedule_runs(pairs: int, seed: int) -> list[VariantName]:
    """The variants in the order of their runs: randomised ABBA and BAAB.

    Shape: ``2 * pairs``; runs ``2 k`` and ``2 k + 1`` are of different variants.
    """
    order: list[VariantName] = []
    for start in range(0, pairs, 2):
        first: VariantName = "baseline" if _coin(seed, start) else "candidate"
        second: VariantName = "candidate" if first == "baseline" else "baseline"
        order += [first, second, second, first]
    return order[: 2 * pairs]


def _coin(seed: int, index: int) -> bool:
    # A hash, so that a seed gives the same order with every version of Python.
    return bool(hashlib.sha256(f"blocks {seed} {index}".encode()).digest()[0] & 1)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring runs, one of each variant."""

    index: int
    baseline: Measurement
    candidate: Measurement
    spoilt: frozenset[str] = frozenset()
    """Request classes for which the pair does not count."""


@dataclass(frozen=True)
class Discarded:
    """A pair that does not count, with the reason."""

    index: int
    reason: str


@dataclass(frozen=True)
class PairedRuns:
    """The runs of a comparison, in pairs."""

    pairs: tuple[Pair, ...]
    discarded: tuple[Discarded, ...] = ()

    @property
    def baseline(self) -> list[Measurement]:
        """The valid runs of the baseline."""
        return [pair.baseline for pair in self.pairs]

    @property
    def candidate(self) -> list[Measurement]:
        """The valid runs of the candidate."""
        return [pair.candidate for pair in self.pairs]

    def counting_for(self, metric: str) -> PairedRuns:
        """The runs without the pairs that are spoilt for a metric.

        A metric over all classes is spoilt by any of them; server counters and counts of wrong
        answers are spoilt by none.
        """
        head = metric.partition(".")[0]
        is_unaffected = head in ("server", "generator") or (
            metric.rpartition(".")[2] in _WRONG_ANSWERS
        )
        if is_unaffected or not any(pair.spoilt for pair in self.pairs):
            return self
        is_class = head in self.classes
        kept = (p for p in self.pairs if not (head in p.spoilt if is_class else p.spoilt))
        return replace(self, pairs=tuple(kept))

    @property
    def classes(self) -> list[str]:
        """The request classes, in the order of the first run."""
        return list(dict.fromkeys(name for pair in self.pairs for name in pair.baseline.classes))


def pair_runs(measurements: Sequence[Measurement]) -> PairedRuns:
    """The pairs that count, and those discarded because a run is flagged or missing.

    Errors: UsageError for an unknown variant, a repeated run, or two runs of one variant in a pair.
    """
    halves: dict[int, dict[str, Measurement]] = {}
    seen: set[int] = set()
    for run in measurements:
        if run.variant not in ("baseline", "candidate"):
            raise UsageError(
                f"run {run.number}: variant '{run.variant}', not baseline or candidate"
            )
        if run.number in seen:
            raise UsageError(f"run {run.number} appears twice")
        seen.add(run.number)
        halves.setdefault(run.number // 2, {})[run.variant] = run
    pairs, discarded = [], []
    for index, variants in sorted(halves.items()):
        if len(variants) == 1 and {2 * index, 2 * index + 1} <= seen:
            raise UsageError(f"runs {2 * index} and {2 * index + 1} are of the same variant")
        reasons = [
            f"run {half.number} ({variant}): {flag}"
            for variant, half in sorted(variants.items())
            for flag in half.flags
            if not _is_warning(flag) and _spoilt_class(half, flag) is None
        ]
        if len(variants) == 1:
            [half] = variants.values()
            reasons.append(f"run {half.number} has no partner")
        if reasons:
            discarded.append(Discarded(index, "; ".join(reasons)))
            continue
        spoilt = {_spoilt_class(half, flag) for half in variants.values() for flag in half.flags}
        classes = frozenset(name for name in spoilt if name is not None)
        pairs.append(Pair(index, variants["baseline"], variants["candidate"], classes))
    return PairedRuns(tuple(pairs), tuple(discarded))


def flag_warnings(runs: PairedRuns) -> list[str]:
    """Warnings of flags that discarded no run: one sentence per flag and class, and its runs."""
    sentences: dict[str, dict[str, list[str]]] = {}
    for pair in runs.pairs:
        for half in (pair.baseline, pair.candidate):
            for flag in half.flags:
                subject, sentence = _split_flag(half, flag)
                by_variant = sentences.setdefault(subject, {})
                by_variant.setdefault(half.variant, []).append(sentence)
    every = len(runs.pairs)
    warnings = []
    for subject, by_variant in sentences.items():
        counts = [f"{len(texts)} of {every} runs" for texts in by_variant.values()]
        where = ", ".join(
            f"{variant}: {count}" for variant, count in zip(by_variant, counts, strict=True)
        )
        name = subject.partition(" of ")[2]
        sentence = next(iter(by_variant.values()))[0]
        warnings.append(f"{name}: {sentence} ({where})" if name else f"{sentence} ({where})")
    return warnings


def failure_warnings(runs: PairedRuns) -> list[str]:
    """One line for each class in which more than 1 % of a variant's requests failed.

    If both variants fail alike, no metric shows it.
    """
    warnings = []
    for name in runs.classes:
        counts, kinds, worst = [], Counter[str](), 0.0
        for variant, halves in (("baseline", runs.baseline), ("candidate", runs.candidate)):
            parts = [half.classes[name] for half in halves if name in half.classes]
            failed = sum(sum(part.errors.values()) for part in parts)
            total = failed + sum(part.requests for part in parts)
            for part in parts:
                kinds.update(part.errors)
            worst = max(worst, failed / total if total else 0.0)
            counts.append(f"{failed:,} of {total:,} ({variant})")
        if worst > _MOST_FAILED_RATIO:
            most = ", ".join(kind for kind, _ in kinds.most_common(_KINDS_SHOWN))
            warnings.append(f"{name}: {' and '.join(counts)} requests failed: {most}")
    return warnings


def degraded_by(runs: PairedRuns) -> list[str]:
    """For each flag on the runs that count, its first word with the number of runs that have it."""
    halves = [half for pair in runs.pairs for half in (pair.baseline, pair.candidate)]
    counts = Counter(word for half in halves for word in {_word(flag) for flag in half.flags})
    return [f"{word} ({count} of {len(halves)} runs)" for word, count in sorted(counts.items())]


def counts_for(run: Measurement, metric: str) -> bool:
    """True if no flag discards the run for this metric or latency."""
    head = metric.partition(".")[0]
    spoilt = [_spoilt_class(run, flag) for flag in run.flags if not _is_warning(flag)]
    return all(name is not None and name != head for name in spoilt)


def _spoilt_class(run: Measurement, flag: str) -> str | None:
    """The only class that a flag discards; None when it discards the whole run."""
    word, _, rest = flag.partition(": ")
    name = rest.partition(": ")[0]
    others = len(run.classes) > 1
    return name if word == _CLASS_FLAG and name in run.classes and others else None


def _word(flag: str) -> str:
    return flag.partition(":")[0]


def _is_warning(flag: str) -> bool:
    return _word(flag) in _WARNING_FLAGS


def _split_flag(run: Measurement, flag: str) -> tuple[str, str]:
    """A flag's first word with its class, and its sentence."""
    word, _, rest = flag.partition(": ")
    name, _, sentence = rest.partition(": ")
    return (f"{word} of {name}", sentence) if name in run.classes else (word, rest or flag)


_TWO = ("baseline", "candidate")


def schedule_rounds(variants: Sequence[str], rounds: int, seed: int) -> list[str]:
    """The variants in the order of their runs, each once in every round.

    Shape: ``len(variants) * rounds``.
    """
    if tuple(variants) == _TWO:
        return [str(variant) for variant in schedule_runs(rounds, seed)]
    order: list[str] = []
    for start in range(0, rounds, 2):
        forwards = sorted(variants, key=lambda variant: _rank(seed, start, variant))
        order += [*forwards, *reversed(forwards)]
    return order[: len(variants) * rounds]


def _rank(seed: int, start: int, variant: str) -> bytes:
    # A hash, so that a seed gives the same order with every version of Python.
    return hashlib.sha256(f"rounds {seed} {start} {variant}".encode()).digest()


def select_pairs(
    measurements: Sequence[Measurement], variants: int, *, against: str, variant: str
) -> list[Measurement]:
    """The runs of two variants as pairs, renamed; ``variants`` is the number in each round."""
    selected = []
    for run in measurements:
        if run.variant in (against, variant):
            place = 0 if run.variant == against else 1
            number = 2 * (run.number // variants) + place
            selected.append(msgspec.structs.replace(run, variant=_TWO[place], number=number))
    return selected


def count_valid(measurements: Sequence[Measurement], variants: Sequence[str]) -> int:
    """The number of rounds in which no flag discards a variant, even for a single class."""
    first, *others = variants
    valid: set[int] | None = None
    for other in others:
        runs = pair_runs(select_pairs(measurements, len(variants), against=first, variant=other))
        indices = {pair.index for pair in runs.pairs if not pair.spoilt}
        valid = indices if valid is None else valid & indices
    return len(valid or ())


_MORE_FAILURES = 0.001
"""The share of requests by which the candidate's failures may exceed the baseline's."""
_MOSTLY_FAILED = 0.5
"""The share of failed requests above which a class cannot be judged."""


def failing_class(runs: PairedRuns) -> str:
    """A sentence on a class that fails more with the candidate in every pair; otherwise empty."""
    for name in runs.classes:
        shares = [
            (_failed_share(pair.baseline, name), _failed_share(pair.candidate, name))
            for pair in runs.pairs
        ]
        if all(candidate > baseline + _MORE_FAILURES for baseline, candidate in shares):
            low = percent_text(min(candidate for _, candidate in shares))
            return f"{name}: at least {low} of the candidate's requests failed in every run"
    return ""


def failing_both(runs: PairedRuns, metric: str) -> str:
    """The reason not to judge a metric whose requests mostly failed in both variants; or empty."""
    own = metric.partition(".")[0]
    names = [own] if own in runs.classes else list(runs.classes)
    reasons = []
    for name in names:
        least = [
            min((_failed_share(run, name) for run in halves), default=0.0)
            for halves in (runs.baseline, runs.candidate)
        ]
        if min(least) <= _MOSTLY_FAILED:
            return ""
        shares = [percent_text(share) for share in least]
        reasons.append(
            f"{name}: at least {shares[0]} of the baseline's requests and {shares[1]} of the "
            "candidate's failed in every run, so it cannot be judged"
        )
    return "; ".join(reasons)


_WRONG_CONTENT = {
    "length": "differ in length from the file",
    "range": "contain another part than requested",
    "hash": "differ from the file",
}
"""Failures of complete answers whose content is wrong."""


def unjudged_classes(run: Measurement) -> dict[str, str]:
    """Classes that a run cannot judge, with the reason: wrong content, or mostly failures.

    Failures alone count for the baseline only: the candidate's are a result.
    """
    reasons = {}
    for name, part in run.classes.items():
        wrong = [f"{part.errors[kind]:,} responses {what}"
                 for kind, what in _WRONG_CONTENT.items() if part.errors.get(kind)]  # fmt: skip
        if not wrong and run.variant == "baseline" and _failed_share(run, name) > _MOSTLY_FAILED:
            failed = sum(part.errors.values())
            wrong = [f"{failed:,} of {failed + part.requests:,} requests failed"]
        if wrong:
            reasons[name] = ", ".join(wrong)
    return reasons


def count_refusals(part: ClassMeasurement, statuses: Collection[int]) -> int:
    """Answers with one of the statuses by which a limit refuses."""
    return sum(part.statuses.get(str(status), 0) for status in set(statuses))


def with_limits(measurement: Measurement, limited: Mapping[str, Collection[int]]) -> Measurement:
    """The measurement with refusals by limits moved out of its failures.

    ``limited``: by class, the statuses of its limits, which the class does not expect.
    """
    classes = dict(measurement.classes)
    for name, statuses in limited.items():
        part = classes.get(name)
        count = count_refusals(part, statuses) if part is not None else 0
        if part is None or not count:
            continue
        left = part.errors.get("status", 0) - count
        errors = {kind: number for kind, number in part.errors.items() if kind != "status"}
        if left > 0:
            errors["status"] = left
        classes[name] = msgspec.structs.replace(part, errors=errors, limited=count)
    return msgspec.structs.replace(measurement, classes=classes)


def limit_warnings(runs: PairedRuns) -> list[str]:
    """One line for each class in which a limit of the configuration refused requests."""
    warnings = []
    for name in runs.classes:
        counts, any_refused = [], False
        for variant, halves in (("baseline", runs.baseline), ("candidate", runs.candidate)):
            parts = [half.classes[name] for half in halves if name in half.classes]
            refused = sum(part.limited for part in parts)
            total = refused + sum(p.requests + sum(p.errors.values()) for p in parts)
            any_refused = any_refused or refused > 0
            counts.append(f"{refused:,} of {total:,} ({variant})")
        if any_refused:
            warnings.append(
                f"{name}: {' and '.join(counts)} requests were refused by a limit of the "
                f"configuration; they are not failures, and a gate on {name}.limited judges them"
            )
    return warnings


def _failed_share(run: Measurement, name: str) -> float:
    part = run.classes.get(name)
    if part is None:
        return 0.0
    failed = sum(part.errors.values())
    return failed / max(part.requests + failed, 1)
