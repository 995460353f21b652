"""Decisions made again for what a configuration keeps of its own.

What is withheld, or left out, is decided first; then the numbers are made for what stands then: one
worker that Lua asks for instead of one for each CPU, reads on the loop where no location can be
read by threads. Each of these is left out once and for all, so that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.change.plan.changing import hold_against
from nginx_tune.change.plan.limits import open_files_in
from nginx_tune.change.plan.pools import asked_pools, asks_pools
from nginx_tune.change.plan.standing import Standing
from nginx_tune.change.plan.together import BY_THREADS, READ_BY_THREADS, RESTS_ON
from nginx_tune.conf.quantities import parameter
from nginx_tune.conf.running import connections_in, descriptors_in, workers_in
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.descriptors import DEFAULT_CONNECTIONS
from nginx_tune.decide.plausible import plausible_facts
from nginx_tune.decide.staying import ALL_AS_DECIDED, Staying
from nginx_tune.decide.usable_cpus import wanted_workers
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions
from nginx_tune.documents.facts import Facts

Decide = Callable[[Staying], Decisions]


class FittedDecisions(NamedTuple):
    """Decisions that fit what stays."""

    decided: Decisions
    """As for the host and the site."""
    held: Decisions
    """As changes of the configuration."""
    stays: Staying


class Settling:
    """One configuration, for one host, whose decisions can be made again."""

    def __init__(self, decide: Decide, tree: ConfTree, facts: Facts) -> None:
        self._decide, self._tree, self._facts = decide, tree, plausible_facts(facts)

    def begin(self, decided: Decisions) -> FittedDecisions:
        """The decisions, all of which are to be written where they have a place."""
        settled = FittedDecisions(decided, hold_against(decided, self._tree), ALL_AS_DECIDED)
        every = {one.id for one in decided.decisions}
        while again := self.without(settled, _with_settings(settled.held.decisions), every):
            settled = again
        return settled

    def without(
        self, settled: FittedDecisions, written: Collection[str], chosen: Collection[str]
    ) -> FittedDecisions | None:
        """The decisions again, of which ``written`` alone come true.

        Null where those that are ``chosen`` fit that.
        """
        stays = self._staying(settled, written)
        others = [one.name for one in fields(stays) if _differ(one.name, stays, settled.stays)]
        if not any(RESTS_ON[name] & {*chosen} for name in others):
            return None
        decided = self._decide(stays)
        again = hold_against(decided, self._tree).decisions
        before = {one.id: one for one in settled.held.decisions}
        held = [_as_left(before[one.id], one, stays, written) for one in again]
        return FittedDecisions(decided, replace(decided, decisions=held), stays)

    def _staying(self, settled: FittedDecisions, written: Collection[str]) -> Staying:
        """What stays if those decisions alone are written: what stayed already, and more."""
        known, tree = settled.stays, self._tree
        by_id = {one.id: one for one in settled.decided.decisions}
        held = {one.id: one for one in settled.held.decisions}
        left = [one for name, one in by_id.items() if name not in written]
        done = [one for name, one in held.items() if name in written]
        workers = known.workers
        if workers is None and "workers" not in written:
            workers = self._workers()
        no_pools = known.no_pools
        if not no_pools and any(map(asks_pools, by_id.values())):
            no_pools = self._why_no_pools(held, done)
        connections = known.connections
        if connections is None and "connections" not in written:
            connections = _less(
                connections_in(tree, DEFAULT_CONNECTIONS), _number(left, "worker_connections")
            )
        descriptors = known.descriptors
        if descriptors is None and "file-limits" not in written:
            descriptors = _less(self._descriptors(), _number(left, "worker_rlimit_nofile"))
        return Staying(
            workers=workers,
            no_pools=no_pools,
            connections=connections,
            descriptors=descriptors,
            open_files=self._open_files(left) if known.open_files is None else known.open_files,
            no_sendfile=known.no_sendfile or (_turns_on_sendfile(left) and not self._sends),
        )

    def _workers(self) -> int | None:
        """The workers that stay, where they are others than wanted."""
        cpu = self._facts.cpu
        automatic = cpu.auto_workers if cpu.auto_workers is not None else cpu.online
        by_default = automatic if self._facts.nginx.product == "tengine" else 1
        found = workers_in(self._tree, automatic, by_default=by_default)
        return None if found == wanted_workers(self._facts) else found

    def _descriptors(self) -> int | None:
        """What a worker has as it stands; null where that is not known."""
        if (said := descriptors_in(self._tree)) is not None:
            return said
        limits = self._facts.limits
        return None if limits.nofile_of == "reader" else limits.nofile_soft

    def _why_no_pools(self, held: dict[DecisionId, Decision], done: Sequence[Decision]) -> str:
        """Why nothing would be read by threads; empty where something is, or is going to be."""
        if asked_pools(Standing(self._tree), done):
            return ""
        asking = [held[name] for name in READ_BY_THREADS]
        one = next((one for one in asking if one.withheld or asks_pools(one)), asking[0])
        why = f" ({one.withheld})" if one.withheld else ""
        return f"{one.id}, which is left out{why}"

    def _open_files(self, left: Sequence[Decision]) -> int | None:
        """The files that a worker keeps open as it is, where others would have been."""
        wanted = next((one for one in left if one.id == "open-file-cache" and one.settings), None)
        if wanted is None:
            return None
        entries = (parameter(one.args, "max") for one in wanted.settings)
        found = open_files_in(self._tree)
        return None if str(found) in entries else found

    @property
    def _sends(self) -> bool:
        answering = Standing(self._tree).answering
        return any(scope.value("sendfile", "off").lower() == "on" for scope in answering)


def _with_settings(decisions: Sequence[Decision]) -> set[str]:
    return {one.id for one in decisions if one.settings}


def _as_left(
    before: Decision, again: Decision, stays: Staying, written: Collection[str]
) -> Decision:
    """A decision that was made again; one that stays out is as it was said to be."""
    if before.id in left_by(stays) and before.id not in written:
        return replace(before, settings=[])
    is_bound = stays.descriptors is not None and before.id in ("connections", "open-file-cache")
    if is_bound and again.verdict == "disable" != before.verdict:  # nothing speaks against its own
        again = replace(before, settings=[])
    if is_bound and before.settings and not again.settings:
        return replace(again, withheld=f"a worker has {stays.descriptors} descriptors")
    if not stays.no_pools or before.id not in BY_THREADS or again.settings or again.withheld:
        return again
    why = f"it goes with {stays.no_pools}"
    return replace(again, withheld=why if before.settings or before.withheld else "")


def _differ(name: str, *both: Staying) -> bool:
    one, other = (getattr(each, name) for each in both)
    return bool(one != other)


def left_by(stays: Staying) -> Iterator[DecisionId]:
    """The decisions that stay out."""
    if stays.workers is not None:
        yield "workers"
    if stays.connections is not None:
        yield "connections"
    if stays.descriptors is not None:
        yield "file-limits"
    if stays.no_pools:
        yield from READ_BY_THREADS
    if stays.open_files is not None:
        yield "open-file-cache"
    if stays.no_sendfile:
        yield "sendfile"


def _turns_on_sendfile(decisions: Sequence[Decision]) -> bool:
    return any(one.id == "sendfile" and one.verdict == "enable" for one in decisions)


def _number(decisions: Sequence[Decision], directive: str) -> int | None:
    every = (one for decision in decisions for one in decision.settings)
    return next((int(one.args[0]) for one in every if one.directive == directive), None)


def _less(own: int | None, wanted: int | None) -> int | None:
    """The number that stands, where more would have been written; null elsewhere."""
    return own if own is not None and wanted is not None and own < wanted else None
