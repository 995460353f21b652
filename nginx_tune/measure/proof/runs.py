"""Runs of two variants: their order, the pairs they make, and requests that fail in them.

A run is one fresh start of a variant in the same cache state. Runs ``2 k`` and ``2 k + 1`` are
pair ``k``: one of either variant, next to each other in time, so that a drift of the host meets
both. Two pairs in a row run as ABBA or as BAAB, so that a steady drift cancels.

A validity flag of either half discards the pair, but for three kinds, which become warnings. The
flags that a slow server raises by being slow: to discard by those would be to choose runs by
their result; what they mean for a tail is settled where quantiles are read. That connections were
too few to compare workers by: all else stands. And the flags of what else the host did: that falls
on both variants alike, as interleaving is for, and widens the interval. Where the probe was late
for one class alone, the pair counts for the others.

A limit of the configuration that refuses a request does what it is there for. Such refusals are
counted apart: a faster server meets a fixed limit more often, and is not worse for that.
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

Variant = Literal["baseline", "candidate"]

_RESULT_FLAGS = ("at_cap", "censored", "not_http", "not_sent", "not_steady", "quic")
"""First words of the flags that depend on the server: arrivals waited for a connection because
requests took long, some were unanswered or unsent at the end, or answered in what is no HTTP; it
was still warming up; it ended or refused connections of QUIC, which are failures in their class."""

_CLASS_FLAG = "lateness"
"""First word of the flag that spoils the class it names and no other: how late the probe may be
depends on how fast that class is answered."""

_OF_ANSWERS = ("truncated", "parse", "status", "length", "range", "hash")
"""Last words of the metrics that count wrong answers: they are the server's, however late the probe
asked. Of a connection that fails or a time that is up that cannot be said."""

_LOAD_FLAGS = ("few_connections",)
"""Flags of a load that is too small to tell something, whatever else it tells."""

_MOST_FAILED_RATIO = 0.01
_KINDS_SHOWN = 3

_HOST_FLAGS = ("foreign_cpu", "steal", "throttled", "clock", "ack_stalls", "hlog")
"""First words of the flags about the host that both variants ran on."""


def schedule_runs(pairs: int, seed: int) -> list[Variant]:
    """The variants of all runs in the order to run them: randomised ABBA and BAAB.

    Shape: ``2 * pairs`` long; runs ``2 k`` and ``2 k + 1`` are of different variants.
    """
    order: list[Variant] = []
    for start in range(0, pairs, 2):
        first: Variant = "baseline" if _coin(seed, start) else "candidate"
        second: Variant = "candidate" if first == "baseline" else "baseline"
        order += [first, second, second, first]
    return order[: 2 * pairs]


def _coin(seed: int, index: int) -> bool:
    # A hash, so that a seed gives the same order with every version of Python.
    return bool(hashlib.sha256(f"blocks {seed} {index}".encode()).digest()[0] & 1)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring runs, one of either variant."""

    index: int
    baseline: Measurement
    candidate: Measurement
    spoilt: frozenset[str] = frozenset()
    """Request classes for which the pair does not count."""


@dataclass(frozen=True)
class Discarded:
    """A pair that does not count, and why."""

    index: int
    reason: str


@dataclass(frozen=True)
class PairedRuns:
    """All runs of a comparison, paired."""

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
        """These without the pairs in which a class of the metric is spoilt.

        What adds all classes up is spoilt by any; what the server says, or sends wrong, by none.
        """
        head = metric.partition(".")[0]
        stands = head in ("server", "generator") or metric.rpartition(".")[2] in _OF_ANSWERS
        if stands or not any(pair.spoilt for pair in self.pairs):
            return self
        named = head in self.classes
        return replace(
            self,
            pairs=tuple(
                pair for pair in self.pairs if not (head in pair.spoilt if named else pair.spoilt)
            ),
        )

    @property
    def classes(self) -> list[str]:
        """The request classes, in the order in which the first run has them."""
        return list(dict.fromkeys(name for pair in self.pairs for name in pair.baseline.classes))


