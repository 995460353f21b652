"""Times of whole answers at a request rate, and the resource that takes most of them.

Answers wait for CPU and the link, and misses of the page cache also for the disks. Each is a queue
fed at the stated rate, and an answer's time is the sum of its service and waiting times in all of
them. Without thread pools a miss holds its loop, and all others on that loop wait (``blocking``);
with pools the miss alone waits, for the disks.

A wait is 0 if the resource is free, and exponential otherwise. Means and variances of the parts add
up. The distribution of the sum is exponential beyond its mean.

In this model, more of a resource never makes an answer slower. Two effects that contradict this are
left out: a slow link hides reads from the loop, since the kernel reads ahead, and a second loop
without pools moves the head of a hard disk back and forth. The request rate is given. In reality,
clients that wait for their answers request more when answers are faster.

Source: Allen and Cunneen's M/G/k for a disk with several heads, Pollaczek-Khinchine for a worker,
        processor sharing for the link (Kleinrock, Queueing Systems 2, 1976, 4.4); held against a
        simulation in tests/model/test_model_answers.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from nginx_tune.decide.model.blocking import (
    BUSY_HOST_SECONDS,
    DISK_READ_CPU_SECONDS,
    OFFLOAD_SECONDS,
    REQUEST_CPU_SECONDS,
    predict,
)
from nginx_tune.decide.model.disk import ModelDisk
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.reads import SENDFILE_CHUNK_BYTES, SizeGroup
from nginx_tune.decide.model.sending import send_seconds
from nginx_tune.decide.model.waiting import erlang_c
from nginx_tune.documents.sizing import AnswerResource

_BUSY_HOST_SPREAD = 1.5
"""Coefficient of variation of an answer's time on a host whose loops never block: mean 0.3 ms, 99th
percentile 2 ms, both as measured (``blocking``)."""
_BEYOND_MEAN = math.exp(-1)
"""Probability that an exponential time exceeds its mean."""
_SELDOM = 1e-9
"""The share of waiting reads below which it counts as 0, since its square would underflow."""
_PRECISE = 1e-4
"""Relative precision of a time."""
_ROUNDING = 1e-9
"""Relative error of a sum of shares. If one answer in ten is large, the 90th percentile is a time
of the others, whichever way the sum is rounded."""
_KEEPS_UP = 0.95
"""Highest utilisation of a resource at which it counts as keeping up."""
_LEAST_SHARE = 1e-6
"""Lowest rate to try, as a share of the greatest. If the goal is missed there, it is missed at any
rate."""
_PRECISION = 1.004
"""Precision of a rate that is found, as a factor."""
Statistic = Literal["mean", "p50", "p90", "p99", "p999"]
_BEYOND: dict[Statistic, float] = {"p50": 0.5, "p90": 0.1, "p99": 0.01, "p999": 0.001}


class AnswerPart(NamedTuple):
    """The part of an answer's time that one resource takes."""

    resource: AnswerResource
    seconds: float
    variance: float = 0.0
    waits_ratio: float = 0.0
    """Share of the answers that find the resource busy."""
    wait_seconds: float = 0.0
    """Mean wait, over all answers."""
    visits: float = 1.0
    """Times that one answer visits the resource; the ratio and mean above are for one visit."""

    @property
    def waited_seconds(self) -> float:
        """Mean wait of all visits."""
        return self.visits * self.wait_seconds

    @property
    def mean_seconds(self) -> float:
        """Mean time, waits included."""
        return self.seconds + self.waited_seconds

    @property
    def wait_variance(self) -> float:
        """Variance of the waits of all visits, each exponential if it is not 0."""
        if self.waits_ratio <= 0:
            return 0.0
        return self.visits * self.wait_seconds**2 * (2 / self.waits_ratio - 1)


class AnswerKind(NamedTuple):
    """Answers of one size, either all from memory or all from a disk."""

    share: float
    is_hit: bool
    steps: Sequence[AnswerPart]
    reads: AnswerPart | None = None
    """The answer's own reads or, without thread pools, the reads for which it waits."""

    @property
    def every_step(self) -> Sequence[AnswerPart]:
        """The steps and the reads."""
        return self.steps if self.reads is None else (*self.steps, self.reads)

    @property
    def mean_seconds(self) -> float:
        """Mean time of such an answer."""
        return BUSY_HOST_SECONDS + sum(step.mean_seconds for step in self.every_step)

    def longer_than(self, seconds: float) -> float:
        """Share of the answers that take longer.

        It is computed separately for answers that wait for reads, which may be few and wait long.
        """
        least = sum(step.seconds for step in self.every_step)
        if seconds < least:
            return 1.0
        mean = BUSY_HOST_SECONDS + least + sum(step.waited_seconds for step in self.steps)
        variance = (_BUSY_HOST_SPREAD * BUSY_HOST_SECONDS) ** 2
        variance += sum(step.variance + step.wait_variance for step in self.steps)
        reads = self.reads
        if reads is None:
            return _beyond(seconds, least, mean, variance)
        variance += reads.variance
        waits = 1 - math.pow(1 - reads.waits_ratio, reads.visits)
        if waits <= 0:
            return _beyond(seconds, least, mean, variance)
        waited = reads.waited_seconds / waits
        squares = (reads.waited_seconds**2 + reads.wait_variance) / waits
        spread = max(0.0, squares - waited**2)
        return (1 - waits) * _beyond(seconds, least, mean, variance) + waits * _beyond(
            seconds, least, mean + waited, variance + spread
        )


