"""All decisions for one host, workload and site.

This module enforces a law on every decision. A setting is not written if harm is its own expected
effect. A setting is proposed, not written, if an assumed input could flip it. A range wider than a
factor of ten does not count as a prediction.

A sweep repeats a decision with other values of one fact, to show where the verdict flips.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.decide.accepting import decide_accept, decide_backlog, decide_reuseport
from nginx_tune.decide.access_log import decide_access_log
from nginx_tune.decide.answer import ALL_AS_DECIDED, FACTS_COMMAND, LEARN_COMMAND, Pinned, Quantity
from nginx_tune.decide.bodies import decide_gzip, decide_ktls, decide_output_buffers
from nginx_tune.decide.cache_fetches import decide_cache_misses, decide_cache_updates, decide_slice
from nginx_tune.decide.cache_layout import decide_cache_key, decide_cache_layout
from nginx_tune.decide.carried import WIDEST, headline
from nginx_tune.decide.defaults import complete_site, plausible_facts, plausible_workload
from nginx_tune.decide.disk_reads import decide_directio, decide_read_ahead
from nginx_tune.decide.observed import with_observation
from nginx_tune.decide.open_file_cache import decide_open_file_cache, open_files
from nginx_tune.decide.pool_judgement import with_places
from nginx_tune.decide.pool_plan import PoolPlan, plan_pools, workers_for_disks
from nginx_tune.decide.pool_sizes import decide_per_disk_pools, decide_thread_pool_size
from nginx_tune.decide.protocols import decide_http2, decide_http3
from nginx_tune.decide.sendfile import decide_sendfile, decide_sendfile_max_chunk
from nginx_tune.decide.sensitivity import (
    DATA,
    FLIPS,
    MEMORY,
    MOVABLE,
    Decide,
    moved_documents,
    with_break_evens,
)
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.thread_pools import decide_aio_write, decide_thread_pools
from nginx_tune.decide.upstreams import decide_streaming, decide_upstream_keepalive
from nginx_tune.decide.workers import decide_connections, decide_file_limits, decide_workers
from nginx_tune.decide.workload.profiles import bytes_beside_caches, scans_of_caches, workload_for
from nginx_tune.documents.decisions import (
    Decision,
    DecisionId,
    Decisions,
    Evidence,
    Predicted,
    Setting,
)
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.site import Site
from nginx_tune.documents.units import LEAST_SECONDS
from nginx_tune.documents.workload import Kind, Workload

ALL: tuple[Decide, ...] = (
    decide_thread_pools,
    decide_thread_pool_size,
    decide_per_disk_pools,
    decide_aio_write,
    decide_cache_layout,
    decide_cache_key,
    decide_cache_misses,
    decide_cache_updates,
    decide_slice,
    decide_sendfile,
    decide_sendfile_max_chunk,
    decide_output_buffers,
    decide_directio,
    decide_open_file_cache,
    decide_workers,
    decide_connections,
    decide_file_limits,
    decide_accept,
    decide_reuseport,
    decide_backlog,
    decide_upstream_keepalive,
    decide_access_log,
    decide_read_ahead,
    decide_ktls,
    decide_http2,
    decide_http3,
    decide_streaming,
    decide_gzip,
)


def decide(
    facts: Facts,
    workload: Workload,
    *,
    site: Site,
    observation: Observation | None = None,
    stays: Pinned = ALL_AS_DECIDED,
) -> Decisions:
    """All decisions, in the order in which an operator would read them.

    Observed values replace assumed values. ``stays`` has the values of a configuration that will
    not change; the other numbers are chosen to fit them. The result depends only on the inputs.
    """
    situation = situation_of(facts, workload, site=site, observation=observation, stays=stays)
    first = headline(situation)
    others = elsewhere(situation)
    plan = _settled(situation, plan_pools(situation), others)
    situation = _with_open_files(situation, plan, others)
    answers = [
        (decide, with_break_evens(decide, decide(situation, plan), situation, plan))
        for decide in ALL
    ]
    is_assumed = situation.workload.kind_provenance == "assumed"
    made = Decisions(
        kind=situation.kind,
        kind_provenance=situation.workload.kind_provenance,
        nginx_choice=situation.facts.nginx.choice,
        headline=first.cannot,
        binding=first.binding,
        bindings=first.bindings,
        decisions=[
            replace(
                unsure_of_kind(kept, assumed=is_assumed),
                next_command=with_places(situation, kept.next_command),
            )
            for decide, answer in answers
            for kept in (keep_law(decide, answer, plan, others),)
        ],
        unknown=situation.facts.unknown,
    )
    return as_declared(made) if facts.declared else made


def _with_open_files(s: Situation, plan: PoolPlan, others: Sequence[Elsewhere]) -> Situation:
    """The situation; an open file cache that is only proposed takes no descriptors in it."""
    if not open_files(s):
        return s
    kept = keep_law(decide_open_file_cache, decide_open_file_cache(s, plan), plan, others)
    if kept.settings or s.stays.open_files is not None:
        return s
    return dataclasses.replace(s, stays=dataclasses.replace(s.stays, open_files=0))


def declared_evidence(found: Sequence[Evidence]) -> list[Evidence]:
    """The evidence of a described host, with provenance "declared" instead of "measured"."""
    return [
        replace(evidence, provenance="declared") if evidence.provenance == "measured" else evidence
        for evidence in found
    ]


def as_declared(decisions: Decisions) -> Decisions:
    """The decisions for a described host, with provenance "declared" instead of "measured"."""

    def settings(found: Sequence[Setting]) -> list[Setting]:
        return [
            replace(decision, evidence=declared_evidence(decision.evidence)) for decision in found
        ]

    return replace(
        decisions,
        bindings=[
            replace(binding, provenance="declared") if binding.provenance == "measured" else binding
            for binding in decisions.bindings
        ],
        decisions=[
            replace(
                decision,
                evidence=declared_evidence(decision.evidence),
                settings=settings(decision.settings),
                proposed=settings(decision.proposed),
            )
            for decision in decisions.decisions
        ],
    )


def situation_of(
    facts: Facts,
    workload: Workload,
    *,
    site: Site,
    observation: Observation | None = None,
    stays: Pinned = ALL_AS_DECIDED,
) -> Situation:
    """The situation to decide on, with defaults filled in and impossible numbers removed.

    See ``workload_for`` and ``complete_site``.
    """
    facts = plausible_facts(facts)
    site = complete_site(site, facts, workload.kind, workload)
    beside = bytes_beside_caches(facts.datasets, site)
    if workload.kind == "cache":  # scans of other files do not describe cached objects
        facts = replace(facts, datasets=scans_of_caches(facts.datasets, site))
    workload = workload_for(None, facts, plausible_workload(workload))
    workload = plausible_workload(with_observation(workload, observation))
    found = Situation(facts, workload, site, observation, stays=stays, files_beside_bytes=beside)
    fewer = workers_for_disks(found)
    return found if fewer is None else dataclasses.replace(found, disk_workers=fewer)


NARROW_SHARE = 0.05
"""Width below which a range of shares counts as a prediction, with any ratio of its ends."""
_MORE_IS_BETTER = ("requests_per_second", "bytes_per_second")
_LESS_IS_BETTER = ("mean", "p50", "p90", "p99", "p999", "cpu_seconds_per_request")
_CHANGES = ("enable", "raise", "lower", "set")
_FACTOR = 4.0
_EXPONENT_STEP = 0.3


class Elsewhere(NamedTuple):
    """The situation with one assumed input at an end of its plausible range."""

    name: str
    command: str
    """The command that supplies the input."""
    situation: Situation
    plan: PoolPlan


def elsewhere(s: Situation) -> list[Elsewhere]:
    """For each assumed input of the workload, two situations: at either end of its range."""
    return [
        Elsewhere(name, command, moved, plan_pools(moved))
        for name, command, workload in _moved_inputs(s.workload, s)
        for moved in (dataclasses.replace(s.with_workload(workload), is_moved=True),)
    ]


_OF_POOLS = frozenset[DecisionId](
    {"thread-pools", "thread-pool-size", "per-disk-pools", "aio-write"}
)


def keep_law(
    decide: Decide, decision: Decision, plan: PoolPlan, others: Sequence[Elsewhere]
) -> Decision:
    """The decision as the law allows it; ``others`` comes from ``elsewhere``.

    Decisions about pools are repeated in each other situation with its own pools, all other
    decisions with the pools that will be written.
    """
    predicted = [_without_dust(p) for p in decision.predicted if is_prediction(p)]
    decision = replace(decision, predicted=predicted)
    doubt = _doubt(decide, decision, plan, others)
    return decision if doubt is None else _only_proposed(decision, *doubt)


def _doubt(
    decide: Decide, decision: Decision, plan: PoolPlan, others: Sequence[Elsewhere]
) -> tuple[str, str] | None:
    """The reason why the law does not let a decision be written, and the command that settles it.

    None if the law allows the decision.
    """
    if not decision.settings or decision.verdict not in _CHANGES:
        return None
    predicted = (p for p in decision.predicted if is_prediction(p))
    harm = next((p for p in predicted if says_harm(p)), None)
    if harm is not None:
        return f"{harm.metric} is predicted at {harm.expected:.3g}", ""
    for other in others:
        pools = other.plan if decision.id in _OF_POOLS else plan
        if decide(other.situation, pools).verdict != decision.verdict:
            return f"it depends on {other.name}, which is only assumed", other.command
    return None


_WRITTEN_TOGETHER: dict[str, tuple[Decide, ...]] = {
    "shared": (decide_thread_pools,),
    "hot_and_cold": (decide_thread_pools, decide_thread_pool_size),
    "per_disk": (decide_per_disk_pools,),
}
"""By mode of a pool plan, the decisions whose lines nginx needs together or not at all."""


def _settled(s: Situation, plan: PoolPlan, others: Sequence[Elsewhere]) -> PoolPlan:
    """The plan; off, with its pools proposed, if the law does not let them be written."""
    for decide in _WRITTEN_TOGETHER.get(plan.mode, ()):
        written = decide(s, plan)
        doubt = _doubt(decide, written, plan, others)
        if doubt is not None:
            break
    else:
        return plan
    reason, command = doubt
    judgement = dataclasses.replace(
        plan.judgement,
        verdict="not_enough_evidence",
        reason=f"{plan.judgement.reason}; {reason}",
        needs_measurement=True,
        next_command=command or written.next_command,
    )
    return PoolPlan(judgement, "off", plan.independence, proposed=plan)


def unsure_of_kind(decision: Decision, *, assumed: bool) -> Decision:
    """The decision; its confidence is at most medium if the kind of site is only assumed."""
    if not assumed or decision.confidence != "high":
        return decision
    return replace(decision, confidence="medium")


def is_prediction(p: Predicted) -> bool:
    """True if a range is narrow enough to be a prediction."""
    if p.unit == "" and p.high <= 1 and p.high - p.low <= NARROW_SHARE:
        return True
    if p.unit == "s" and p.high <= WIDEST * LEAST_SECONDS:
        return True  # too short to be measured
    return p.low > 0 and p.high <= WIDEST * p.low


def _without_dust(p: Predicted) -> Predicted:
    """The prediction, with times that are too short to measure set to 0."""
    if p.unit != "s" or p.low >= LEAST_SECONDS:
        return p
    low, expected, high = (
        value if value >= LEAST_SECONDS else 0.0 for value in (p.low, p.expected, p.high)
    )
    return replace(p, low=low, expected=expected, high=high)


def says_harm(p: Predicted) -> bool:
    """True if the expected value of a ratio is on the wrong side of one."""
    if not p.metric.startswith("ratio("):
        return False
    name = p.metric.removeprefix("ratio(").partition(")")[0].rpartition(".")[2]
    if name in _MORE_IS_BETTER:
        return p.expected < 1
    return name in _LESS_IS_BETTER and p.expected > 1


def _only_proposed(decision: Decision, reason: str, command: str = "") -> Decision:
    return replace(
        decision,
        verdict="not_enough_evidence",
        summary=f"Unchanged: {reason}. Otherwise: {decision.summary}",
        settings=[],
        proposed=[*decision.settings, *decision.proposed],
        confidence="low",
        flips_when=[f"measured: {reason}"],
        break_evens=[],  # these are for the verdict before
        next_command=command or decision.next_command,
    )


def _moved_inputs(w: Workload, s: Situation) -> Iterator[tuple[str, str, Workload]]:
    p, c, r = w.popularity, w.concurrency, w.rate
    if p.provenance == "assumed" and p.exponent is not None and not p.curve:
        for step in (-_EXPONENT_STEP, _EXPONENT_STEP):
            moved = replace(p, exponent=max(0.0, p.exponent + step))
            yield "the popularity of the files", LEARN_COMMAND, replace(w, popularity=moved)
    if c.provenance == "assumed" and s.concurrency.value is not None:
        for factor in (1 / _FACTOR, _FACTOR):
            moved_c = replace(c, peak=s.concurrency.value * factor)
            yield "the number of transfers", LEARN_COMMAND, replace(w, concurrency=moved_c)
    if r.provenance == "assumed" and s.rate.value is not None:
        for factor in (1 / _FACTOR, _FACTOR):
            moved_r = replace(r, peak_per_second=s.rate.value * factor)
            yield "the rate of requests", LEARN_COMMAND, replace(w, rate=moved_r)
    if w.dataset.provenance == "assumed" and w.dataset.bytes:
        for factor in (1 / 2, 2.0):
            moved_d = replace(w.dataset, bytes=round(w.dataset.bytes * factor))
            yield "the size of the data", FACTS_COMMAND, replace(w, dataset=moved_d)


FACTORS = (1 / 64, 1 / 8, 1 / 2, 1.0, 2.0, 8.0, 64.0)
NEAR = 0.02
"""Relative distance from a break-even to the values that a sweep tries on both sides."""


class Case(NamedTuple):
    """All that decisions are made from."""

    facts: Facts
    workload: Workload
    site: Site
    observation: Observation | None = None

    def decide(self, stays: Pinned = ALL_AS_DECIDED) -> Decisions:
        """The decisions, with the current values that stay."""
        return decide(
            self.facts, self.workload, site=self.site, observation=self.observation, stays=stays
        )


def case_of(
    facts: Facts,
    given: Workload | None,
    site: Site,
    kind: Kind | None = None,
    observation: Observation | None = None,
) -> Case:
    """The case with defaults filled in; ``kind`` takes precedence over that of the workload."""
    site = complete_site(site, facts, kind or (given or Workload()).kind, given)
    workload = workload_for(kind, facts, given, site=site)
    return Case(facts, workload, site, observation)


class SweepStep(NamedTuple):
    """A decision with one fact at one value."""

    fact: str
    value: float
    unit: str
    verdict: str
    is_now: bool
    flips: bool
    """True if the verdict differs from the verdict at the previous value."""


def sweep(name: str, facts: Facts, workload: Workload, site: Site) -> list[SweepStep]:
    """The decision over a range of each fact that may flip it, around its current value.

    Shape: ascending values for each fact: powers of eight, and both sides of each break-even.
           Empty where no known fact flips it.
    """
    situation = situation_of(facts, workload, site=site)
    now = _decided(name, facts, workload, site)
    flips = FLIPS.get(now.id)
    names = dict.fromkeys([*(b.fact for b in now.break_evens), *(flips.facts if flips else ())])
    steps: list[SweepStep] = []
    for fact in names:
        quantity = _quantity(fact, situation)
        if quantity is not None and quantity.value:
            at = [b.value for b in now.break_evens if b.fact == fact]
            steps += _swept(name, quantity, at, (facts, workload, site))
    return steps


def _swept(
    name: str, quantity: Quantity, at: list[float], inputs: tuple[Facts, Workload, Site]
) -> Iterator[SweepStep]:
    now = quantity.value or 0.0
    near = [value * side for value in at for side in (1 - NEAR, 1 + NEAR)]
    before = None
    for value in sorted({*(now * factor for factor in FACTORS), *near}):
        verdict = _decided(name, *_moved(quantity.fact, value, *inputs)).verdict
        flips = before is not None and verdict != before
        yield SweepStep(quantity.fact, value, quantity.unit, verdict, value == now, flips)
        before = verdict


def _decided(name: str, facts: Facts, workload: Workload, site: Site) -> Decision:
    found = decide(facts, workload, site=site).decisions
    return next(decision for decision in found if decision.id == name)


def _quantity(fact: str, s: Situation) -> Quantity | None:
    if fact == DATA:
        return s.dataset_bytes if s.dataset_bytes.fact == fact else None
    if fact in MEMORY:
        return s.page_cache if s.page_cache.fact == fact else None
    movable = MOVABLE.get(fact)
    return None if movable is None else movable.read(s)


def _moved(
    fact: str, value: float, facts: Facts, workload: Workload, site: Site
) -> tuple[Facts, Workload, Site]:
    moved = moved_documents(facts, workload, fact, value)
    return (facts, workload, site) if moved is None else (*moved, site)
