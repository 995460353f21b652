"""Alternatives to the decisions, each with one switch changed; pure.

They are the candidates of a search: thread pools off, shared or one per disk, more and fewer
threads, another chunk, other buffers, the open file cache, workers and cache options. Alternatives
to proposed decisions come first, then those near a break-even, then those to certain decisions.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.change.plan.solver import BY_THREADS, READ_BY_THREADS
from nginx_tune.decide.answer import setting
from nginx_tune.decide.model.pool import DEFAULT_THREADS, MAX_THREADS_ALL_WORKERS
from nginx_tune.decide.open_file_cache import FEWEST_ENTRIES, INACTIVE, STALE, VALID
from nginx_tune.documents.decisions import (
    Confidence,
    Decision,
    DecisionId,
    Decisions,
    DecisionVerdict,
    Setting,
)

_CHUNKS = ("128k", "512k", "2m")
_BUFFERS = ("32k", "256k")
_THREADS_FACTOR = 4
_MOST_THREADS, _FEWEST_THREADS = 256, 4
_WHY = "a candidate of a search"
_DOUBT: Mapping[Confidence, float] = {"low": math.log(2), "medium": math.log(8), "high": math.inf}
"""The log ratio to the break-even that is assumed for each confidence. A smaller known ratio
replaces it."""
_OF_A_CACHE: tuple[tuple[DecisionId, ...], ...] = (
    ("cache-misses",),
    ("cache-updates",),
    ("slice",),
    ("aio-write",),
)


class Alternative(NamedTuple):
    """The decisions with one switch changed."""

    name: str
    ids: tuple[DecisionId, ...]
    """The ids of the decisions that differ."""
    reason: str
    """The fact that would flip the decision, with its break-even."""
    doubt: float
    """Log ratio of a fact to its break-even; a smaller value means more doubt."""
    change: Callable[[Decisions], Decisions]


class _Turned(NamedTuple):
    verdict: DecisionVerdict
    settings: Sequence[Setting]
    risks: Sequence[str] = ()


def alternatives(decided: Decisions) -> list[Alternative]:
    """All alternatives, most doubtful first; several may write the same lines."""
    by_id: dict[DecisionId, Decision] = {decision.id: decision for decision in decided.decisions}
    found = [
        Alternative(
            name, tuple(turned), _reason(by_id[subject]), _doubt(by_id[subject]), _changing(turned)
        )
        for name, subject, turned in _all_turned(by_id)
    ]
    return sorted(found, key=lambda alternative: alternative.doubt)


_Named = tuple[str, DecisionId, dict[DecisionId, _Turned]]


def _all_turned(by_id: Mapping[DecisionId, Decision]) -> Iterator[_Named]:
    """Each alternative: its name, the decision whose doubt ranks it, and the changed decisions."""
    yield from _pools(by_id)
    yield from _threads(by_id)
    yield from _chunks(by_id)
    yield from _buffers(by_id)
    yield from _open_files(by_id)
    yield from _workers(by_id)
    yield from _caches(by_id)


def _is_open(decision: Decision) -> bool:
    return decision.verdict != "not_applicable"


def _mode(by_id: Mapping[DecisionId, Decision]) -> str:
    if by_id["per-disk-pools"].settings:
        return "per-disk"
    aio = (s.args for s in by_id["thread-pools"].settings if s.directive == "aio")
    return "shared" if any(args[0].startswith("threads") for args in aio) else "off"


def _pools(by_id: Mapping[DecisionId, Decision]) -> Iterator[_Named]:
    pools = by_id["thread-pools"]
    if not _is_open(pools):
        return
    mode = _mode(by_id)
    turned: dict[DecisionId, _Turned]
    shared = [setting("thread-pools", "location", "aio", "threads", reason=_WHY)]
    if mode != "off":
        turned = dict.fromkeys(
            (*READ_BY_THREADS, *sorted(BY_THREADS)), _Turned("not_applicable", [])
        )
        turned["thread-pools"] = _Turned("disable", [])
        yield "pools-off", "thread-pools", turned
    if mode != "shared":
        size = by_id["thread-pool-size"].proposed
        turned = {
            "thread-pools": _Turned("enable", pools.proposed or shared),
            "per-disk-pools": _Turned("not_applicable", []),
            "thread-pool-size": _Turned("set" if size else "keep", size),
        }
        yield "pools-shared", "per-disk-pools" if mode == "per-disk" else "thread-pools", turned
    apart = by_id["per-disk-pools"].proposed
    if apart:
        turned = {
            "thread-pools": _Turned("enable", []),
            "per-disk-pools": _Turned("enable", apart),
            "thread-pool-size": _Turned("not_applicable", []),
        }
        yield "pools-per-disk", "per-disk-pools", turned


def _threads(by_id: Mapping[DecisionId, Decision]) -> Iterator[_Named]:
    """The same pools, once with four times the threads and once with a quarter of them.

    Both numbers stay within the limits.
    """
    mode = _mode(by_id)
    if mode == "off":
        return
    subject: DecisionId = "per-disk-pools" if mode == "per-disk" else "thread-pool-size"
    lines = [*by_id[subject].settings]
    pools = [line for line in lines if line.directive == "thread_pool"]
    if not pools:
        pools = [
            setting(
                "thread-pool-size",
                *("main", "thread_pool", "default", f"threads={DEFAULT_THREADS}"),
                reason=_WHY,
            )
        ]
        lines += pools
    workers = _number(by_id["workers"].settings, "worker_processes") or 1
    most = min(_MOST_THREADS, MAX_THREADS_ALL_WORKERS // (workers * len(pools)))
    now = max(map(_threads_of, pools))
    for wanted in (now * _THREADS_FACTOR, now // _THREADS_FACTOR):
        threads = max(_FEWEST_THREADS, min(most, wanted))
        if threads == now:
            continue
        changed = [_with_threads(line, threads) if line in pools else line for line in lines]
        yield f"threads-{threads}", subject, {subject: _Turned("set", changed)}


def _threads_of(line: Setting) -> int:
    words = (word.partition("=") for word in line.args)
    return next((int(v) for name, _, v in words if name == "threads"), DEFAULT_THREADS)


def _with_threads(line: Setting, threads: int) -> Setting:
    words = [f"threads={threads}" if word.startswith("threads=") else word for word in line.args]
    return replace(line, args=words, reason=_WHY)


def _chunks(by_id: Mapping[DecisionId, Decision]) -> Iterator[_Named]:
    chunk = by_id["sendfile-max-chunk"]
    if not _is_open(chunk):
        return
    now = chunk.settings[0].args[0] if chunk.settings else _CHUNKS[-1]
    for size in _CHUNKS:
        if size != now:
            line = setting("sendfile-max-chunk", "http", "sendfile_max_chunk", size, reason=_WHY)
            yield f"chunk-{size}", chunk.id, {chunk.id: _Turned("set", [line])}


def _buffers(by_id: Mapping[DecisionId, Decision]) -> Iterator[_Named]:
    buffers = by_id["output-buffers"]
    if not _is_open(buffers):
        return
    now = buffers.settings[0].args[-1] if buffers.settings else _BUFFERS[0]
    for size in _BUFFERS:
        if size != now:
            line = setting("output-buffers", "http", "output_buffers", "2", size, reason=_WHY)
            yield f"buffers-{size}", buffers.id, {buffers.id: _Turned("set", [line])}


def _open_files(by_id: Mapping[DecisionId, Decision]) -> Iterator[_Named]:
    """The open file cache switched on or off; never on if files change while they are served."""
    cache = by_id["open-file-cache"]
    if cache.settings:
        yield "open-files-off", cache.id, {cache.id: _Turned("disable", [])}
    elif _is_open(cache) and cache.confidence != "high":
        lines = cache.proposed or [
            setting(
                cache.id,
                *("http", "open_file_cache", f"max={FEWEST_ENTRIES}", f"inactive={INACTIVE}"),
                reason=_WHY,
            ),
            setting(cache.id, "http", "open_file_cache_valid", VALID, reason=_WHY),
        ]
        yield "open-files-on", cache.id, {cache.id: _Turned("enable", lines, [STALE])}


def _workers(by_id: Mapping[DecisionId, Decision]) -> Iterator[_Named]:
    workers = by_id["workers"]
    count = _number(workers.settings, "worker_processes")
    if count is None:
        return
    yield "workers-as-today", workers.id, {workers.id: _Turned("keep", [])}
    lines = [
        replace(setting, args=[str(2 * count)], same=[], reason=_WHY)
        if setting.directive == "worker_processes"
        else setting
        for setting in workers.settings
    ]
    yield f"workers-{2 * count}", workers.id, {workers.id: _Turned("set", lines)}


def _caches(by_id: Mapping[DecisionId, Decision]) -> Iterator[_Named]:
    for ids in _OF_A_CACHE:
        subject = by_id[ids[0]]
        if subject.settings:
            yield f"no-{subject.id}", subject.id, {id_: _Turned("keep", []) for id_ in ids}
        elif subject.proposed:
            turned = {id_: _Turned("enable", by_id[id_].proposed) for id_ in ids}
            yield subject.id, subject.id, turned


def _number(settings: Sequence[Setting], directive: str) -> int | None:
    """The first number among a directive's arguments and equivalent arguments; None without one."""
    words = (
        word
        for setting in settings
        if setting.directive == directive
        for word in setting.args + setting.same
    )
    return next((int(word) for word in words if word.isdigit()), None)


def _changing(turned: Mapping[DecisionId, _Turned]) -> Callable[[Decisions], Decisions]:
    def change(decided: Decisions) -> Decisions:
        return replace(
            decided,
            decisions=[
                _turn(decision, turned[decision.id]) if decision.id in turned else decision
                for decision in decided.decisions
            ],
        )

    return change


def _turn(decision: Decision, turned: _Turned) -> Decision:
    return replace(
        decision,
        verdict=turned.verdict,
        summary=f"A candidate of a search. Decided: {decision.summary}",
        settings=[*turned.settings],
        proposed=[],
        predicted=[],
        host_settings=[],
        confidence="low",
        risks=[*turned.risks, *decision.risks],
    )


def _reason(decision: Decision) -> str:
    return next(iter(decision.flips_when), decision.summary)


def _doubt(decision: Decision) -> float:
    if decision.proposed or decision.verdict == "not_enough_evidence":
        return 0.0
    near = [
        abs(math.log(break_even.value / break_even.now))
        for break_even in decision.break_evens
        if break_even.value > 0 and break_even.now > 0
    ]
    return min([_DOUBT[decision.confidence], *near])