def _beyond(seconds: float, least: float, mean: float, variance: float) -> float:
    """Share of times beyond ``seconds``: uniform from ``least`` to the mean, exponential above it.

    The share grows with each of the three parameters, so that more of a resource slows no answer.
    """
    if math.isinf(mean):
        return 1.0
    if seconds < mean:
        return 1 - (1 - _BEYOND_MEAN) * (seconds - least) / (mean - least)
    return _BEYOND_MEAN * math.exp((mean - seconds) / math.sqrt(variance))


@dataclass(frozen=True)
class Answers:
    """All answers at one rate."""

    kinds: Sequence[AnswerKind]
    uses: dict[AnswerResource, float]
    """Utilisation of each resource."""

    def seconds(self, statistic: Statistic, *, hits: bool = False) -> float:
        """A mean or quantile of the answers' times; with ``hits``, of answers from memory alone."""
        kinds = self._of(hits=hits)
        if statistic == "mean":
            whole = sum(kind.share for kind in kinds)
            return sum(kind.share * kind.mean_seconds for kind in kinds) / whole if whole else 0.0
        low, high = 0.0, 1e-3
        while not self._holds(kinds, _BEYOND[statistic], high):
            low, high = high, 4 * high
            if high > 1e9:  # noqa: PLR2004  # thirty years: no bound
                return math.inf
        while high - low > _PRECISE * high:
            middle = (low + high) / 2
            if self._holds(kinds, _BEYOND[statistic], middle):
                high = middle
            else:
                low = middle
        return high

    def meet(self, goal: AnswerGoal) -> bool:
        """True if the answers meet the goal."""
        if goal.statistic == "mean":
            return self.seconds("mean", hits=goal.hits) <= goal.seconds
        return self._holds(self._of(hits=goal.hits), _BEYOND[goal.statistic], goal.seconds)

    def binding(self, goal: AnswerGoal | None) -> AnswerResource:
        """The resource that limits the rate under a goal.

        It takes the most time of those answers that miss the goal most often. Without a goal, it
        is the busiest resource.
        """
        if goal is None:
            return max(self.uses, key=lambda name: self.uses[name])
        kinds = self._of(hits=goal.hits)
        worst = max(kinds, key=lambda kind: kind.share * kind.longer_than(goal.seconds))
        taken: dict[AnswerResource, float] = {}
        for step in worst.every_step:
            taken[step.resource] = taken.get(step.resource, 0.0) + step.mean_seconds
        return max(taken, key=lambda name: taken[name])

    def _of(self, *, hits: bool) -> Sequence[AnswerKind]:
        return [kind for kind in self.kinds if kind.is_hit] if hits else self.kinds

    @staticmethod
    def _holds(kinds: Sequence[AnswerKind], most: float, seconds: float) -> bool:
        whole = sum(kind.share for kind in kinds)
        longer = sum(kind.share * kind.longer_than(seconds) for kind in kinds)
        return longer <= most * whole * (1 + _ROUNDING)


class AnswerGoal(NamedTuple):
    """A bound on a statistic of the answers' times."""

    statistic: Statistic
    seconds: float
    hits: bool = False
    """True if the goal applies only to answers from memory."""


class _ReadDisk(NamedTuple):
    """A disk, or several equal disks, with the share of the reads."""

    disk: ModelDisk
    share: float
    each: float
    """The share of one disk."""