def pair_runs(measurements: Sequence[Measurement]) -> PairedRuns:
    """The pairs that count, and those that do not: a half is flagged or missing.

    Errors: UsageError for an unknown variant, a run given twice, or two neighbours of one
    variant.
    """
    halves: dict[int, dict[str, Measurement]] = {}
    seen: set[int] = set()
    for run in measurements:
        if run.variant not in ("baseline", "candidate"):
            raise UsageError(
                f"run {run.number}: variant '{run.variant}', not baseline or candidate"
            )
        if run.number in seen:
            raise UsageError(f"run {run.number} is there twice")
        seen.add(run.number)
        halves.setdefault(run.number // 2, {})[run.variant] = run
    pairs, discarded = [], []
    for index, variants in sorted(halves.items()):
        if len(variants) == 1 and {2 * index, 2 * index + 1} <= seen:
            raise UsageError(f"runs {2 * index} and {2 * index + 1} are both of one variant")
        reasons = [
            f"run {half.number} ({variant}): {flag}"
            for variant, half in sorted(variants.items())
            for flag in half.flags
            if not _is_warning(flag) and _spoilt_class(half, flag) is None
        ]
        if len(variants) == 1:
            reasons.append(
                f"the other half of run {next(iter(variants.values())).number} is missing"
            )
        if reasons:
            discarded.append(Discarded(index, "; ".join(reasons)))
        else:
            spoilt = {
                _spoilt_class(half, flag) for half in variants.values() for flag in half.flags
            }
            pairs.append(
                Pair(
                    index,
                    variants["baseline"],
                    variants["candidate"],
                    frozenset(name for name in spoilt if name is not None),
                )
            )
    return PairedRuns(tuple(pairs), tuple(discarded))


def flag_warnings(runs: PairedRuns) -> list[str]:
    """Warnings of flags that discarded no run: one line per flag, class and variant."""
    seen: dict[str, list[str]] = {}
    for pair in runs.pairs:
        for half in (pair.baseline, pair.candidate):
            for flag in half.flags:
                subject, said = _parted(half, flag)
                seen.setdefault(f"{half.variant}, {subject}", []).append(said)
    return [
        f"{subject} in {len(said)} of {len(runs.pairs)} runs, first: {said[0]}"
        for subject, said in seen.items()
    ]


def failure_warnings(runs: PairedRuns) -> list[str]:
    """Classes of which more than a few requests failed: one line each, whichever variant it was.

    Where both variants fail alike no metric tells them apart, and what is compared is the rest.
    """
    found = []
    for name in runs.classes:
        variants = {"baseline": runs.baseline, "candidate": runs.candidate}
        parts, kinds, worst = [], Counter[str](), 0.0
        for variant, halves in variants.items():
            classes = [half.classes[name] for half in halves if name in half.classes]
            failed = sum(sum(one.errors.values()) for one in classes)
            asked = failed + sum(one.requests for one in classes)
            for one in classes:
                kinds.update(one.errors)
            worst = max(worst, failed / asked if asked else 0.0)
            parts.append(f"{failed:,} of {asked:,} ({variant})")
        if worst > _MOST_FAILED_RATIO:
            said = ", ".join(kind for kind, _ in kinds.most_common(_KINDS_SHOWN))
            found.append(f"{name}: {' and '.join(parts)} requests failed: {said}")
    return found


def degraded_by(runs: PairedRuns) -> list[str]:
    """The flags on the runs that count, by first word, and on how many of them."""
    halves = [half for pair in runs.pairs for half in (pair.baseline, pair.candidate)]
    seen = Counter(word for half in halves for word in {_word(flag) for flag in half.flags})
    return [f"{word} ({count} of {len(halves)} runs)" for word, count in sorted(seen.items())]


def counts_for(run: Measurement, metric: str) -> bool:
    """True if a run by itself counts for a metric or a latency: no flag discards it."""
    head = metric.partition(".")[0]
    spoilt = [_spoilt_class(run, flag) for flag in run.flags if not _is_warning(flag)]
    return all(name is not None and name != head for name in spoilt)


def _spoilt_class(run: Measurement, flag: str) -> str | None:
    """The one class that a flag is about; None when it is about more than one class."""
    word, _, rest = flag.partition(": ")
    name = rest.partition(": ")[0]
    others = len(run.classes) > 1
    return name if word == _CLASS_FLAG and name in run.classes and others else None


def _word(flag: str) -> str:
    return flag.partition(":")[0]


def _is_warning(flag: str) -> bool:
    return _word(flag) in _RESULT_FLAGS + _LOAD_FLAGS + _HOST_FLAGS


def _parted(run: Measurement, flag: str) -> tuple[str, str]:
    """The stable words in front of a flag's sentence, the flag and the class; and the sentence."""
    word, _, rest = flag.partition(": ")
    name, _, said = rest.partition(": ")
    return (f"{word} of {name}", said) if name in run.classes else (word, rest or flag)


_TWO = ("baseline", "candidate")


def schedule_rounds(variants: Sequence[str], rounds: int, seed: int) -> list[str]:
    """The variants of all runs in the order to run them.

    Shape: ``len(variants) * rounds`` long; each round holds every variant once.
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
    """The runs of two variants of each round as those of a baseline and a candidate."""
    selected = []
    for run in measurements:
        if run.variant in (against, variant):
            place = 0 if run.variant == against else 1
            selected.append(
                msgspec.structs.replace(
                    run, variant=_TWO[place], number=2 * (run.number // variants) + place
                )
            )
    return selected


def count_valid(measurements: Sequence[Measurement], variants: Sequence[str]) -> int:
    """Rounds in which no variant has a flag that discards, be it for one class."""
    first, *others = variants
    valid: set[int] | None = None
    for other in others:
        pairs = pair_runs(
            select_pairs(measurements, len(variants), against=first, variant=other)
        ).pairs
        indices = {pair.index for pair in pairs if not pair.spoilt}
        valid = indices if valid is None else valid & indices
    return len(valid or ())


_MORE_FAILURES = 0.001
"""Failed requests in a thousand that the candidate may have more than the baseline."""
_MOST = 0.5
"""The share of requests: where more than that fail in both variants, what is left tells nothing."""


def failing_class(runs: PairedRuns) -> str:
    """The class that fails more often with the candidate in every pair; empty for none."""
    for name in runs.classes:
        shares = [
            (_failed(pair.baseline, name), _failed(pair.candidate, name)) for pair in runs.pairs
        ]
        if all(candidate > baseline + _MORE_FAILURES for baseline, candidate in shares):
            low = percent_text(min(candidate for _, candidate in shares))
            return f"{name}: at least {low} of the candidate's requests failed in every run"
    return ""


def failing_both(runs: PairedRuns, metric: str) -> str:
    """The reason to say nothing of a metric where most of its subject failed in either variant."""
    own = metric.partition(".")[0]
    names = [own] if own in runs.classes else list(runs.classes)
    said = []
    for name in names:
        least = [
            min((_failed(run, name) for run in variant), default=0.0)
            for variant in (
                [pair.baseline for pair in runs.pairs],
                [pair.candidate for pair in runs.pairs],
            )
        ]
        if min(least) <= _MOST:
            return ""
        shares = [percent_text(share) for share in least]
        said.append(
            f"{name}: requests failed with both configurations ({shares[0]} with the baseline and "
            f"{shares[1]} with the candidate, or more, in every run), so nothing can be said of it"
        )
    return "; ".join(said)


_WRONG_CONTENT = {
    "length": "had another length than the file",
    "range": "were another part than the one asked for",
    "hash": "differ from the file",
}
"""Failures of complete answers that are something else than what is there."""


def unjudged_classes(run: Measurement) -> dict[str, str]:
    """The classes of which a run tells nothing: what came is not what was asked for.

    Of the candidate failed requests are a result; of the baseline most of them are none.
    """
    found = {}
    for name, part in run.classes.items():
        said = [f"{part.errors[kind]:,} responses {what}"
                for kind, what in _WRONG_CONTENT.items() if part.errors.get(kind)]  # fmt: skip
        if not said and run.variant == "baseline" and _failed(run, name) > _MOST:
            failed = sum(part.errors.values())
            said = [f"{failed:,} of {failed + part.requests:,} requests failed"]
        if said:
            found[name] = ", ".join(said)
    return found


def count_refusals(part: ClassMeasurement, statuses: Collection[int]) -> int:
    """The answers by which a limit may have refused; ``statuses`` are what it answers."""
    return sum(part.statuses.get(str(status), 0) for status in set(statuses))


def with_limits(measurement: Measurement, limited: Mapping[str, Collection[int]]) -> Measurement:
    """The measurement with refusals by limits apart from failures.

    ``limited`` are by class what its limits answer, which the class does not expect.
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
    """Refusals by limits of the configuration, of either variant: one line for each class."""
    found = []
    for name in runs.classes:
        said = []
        for variant, halves in (("baseline", runs.baseline), ("candidate", runs.candidate)):
            parts = [half.classes[name] for half in halves if name in half.classes]
            refused = sum(part.limited for part in parts)
            asked = refused + sum(p.requests + sum(p.errors.values()) for p in parts)
            said.append((refused, f"{refused:,} of {asked:,} ({variant})"))
        if any(refused for refused, _ in said):
            found.append(
                f"{name}: {' and '.join(text for _, text in said)} requests were refused by a "
                f"limit of the configuration: no failures, judged where a gate names {name}.limited"
            )
    return found


def _failed(run: Measurement, name: str) -> float:
    part = run.classes.get(name)
    if part is None:
        return 0.0
    failed = sum(part.errors.values())
    return failed / max(part.requests + failed, 1)
