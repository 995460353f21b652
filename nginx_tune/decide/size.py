"""Capacity of a host, and the memory and disks for a rate, by the model of the decisions.

Each host in the table is this host with other memory or disks. The inputs are those of the
decisions, so the row of this host agrees with ``recommend``. Each figure is computed three times:
with expected inputs, and with all assumed inputs at the worse and at the better end of their
ranges. The model's errors widen the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace as replace_struct

from nginx_tune.decide.answer import LEARN_COMMAND, Quantity, known
from nginx_tune.decide.carried import (
    P99,
    RangeEnd,
    carried,
    goal_at,
    is_prediction,
    seconds_at,
    sent_ratio,
    server_at,
    servers,
)
from nginx_tune.decide.engine import declared_evidence, situation_of
from nginx_tune.decide.model.answers import AnswerGoal, Server, best_server
from nginx_tune.decide.model.cache import hit_ratio
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.other_hosts import (
    link_sold,
    memory_sold,
    with_more_disks,
    with_more_memory,
    with_other_disks,
)
from nginx_tune.decide.pool_judgement import measure_disks, with_places
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.facts import DiskClass, Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.sizing import (
    DiskChoice,
    LatencyPoint,
    MemoryBoundary,
    MissPoint,
    SizedHost,
    SizeRange,
    SizeVerdict,
    Sizing,
)
from nginx_tune.documents.units import bytes_text
from nginx_tune.documents.workload import Workload
from nginx_tune.errors import UndecidedError

_KEPT_BUSY = 0.95
_ROWS = 5
_LEAST_CACHE_SHARE = 0.05
"""Smallest page cache, as a share of the memory."""
_MOST_MEMORY = 1 << 46
_FASTER: Mapping[str, Sequence[DiskClass]] = {
    "hdd": ("ssd", "nvme"),
    "card": ("ssd", "nvme"),
    "ssd": ("nvme",),
    "network": ("ssd", "nvme"),
    "virtual": ("ssd", "nvme"),
    "unknown": ("ssd", "nvme"),
}
"""Disk classes to compare with the host's own class if no prices are given."""
_CURVE_POINTS = 24
_NO_LOAD = 1e-6
"""The share of a host's rate at which no answer has to wait for another."""
_BISECTIONS = 12


class Prices(NamedTuple):
    """Prices, in any currency and for any period."""

    of_memory_byte: float | None = None
    of_disk: Mapping[str, float] = {}
    """Price of one disk, by class."""


_NO_PRICES = Prices()


@dataclass(frozen=True)
class SizeRequest:
    """The demand on a host."""

    goal: AnswerGoal | None
    """Limit on response times; None for the capacity of the resources alone."""
    objective: str = ""
    """The goal as written."""
    objective_provenance: Provenance = "declared"
    prices: Prices = _NO_PRICES


def size_hosts(facts: Facts, workload: Workload, *, site: Site, request: SizeRequest) -> HostSizes:
    """The hosts for a workload.

    Errors: none here; the methods of the result raise UndecidedError if the size of data, objects
            or page cache is not known.
    """
    return HostSizes(situation_of(facts, workload, site=site), request)


class DiskColumn(NamedTuple):
    """A choice of disks, and the situation of this host with these disks."""

    choice: DiskChoice
    situation: Situation