@dataclass(frozen=True)
class Server:
    """A host that serves files, with the time that one request takes on each resource."""

    inputs: BlockingInputs
    """The model's inputs, whose rate and concurrency are not used."""
    pools: bool
    """True if thread pools read files."""
    cpu_seconds: float | None = None
    """CPU of one request, if measured."""
    sent_ratio: float = 1.0
    """Ratio of the bytes sent to the sizes of the requested files."""

    @cached_property
    def _sizes(self) -> Sequence[SizeGroup]:
        return self.inputs.sizes or (SizeGroup(1.0, 1.0),)

    @cached_property
    def _disks(self) -> Sequence[_ReadDisk]:
        """The disks, with one entry for equal disks."""
        found: dict[tuple[float, ModelDisk], int] = {}
        for share, disk in self.inputs.disk.parts or ((1.0, self.inputs.disk),):
            key = share, replace(disk, name="", parts=())
            found[key] = found.get(key, 0) + 1
        return [_ReadDisk(disk, share * n, share) for (share, disk), n in found.items() if share]

    @cached_property
    def request_cpu_seconds(self) -> float:
        """CPU time of one request for a file and of the accompanying requests that read none."""
        i = self.inputs
        others = i.others_per_second / (i.rate_per_second or math.inf) * REQUEST_CPU_SECONDS
        if self.cpu_seconds is not None:
            return self.cpu_seconds + others
        reads = i.miss_ratio * i.disk_reads_per_miss * DISK_READ_CPU_SECONDS
        offload = i.tasks_per_request * OFFLOAD_SECONDS if self.pools else 0.0
        sends = send_seconds(i, i.object_bytes * self.sent_ratio)
        return REQUEST_CPU_SECONDS + sends + reads + offload + others

    @cached_property
    def bounds(self) -> dict[AnswerResource, float]:
        """Requests a second at which each resource is fully busy."""
        i = self.inputs
        found: dict[AnswerResource, float] = {"cpu": i.workers / self.request_cpu_seconds}
        if i.link_bytes_per_second is not None:
            found["link"] = i.link_bytes_per_second / (i.object_bytes * self.sent_ratio)
        reads = i.miss_ratio * i.disk_reads_per_miss
        if reads > 0:
            found["disks"] = self._slowest_per_second / reads
        return found

    @cached_property
    def _slowest_per_second(self) -> float:
        """Reads a second of all disks together at which the first disk is fully busy."""
        return min(
            read.disk.reads_per_second(self.inputs.disk_read_bytes) / read.each
            for read in self._disks
        )

    @property
    def most_per_second(self) -> float:
        """The lowest of the bounds, in requests per second."""
        return min(self.bounds.values())

    def carries(self, goal: AnswerGoal | None, *, over: float = 0.0) -> float:
        """The highest rate that meets the goal, in requests a second; 0 if it is below ``over``.

        Without a goal, the rate at which every resource keeps up.
        """

        def holds(rate: float) -> bool:
            answers = self.answers_at(rate)
            return answers is not None and (goal is None or answers.meet(goal))

        high = _KEEPS_UP * self.most_per_second
        if high < over or (over and not holds(over)):
            return 0.0
        if holds(high):
            return high
        low, least = high / 2, max(over, _LEAST_SHARE * high)
        while low > least and not holds(low):
            low, high = low / 2, low
        if low <= least:
            if over:
                low = over
            elif not holds(least):
                return 0.0
        while high > _PRECISION * low:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    def binding_at(self, per_second: float, goal: AnswerGoal | None) -> AnswerResource:
        """The resource that bounds the rate: a fully busy one, else as in ``Answers.binding``.

        ``per_second`` is the rate that the host carries, or 0 if none.
        """
        near_nothing = _LEAST_SHARE * self.most_per_second
        answers = self.answers_at(per_second or near_nothing)
        if answers is None:
            return "loops"
        is_full = per_second >= _KEEPS_UP / _PRECISION * self.most_per_second
        return answers.binding(None if is_full else goal)

    def answers_at(self, per_second: float) -> Answers | None:
        """The answers at a request rate; None if a resource cannot keep up with it."""
        uses: dict[AnswerResource, float] = {
            name: per_second / bound for name, bound in self.bounds.items()
        }
        if max(uses.values()) >= 1:
            return None
        if self.pools:
            return Answers(self._kinds(uses, (), None), uses)
        p = predict(replace(self._without_clients, rate_per_second=per_second))
        if p.closed_loop:
            return None
        turns = (
            [AnswerPart("cpu", 0.0, 0.0, 1.0, p.turn_wait_seconds)] if p.turn_wait_seconds else []
        )
        if self.inputs.miss_ratio <= 0:
            return Answers(self._kinds(uses, turns, None), uses)
        loops = AnswerPart(
            "loops",
            p.hold_seconds,
            (p.hold_seconds * self.inputs.disk.spread) ** 2,
            max(p.blocked_ratio, _LEAST_SHARE),
            p.wait_off_seconds,
        )
        uses["loops"] = loops.waits_ratio
        return Answers(self._kinds(uses, turns, loops), uses)

    @cached_property
    def _without_clients(self) -> BlockingInputs:
        """The inputs with clients of unlimited speed and number."""
        return replace(
            self.inputs,
            concurrency=None,
            cold_concurrency=None,
            since_seconds=None,
            link_bytes_per_second=None,
            client_bytes_per_second=None,
        )

    def _kinds(
        self,
        uses: dict[AnswerResource, float],
        turns: Sequence[AnswerPart],
        loops: AnswerPart | None,
    ) -> Sequence[AnswerKind]:
        """Answers by size, from memory and from each disk.

        ``turns`` are the waits behind large answers. ``loops`` is the part of an answer's time
        for one visit to a loop that reads files itself: the wait and one read.
        """
        i, miss = self.inputs, self.inputs.miss_ratio
        stretch = self._without_clients.hold_bytes
        kinds = []
        for group in self._sizes:
            size = group.over_mean * i.object_bytes
            common = [*turns, self._cpu(size, uses), *self._sending(size, uses)]
            visits = max(1.0, size / stretch)
            if miss < 1:
                waits = loops and loops._replace(seconds=0.0, variance=0.0, visits=visits)
                kinds.append(AnswerKind(group.share * (1 - miss), True, common, waits))
            for read in self._disks if miss > 0 else ():
                reads = self._reading(size, read, uses["disks"])
                share, steps = group.share * miss * read.share, common
                if loops:  # reads of several loops queue at a disk like reads of threads
                    steps = [*common, reads._replace(seconds=0.0, variance=0.0)]
                    reads = loops._replace(
                        seconds=visits * loops.seconds,
                        variance=visits * loops.variance,
                        visits=visits,
                    )
                kinds.append(AnswerKind(share, False, steps, reads))
        return kinds

    def _reading(self, size: float, read: _ReadDisk, busiest: float) -> AnswerPart:
        """The reads of one cold file by a pool's threads, from one disk."""
        i, disk = self.inputs, read.disk
        pieces = max(1.0, size / max(i.read_bytes, i.window_bytes))
        each_bytes = size / pieces
        speed = disk.reads_per_second(i.disk_read_bytes)
        use = busiest * self._slowest_per_second * read.each / speed
        # A read continues where the last one of its file ended, unless another came in between.
        positions = 1 + (pieces - 1) * use
        seconds = positions * disk.latency_seconds + size / disk.bytes_per_second
        spread = disk.spread * disk.read_seconds(each_bytes)
        places = max(1, round(disk.heads))
        waits = erlang_c(places, places * use)
        if waits < _SELDOM:
            waits = 0.0
        wait = waits / (speed * (1 - use)) * (1 + disk.spread**2) / 2
        return AnswerPart("disks", seconds, positions * spread**2, waits, wait, pieces)

    def _sending(self, size: float, uses: dict[AnswerResource, float]) -> Sequence[AnswerPart]:
        i, sent = self.inputs, size * self.sent_ratio
        steps = []
        if i.link_bytes_per_second is not None:
            alone, use = sent / i.link_bytes_per_second, uses["link"]
            steps.append(AnswerPart("link", alone, 0.0, use, alone * use / (1 - use)))
        if i.client_bytes_per_second is not None:
            steps.append(AnswerPart("clients", sent / i.client_bytes_per_second))
        return steps

    def _cpu(self, size: float, uses: dict[AnswerResource, float]) -> AnswerPart:
        """The worker's CPU time for an answer; other answers run after each pass of a long one."""
        over_mean = send_seconds(self.inputs, (size - self.inputs.object_bytes) * self.sent_ratio)
        own = max(REQUEST_CPU_SECONDS, self.request_cpu_seconds + over_mean)
        one_pass = min(
            self.request_cpu_seconds,
            REQUEST_CPU_SECONDS + send_seconds(self.inputs, SENDFILE_CHUNK_BYTES),
        )
        use = uses["cpu"]
        return AnswerPart("cpu", own, 0.0, use, one_pass * use / (1 - use))


def best_server(
    server: Server, goal: AnswerGoal | None, *, over: float = 0.0
) -> tuple[Server, float]:
    """The host and its highest rate, with thread pools if they raise the rate, else without.

    The rate is in requests a second; 0 if it is below ``over``.
    """
    pooled = replace(server, pools=True)
    most = pooled.carries(goal, over=over)
    if server.inputs.miss_ratio > 0 and most >= _KEEPS_UP / _PRECISION * pooled.most_per_second:
        return pooled, most  # full disks or a full link are the limit, also without pools
    alone = replace(server, pools=False)
    without = alone.carries(goal, over=max(over, most))
    return (alone, without) if 0 < without >= most else (pooled, most)
