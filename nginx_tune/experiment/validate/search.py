"""``validate --search``: short runs of all candidates, then a proof of the best one.

``measure.proof.search`` decides what to measure next; everything else works as in a validation. The
proof has a new sandbox, new seeds and its own verdict, and surveys its candidate.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.plan import Search, SearchAnswer, SearchCandidate
from nginx_tune.documents.run import Validation
from nginx_tune.documents.scenario import ExperimentSpec
from nginx_tune.documents.verdict import Verdict
from nginx_tune.experiment.experiment import GoesOn, find_warmup, run_pairs
from nginx_tune.experiment.operations import MODULE_INSIDE
from nginx_tune.experiment.validate.validation import (
    Deadline,
    FirstRuns,
    Looking,
    Measured,
    Sides,
    conclude,
    open_sides,
    read_sides,
)
from nginx_tune.experiment.validate.workbench import Rival, Workbench
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.measure.proof.runs import select_pairs
from nginx_tune.measure.proof.search import (
    RECOMMENDED,
    TODAY,
    Gains,
    Ranked,
    Rung,
    challenger,
    gains_of,
    is_ahead,
    next_rung,
    rank,
)
from nginx_tune.measure.proof.verdict import FIRST_ALPHA, judge
from nginx_tune.nginx.lab.sandbox import Sandbox

_SHORT_SHARE = 0.25
"""The length of a short run, as a share of a full run. Many short runs rank better than few long
runs, since results vary more between runs than within a run."""
_LEAST_SHORT_SECONDS = 1.0
_SHARE_OF_SHORT = 0.4
"""The share of the time for short runs and both sandboxes; the rest is for the proof."""
_SEEDS_OF_A_STEP = 1000
_FRESH_SEEDS = 1_000_000
"""The distance from the seeds of the short runs to the seeds of the proof."""


class SearchVariant(NamedTuple):
    """A configuration to try: the current one with other bytes in some files."""

    name: str
    tree: ConfTree
    planned: Mapping[str, bytes]
    changes: Sequence[str] = ()
    """The lines that differ from the recommendation."""
    reason: str = ""


class Match(NamedTuple):
    """A comparison of the proof."""

    candidate: str
    against: str


class Bench(Protocol):
    """The place where variants are measured."""

    metric: str
    """The primary metric."""

    def screen(self, rung: Rung, step: int) -> list[Measurement]:
        """The short runs of a step."""

    def confirm(self, names: Sequence[str], goes_on: GoesOn, into: list[Measurement]) -> None:
        """Make runs of full length on fresh seeds."""


@dataclass
class Contest:
    """The state of a search, which an interruption leaves in place."""

    names: list[str]
    reference: str
    metric: str = ""
    """The primary metric, once it is known."""
    steps: list[Gains] = field(default_factory=list)
    short_runs: int = 0
    contender: str | None = None
    """The variant to prove, beside the current and the recommended configuration."""
    runs: list[Measurement] = field(default_factory=list)
    """Runs of the proof."""
    lookings: dict[Match, Looking] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def finalists(self) -> list[str]:
        """The variants of the proof, the current configuration first."""
        names = dict.fromkeys(name for match in self.lookings for name in match)
        return sorted(names, key=lambda name: name != TODAY)

    def pairs_of(self, match: Match, runs: Sequence[Measurement]) -> list[Measurement]:
        """The runs of a match, paired as baseline and candidate."""
        return select_pairs(
            runs, len(self.finalists), against=match.against, variant=match.candidate
        )

    def wants_more(self, runs: Sequence[Measurement]) -> bool:
        """True if another round is to be run; takes the looks that are due."""
        is_open = {
            match: looking.wants_more(self.pairs_of(match, runs))
            for match, looking in self.lookings.items()
        }
        own = [match for match in self.lookings if match.candidate == self.contender]
        verdicts = [self.lookings[match].verdict for match in own]
        if own and all(verdict is not None and is_ahead(verdict) for verdict in verdicts):
            return any(is_open[match] for match in own)
        return any(is_open[match] for match in self.lookings if self._decides(match))

    def _decides(self, match: Match) -> bool:
        """True for a comparison that is needed for the answer even if the contender has not won."""
        return self.contender is None or len(self.lookings) == 1 or RECOMMENDED in match

    def judge(
        self, match: Match, accept_worse: Sequence[str] = (), lost: Sequence[str] = ()
    ) -> Verdict:
        """The verdict of a comparison at its last look."""
        looking = self.lookings[match]
        pairs = self.pairs_of(match, self.runs)
        look = looking.look_now(pairs) if self.interrupted else looking.look
        return judge(
            pairs,
            primary_metric=self.metric,
            alpha=look.alpha if look else FIRST_ALPHA,
            accept_worse=accept_worse,
            lost=lost,
        )


def hold_contest(
    contest: Contest,
    bench: Bench,
    deadline: Deadline,
    *,
    first_pairs: int,
    progress: Callable[[str], None],
) -> None:
    """Screen all variants, then prove the best against the recommended and the current one."""
    while (rung := next_rung(contest.names, contest.reference, contest.steps)) is not None:
        count = len(rung.names) * rung.rounds
        run_seconds = deadline.used_seconds / contest.short_runs if contest.short_runs else 0.0
        if contest.steps and not deadline.has(count * run_seconds, share=_SHARE_OF_SHORT):
            break
        progress(f"step {len(contest.steps) + 1} of the search: {', '.join(rung.names)}")
        runs = bench.screen(rung, len(contest.steps))
        contest.metric = bench.metric
        contest.short_runs += len(runs)
        contest.steps.append(gains_of(runs, rung.names, contest.reference, bench.metric))
    contest.contender = _contender(contest)
    for match in matches(contest.contender, contest.reference):
        contest.lookings[match] = Looking(
            bench.metric, deadline, first_pairs=first_pairs, share=1.0
        )
    progress(f"proof on fresh seeds: {', '.join(contest.finalists)}")

    def goes_on(runs: Sequence[Measurement]) -> bool:
        return not runs or contest.wants_more(runs)

    bench.confirm(contest.finalists, goes_on, contest.runs)


def new_contest(names: Sequence[str]) -> Contest:
    """A contest before its first run; the current configuration is first in ``names``."""
    return Contest([*names], RECOMMENDED if RECOMMENDED in names else TODAY)


def _contender(contest: Contest) -> str | None:
    """The variant to prove: the challenger of the reference; None for the current configuration.

    If nothing is recommended, the best variant is proved even if it is no challenger.
    """
    best = challenger(contest.names, contest.reference, contest.steps)
    if best is None and contest.reference == TODAY:
        best = rank(contest.names, TODAY, contest.steps)[0].name
    return None if best == TODAY else best


def matches(contender: str | None, reference: str) -> list[Match]:
    """The comparisons of the proof."""
    against_today = [Match(contender, TODAY)] if contender else []
    if reference != RECOMMENDED:
        return against_today
    against_recommended = [Match(contender, RECOMMENDED)] if contender else []
    return [*against_today, *against_recommended, Match(RECOMMENDED, TODAY)]


def answer_of(contest: Contest, verdicts: Mapping[Match, Verdict]) -> SearchAnswer:
    """The answer; the candidate only if it beats both other configurations on fresh seeds."""
    own = [verdicts[match] for match in contest.lookings if match.candidate == contest.contender]
    if own and all(map(is_ahead, own)):
        return "candidate"
    recommended = verdicts.get(Match(RECOMMENDED, TODAY))
    return "recommendation" if recommended and recommended.outcome == "better" else "today"


class Found(NamedTuple):
    """The result of a search, with the validation to keep."""

    search: Search
    validation: Validation
    """The comparison of the answer with the current configuration or, if that is the answer, with
    its best alternative."""


class _SandboxBench:
    """A bench with one sandbox for the short runs and a second one for the proof."""

    def __init__(
        self,
        spec: ExperimentSpec,
        sides: Sides,
        variants: Sequence[SearchVariant],
        progress: Callable[[str], None],
    ) -> None:
        self._spec, self._sides, self._progress = spec, sides, progress
        self._variants = {variant.name: variant for variant in variants}
        self._warmup = spec.warmup_seconds
        self._sandbox = ExitStack()
        self._workbench: Workbench | None = None
        self._check: FirstRuns | None = None
        self.short_seconds = min(
            spec.duration_seconds, max(_SHORT_SHARE * spec.duration_seconds, _LEAST_SHORT_SECONDS)
        )
        self.metric = spec.primary_metric or ""
        self.surroundings: dict[str, Measured] = {}
        """The findings of each survey, by the variant surveyed beside the current configuration."""

    def close(self) -> None:
        """End the open sandbox."""
        self._sandbox.close()

    def screen(self, rung: Rung, step: int) -> list[Measurement]:
        """The short runs of a step; the first step opens the sandbox."""
        if step == 0:
            self._open([*self._variants])
        seed = self._spec.seed + _SEEDS_OF_A_STEP * step
        return self._run(rung.names, self.short_seconds, pairs=rung.rounds, seed=seed)

    def confirm(self, names: Sequence[str], goes_on: GoesOn, into: list[Measurement]) -> None:
        """Make runs of full length in a fresh sandbox."""
        self._open([name for name in names if name != TODAY])
        seconds, seed = self._spec.duration_seconds, self._spec.seed + _FRESH_SEEDS
        pairs = self._spec.pairs
        self._run(names, seconds, pairs=pairs, seed=seed, goes_on=goes_on, into=into)

    def _open(self, names: Sequence[str]) -> None:
        """Open a sandbox with the current configuration and variants, and survey the first one."""
        self._sandbox.close()
        chosen = [self._variants[name] for name in names]
        sides = self._sides._replace(candidate=chosen[0].tree, planned=chosen[0].planned)
        spec = replace(self._spec, primary_metric=self.metric or None)
        site = read_sides(spec, sides)
        sandbox = self._sandbox.enter_context(Sandbox(MODULE_INSIDE, progress=self._progress))
        rivals = [Rival(rival.name, rival.tree, rival.planned) for rival in chosen]
        self._workbench = open_sides(sandbox, site, spec, sides, rivals)
        self._check = FirstRuns(self._workbench)
        self.metric = self._workbench.primary_metric
        measured = self.surroundings.setdefault(names[0], Measured())
        measured.take_workbench(self._workbench, site, accepts_lost=spec.accept_lost)

    def _run(
        self,
        names: Sequence[str],
        seconds: float,
        *,
        pairs: int,
        seed: int,
        goes_on: GoesOn | None = None,
        into: list[Measurement] | None = None,
    ) -> list[Measurement]:
        if self._workbench is None:
            raise AssertionError("a sandbox is open before anything runs")
        session, every = self._workbench.session, self._workbench.experiment
        if self._warmup is None:
            self._warmup = find_warmup(
                session,
                every._replace(variants=every.variants[:2]),
                duration=seconds,
                seed=seed,
                progress=self._progress,
                check=self._check,
            )
        by_name = {variant.name: variant for variant in every.variants}
        chosen = every._replace(variants=[by_name[name] for name in names])
        return run_pairs(
            session,
            chosen.for_seconds(warmup=self._warmup, duration=seconds),
            pairs=pairs,
            seed=seed,
            progress=self._progress,
            goes_on=goes_on,
            into=into,
            check=self._check,
        )


def run_search(
    spec: ExperimentSpec,
    sides: Sides,
    variants: Sequence[SearchVariant],
    *,
    progress: Callable[[str], None],
) -> Found:
    """Search among variants, the recommended one first, and prove the answer.

    ``sides.baseline`` is the current configuration; ``sides.candidate`` is ignored. On
    KeyboardInterrupt in the proof, its runs so far are judged and the result is marked; before, the
    interruption is raised.
    Errors: those of ``run_validation``.
    """
    deadline = Deadline(spec.max_seconds)
    contest = new_contest([TODAY, *(variant.name for variant in variants)])
    with closing(_SandboxBench(spec, sides, variants, progress)) as bench:
        try:
            hold_contest(contest, bench, deadline, first_pairs=spec.pairs, progress=progress)
        except KeyboardInterrupt:
            if not contest.runs:
                raise
            contest.interrupted = True
            progress("interrupted: judging the pairs so far")
    verdicts = {
        match: contest.judge(match, spec.accept_worse, _lost(bench.surroundings, match.candidate))
        for match in contest.lookings
    }
    answer = answer_of(contest, verdicts)
    shown = contest.contender if answer == "candidate" or contest.reference == TODAY else None
    match = Match(shown or RECOMMENDED, TODAY)
    chosen = next(variant for variant in variants if variant.name == match.candidate)
    measured = bench.surroundings.get(match.candidate) or Measured()
    measured.looking = contest.lookings[match]
    measured.runs = contest.pairs_of(match, contest.runs)
    measured.interrupted = contest.interrupted
    validation = conclude(
        measured,
        trees=(sides.baseline, chosen.tree),
        primary_metric=bench.metric,
        requires=spec.requires,
        accept_worse=spec.accept_worse,
        builds=sides.builds,
        seed=spec.seed,
    )
    search = Search(
        answer=answer,
        name={"candidate": match.candidate, "recommendation": RECOMMENDED, "today": "today"}[
            answer
        ],
        reference="today" if contest.reference == TODAY else "recommended",
        primary_metric=bench.metric,
        candidates=candidates_of(contest, variants),
        against_today=validation.verdict,
        against_recommended=verdicts.get(Match(contest.contender or "", RECOMMENDED)),
        runs=contest.short_runs + len(contest.runs),
        short_seconds=bench.short_seconds,
        seconds=round(deadline.used_seconds, 1),
        most_seconds=spec.max_seconds,
    )
    return Found(search, validation)


def _lost(surroundings: Mapping[str, Measured], name: str) -> list[str]:
    found = surroundings.get(name)
    return found.lost if found else []


def candidates_of(contest: Contest, variants: Sequence[SearchVariant]) -> list[SearchCandidate]:
    """Each variant with its results in the short runs, the best first."""
    better = find_metric(contest.metric).better_when
    sign = 1.0 if better == "higher" else -1.0
    found = rank(contest.names, contest.reference, contest.steps)
    found = sorted([*found, Ranked(contest.reference, 0.0, None, _rounds(contest))], key=_gain)
    best = max(candidate.gain for candidate in found)
    by_name = {variant.name: variant for variant in variants}
    listed = []
    for candidate in found:
        variant = by_name.get(candidate.name)
        ends = (
            sorted((sign * candidate.interval.low, sign * candidate.interval.high))
            if candidate.interval
            else None
        )
        is_known = math.isfinite(candidate.gain)
        listed.append(
            SearchCandidate(
                name="today" if candidate.name == TODAY else candidate.name,
                changes=list(variant.changes) if variant else [],
                reason=variant.reason if variant else "",
                ratio=math.exp(sign * candidate.gain) if is_known else None,
                low=math.exp(ends[0]) if ends else None,
                high=math.exp(ends[1]) if ends else None,
                level=candidate.interval.level if candidate.interval else None,
                regret_ratio=math.exp(best - candidate.gain) if is_known else None,
                rounds=candidate.rounds,
                confirmed=candidate.name in contest.finalists,
            )
        )
    return listed


def _gain(one: Ranked) -> float:
    return -one.gain


def _rounds(contest: Contest) -> int:
    """The number of rounds, counted by the reference, which takes part in all of them."""
    return sum(max(map(len, step.values()), default=0) for step in contest.steps)