@dataclass(frozen=True)
class HostSizes:
    """One host with its workload and the demand."""

    situation: Situation
    request: SizeRequest

    @cached_property
    def inputs(self) -> BlockingInputs:
        """The model's inputs of the host as it is."""
        found = self.situation.blocking_inputs
        if found is None or self.situation.kind == "proxy":
            raise _undecided(self.situation)
        return found

    @cached_property
    def memory_bytes(self) -> float:
        """Memory of the host as it is."""
        cache = self.situation.page_cache.value or 0.0
        return float(max(self.situation.memory_bytes or 0, cache))

    @property
    def asked(self) -> Quantity:
        """The requested rate."""
        return self.situation.rate

    @cached_property
    def columns(self) -> Sequence[DiskColumn]:
        """The host's disks, a larger number of its disks, and other classes."""
        s = self.situation
        own = sorted({disk.class_ for disk in s.disks})
        name = "+".join(own) or s.network_filesystem or "unknown"
        count = max(1, len(s.disk.parts))
        choice = DiskChoice(count=count, class_name=name, is_own=True, provenance=s.disk.provenance)
        found = [DiskColumn(choice, s)]
        if not s.disks:  # there are no disks to replace
            return found
        for times in (2, 4):
            more = situation_of(with_more_disks(s, times), s.workload, site=s.site)
            found.append(DiskColumn(replace_struct(choice, count=times * count), more))
        priced = [name for name in self.request.prices.of_disk if name not in own]
        for other in priced or (_FASTER.get(own[0], ()) if len(own) == 1 else ()):
            changed = situation_of(with_other_disks(s, other), s.workload, site=s.site)
            found.append(DiskColumn(DiskChoice(count=count, class_name=other), changed))
        return found

    def _with_memory(self, column: DiskColumn, memory_bytes: float) -> Situation:
        """The situation with that memory; it differs only for a cache, whose keys take memory."""
        s = column.situation
        if s.kind != "cache":
            return s
        place = (column.choice.count, column.choice.class_name, memory_bytes)
        if place not in self._moved:
            more = memory_bytes - self.memory_bytes
            facts = with_more_memory(s.facts, more)
            self._moved[place] = situation_of(facts, s.workload, site=s.site)
        return self._moved[place]

    @cached_property
    def _moved(self) -> dict[tuple[int, str, float], Situation]:
        return {}

    def server(
        self, column: DiskColumn, memory_bytes: float, end: RangeEnd = RangeEnd.EXPECTED
    ) -> Server:
        """The model of this host with that memory and those disks."""
        s, more = self._with_memory(column, memory_bytes), memory_bytes - self.memory_bytes
        i = s.blocking_inputs
        if i is None:
            raise _undecided(s)
        i = replace(i, workers=self.inputs.workers)
        if s.kind != "cache":
            i = replace(i, page_cache_bytes=max(1.0, i.page_cache_bytes + more))
        return server_at(s, i, end)

    def host(self, number: int, memory_bytes: float) -> SizedHost:
        """One row of the table."""
        column, asked = self.columns[number], self.asked.value
        here = {end: self.server(column, memory_bytes, end) for end in RangeEnd}
        goal = self.request.goal
        best, (worst, least), expected, found = carried(here, goal)
        seconds = None if asked is None else seconds_at(here, goal or P99, asked)
        verdict = None if asked is None else _verdict(found.low, found.high, asked)
        binds = best.binding_at(expected, goal)
        if verdict == "in_doubt":
            binds = worst.binding_at(least, goal_at(goal, RangeEnd.WORSE))
        return SizedHost(
            memory_bytes=round(memory_bytes),
            disks=number,
            is_this=number == 0 and memory_bytes == self.memory_bytes,
            carried_per_second=found,
            is_prediction=is_prediction(found),
            verdict=verdict,
            binds=binds,
            pools=best.pools,
            workers=best.inputs.workers,
            hit_ratio=1 - here[RangeEnd.EXPECTED].inputs.miss_ratio,
            origin_per_second=self._to_origin(column, memory_bytes, asked or expected),
            seconds=seconds if seconds is not None and is_prediction(seconds) else None,
            cost=self._cost(column.choice, memory_bytes),
        )

    def _cost(self, disks: DiskChoice, memory_bytes: float) -> float | None:
        prices = self.request.prices
        each = prices.of_disk.get(disks.class_name)
        if each is None or prices.of_memory_byte is None:
            return None
        return prices.of_memory_byte * memory_bytes + each * disks.count

    def _to_origin(self, column: DiskColumn, memory_bytes: float, rate: float) -> float | None:
        """Requests per second that miss a cache of that size; None for other kinds.

        nginx's manager removes the least recently used objects, as in Che's approximation.
        """
        s = column.situation
        data, mean = s.workload.dataset.bytes, s.object_bytes.value
        if s.kind != "cache" or not data or not mean:
            return None
        kept = self._with_memory(column, memory_bytes).dataset_bytes.value
        if kept is None:
            return None
        return rate * (1 - hit_ratio(s.popularity_classes(float(data)), kept / mean))

    def memories(self) -> list[float]:
        """Memory sizes of the table: this host's, about half, and more until all data fits."""
        this = self.memory_bytes
        least = (this - (self.situation.page_cache.value or 0.0)) / (1 - _LEAST_CACHE_SHARE)
        half = memory_sold(this / 2)
        rows = [half, this] if least < half < this else [this]
        while len(rows) < _ROWS and rows[-1] < _MOST_MEMORY:
            servers = [self.server(column, rows[-1]) for column in self.columns]
            if all(server.inputs.miss_ratio <= 0 for server in servers):
                break
            rows.append(memory_sold(2 * rows[-1]))
        return rows

    def boundary(self, number: int) -> MemoryBoundary:
        """The memory that the disks of a column need for the requested rate."""
        column, asked = self.columns[number], self.asked.value or 0.0
        expected, worse, better = (self._least_memory(column, asked, end) for end in RangeEnd)
        if expected is None:
            return MemoryBoundary(disks=number, reason="no memory is enough")
        if better is None or expected <= self._smallest:
            surely = "no memory is sure to be" if worse is None else f"surely {bytes_text(worse)}"
            is_sure = worse is not None and worse <= self._smallest
            reason = "any memory is enough" if is_sure else f"any memory may be enough, {surely}"
            return MemoryBoundary(disks=number, reason=reason)
        if worse is None:
            return MemoryBoundary(
                disks=number, reason=f"about {bytes_text(expected)}, or no memory is enough"
            )
        return MemoryBoundary(
            disks=number,
            memory_bytes=SizeRange(
                low=min(better, expected), expected=expected, high=max(worse, expected)
            ),
        )

    @cached_property
    def _smallest(self) -> float:
        """Minimum memory with which the host would still run."""
        other = self.memory_bytes - (self.situation.page_cache.value or 0.0)
        return max(64.0 * (1 << 20), other / (1 - _LEAST_CACHE_SHARE))

    def _least_memory(self, column: DiskColumn, asked: float, end: RangeEnd) -> float | None:
        """Minimum memory with which the host carries the rate; None if no memory suffices."""
        goal = goal_at(self.request.goal, end)

        def carries(memory_bytes: float) -> bool:
            server = self.server(column, memory_bytes, end)
            return best_server(server, goal, over=asked)[1] >= asked

        low, high = self._smallest, 4 * self.memory_bytes + 2 * self.inputs.dataset_bytes
        if not carries(high):
            return None
        if carries(low):
            return low
        for _ in range(_BISECTIONS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if carries(middle) else (middle, high)
        return high

    def sizing(self) -> Sizing:
        """The complete sizing document."""
        request, asked = self.request, self.asked
        evidence = known(*self._rests_on())
        hosts = [
            self.host(number, memory)
            for memory in self.memories()
            for number in range(len(self.columns))
        ]
        goal = request.goal
        this = self.server(self.columns[0], self.memory_bytes)
        pooled = replace(this, pools=True).carries(goal)
        unpooled = replace(this, pools=False).carries(goal)
        here = servers(self.situation, self.inputs)
        without_objective = None if goal is None else carried(here, None).range
        alone = None
        if goal is not None and pooled == unpooled == 0:
            ends = {end: self.server(self.columns[0], self.memory_bytes, end) for end in RangeEnd}
            alone = seconds_at(ends, goal, _NO_LOAD * this.most_per_second)
        rate = asked.value
        cpus, link = self._needs(this, rate)
        return Sizing(
            kind=self.situation.kind,
            objective=request.objective,
            objective_provenance=request.objective_provenance,
            asked_per_second=rate,
            asked_provenance=asked.provenance,
            columns=[column.choice for column in self.columns],
            hosts=hosts,
            with_pools_per_second=pooled,
            without_pools_per_second=unpooled,
            without_objective_per_second=without_objective,
            alone_seconds=alone,
            cheapest=_cheapest(hosts, [column.choice for column in self.columns]),
            boundaries=[]
            if rate is None
            else [self.boundary(number) for number in range(len(self.columns))],
            least_cpus=cpus,
            least_link_bits_per_second=link,
            misses=list(self.misses()),
            latencies=list(_latencies(best_server(this, goal), goal)),
            evidence=declared_evidence(evidence) if self.situation.facts.declared else evidence,
            next_command=self._next_command(hosts),
        )

    def _needs(self, this: Server, rate: float | None) -> tuple[int | None, int | None]:
        """CPUs, and the speed of the link in bits per second, that a rate needs at least."""
        if rate is None:
            return None, None
        cpus = rate / (this.bounds["cpu"] / self.inputs.workers) / _KEPT_BUSY
        size = self.inputs.object_bytes
        link = rate * size * sent_ratio(self.situation, size) * 8 / _KEPT_BUSY
        return max(1, math.ceil(cpus)), link_sold(link)

    def misses(self) -> Iterator[MissPoint]:
        """Miss ratios by memory, from an eighth of the host's until all data fits, or 64 times."""
        low = max(self._smallest, self.memory_bytes / 8)
        fits = self.memory_bytes + self.inputs.footprint_bytes * self.inputs.objects / 0.9
        high = min(64 * self.memory_bytes, max(2 * self.memory_bytes, fits))
        for step in range(_CURVE_POINTS):
            memory = low * (high / low) ** (step / (_CURVE_POINTS - 1))
            miss = self.server(self.columns[0], memory).inputs.miss_ratio
            yield MissPoint(memory_bytes=round(memory), miss_ratio=miss)

    def _rests_on(self) -> Sequence[Quantity]:
        s = self.situation
        popularity: Quantity = s.exponent
        if s.workload.popularity.curve:
            points = float(len(s.workload.popularity.curve))
            source = s.workload.popularity.provenance
            popularity = Quantity("workload.popularity.curve", points, "points", source)
        cpu, i = s.workload.cpu_per_request, self.inputs
        ratio, sizes = sent_ratio(s, i.object_bytes), s.workload.sizes
        sent = Quantity(
            "mean bytes of an answer", ratio * i.object_bytes, "bytes", sizes.provenance
        )
        return (
            s.dataset_bytes,
            popularity,
            s.object_bytes,
            *([sent] if ratio < 1 else []),
            s.page_cache,
            Quantity("time of a disk read", i.disk.latency_seconds, "s", s.disk.provenance),
            s.link_bytes_per_second,
            s.client_rate,
            Quantity(
                "worker processes",
                float(self.inputs.workers),
                provenance="measured" if s.workers_are_known else "assumed",
            ),
            Quantity(
                "CPU of a request",
                cpu.mean_seconds or server_at(s, i, RangeEnd.EXPECTED).request_cpu_seconds,
                "s",
                cpu.provenance if cpu.mean_seconds is not None else "assumed",
            ),
        )

    def _next_command(self, hosts: Sequence[SizedHost]) -> str:
        s = self.situation
        if all(host.verdict == "cannot" for host in hosts):
            return ""  # not even with the better end of all that is assumed
        if s.disk.provenance == "assumed" and s.disks:
            return measure_disks(s)
        if "assumed" in (s.exponent.provenance, s.dataset_bytes.provenance):
            return with_places(s, LEARN_COMMAND)
        return ""


def _undecided(s: Situation) -> UndecidedError:
    if s.kind == "proxy":
        return UndecidedError(
            "a proxy without a cache reads no files: only its origin and CPUs limit it",
            hint="use --kind cache for a proxy with a cache",
        )
    inputs = [
        (s.dataset_bytes.value, "data", "give --dataset DIR or a workload from learn"),
        (s.page_cache.value, "page cache", "give facts from inspect"),
        (s.object_bytes.value, "objects", "give --dataset DIR or a workload from learn"),
    ]
    what, hint = next((what, hint) for value, what, hint in inputs if not value)
    return UndecidedError(f"the size of the {what} is not known", hint=hint)


def _verdict(low: float, high: float, asked: float) -> SizeVerdict:
    if low >= asked:
        return "carries"
    return "cannot" if high < asked else "in_doubt"


def _cheapest(hosts: Sequence[SizedHost], columns: Sequence[DiskChoice]) -> int | None:
    sure = [(host, place) for place, host in enumerate(hosts) if host.verdict == "carries"]
    priced = [(host, place) for host, place in sure if host.cost is not None]
    if priced:
        return min(priced, key=lambda one: one[0].cost or 0.0)[1]

    def size(one: tuple[SizedHost, int]) -> tuple[bool, bool, int, int]:
        host, disks = one[0], columns[one[0].disks]
        return not host.is_this, not disks.is_own, disks.count, host.memory_bytes

    return min(sure, key=size)[1] if sure else None


def _latencies(found: tuple[Server, float], goal: AnswerGoal | None) -> Iterator[LatencyPoint]:
    """The goal's statistic, or the 99th percentile, at rates up to capacity."""
    server, _ = found
    statistic = "p99" if goal is None else goal.statistic
    hits = goal is not None and goal.hits
    for step in range(1, _CURVE_POINTS + 1):
        rate = server.most_per_second * 0.98 * step / _CURVE_POINTS
        answers = server.answers_at(rate)
        if answers is None:
            return
        seconds = answers.seconds(statistic, hits=hits)
        if not math.isfinite(seconds):
            return
        yield LatencyPoint(per_second=rate, seconds=seconds)
