"""A lab from outside: opened once, then any number of blocks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nginx_tune.documents.facts import Facts
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import StandIn, Start
from nginx_tune.documents.site import Site
from nginx_tune.errors import MissingPermissionError
from nginx_tune.lab.bounds import bound
from nginx_tune.lab.cgroups import why_no_controller
from nginx_tune.lab.enclosure import View
from nginx_tune.lab.foreign_code import refuse_foreign_code
from nginx_tune.lab.kinds import is_limited, settle_kinds
from nginx_tune.lab.modelled import find_missing
from nginx_tune.lab.stubs import Outgoing
from nginx_tune.lab.topology import Around
from nginx_tune.lab.walls import Walls
from nginx_tune.measure.block import BlockRequest
from nginx_tune.measure.emulated import emulate
from nginx_tune.measure.plan_load import ServedFile
from nginx_tune.measure.plan_topology import place_plan, place_site
from nginx_tune.measure.surroundings import Surroundings, SurroundRequest
from nginx_tune.measure.survey import Answer, Asked, SurveyRequest

ORIGIN = "origin"
"""Its objects among a session's files, by URL."""


class Conduct(NamedTuple):
    """What is not plain about how an arm runs."""

    binary: str | None = None
    """Another nginx than the session's."""
    stand_in: StandIn = "none"
    workers: int = 1
    """Of the stand-in."""
    sysctls: Mapping[str, str] = {}
    reload_texts: Sequence[str] = ()
    reload_seconds: float = 1.0
    connections_log: str | None = None
    starts: Start = "cold"
    """What of the data is in the page cache as a block starts."""
    traces: bool = True
    """Whether loop turns are traced."""
    drain_seconds: float | None = None
    """How long to wait for the last answers; null for what the plan says."""
    counts_opens: bool = False
    """Whether calls of open() are counted."""
    warm_names: bool = False
    """Whether every name is looked up before nginx starts."""
    ahead: bool = False
    """Whether nginx runs ahead of what else the machine does; not for a host that serves."""


class Arm(NamedTuple):
    """One configuration under test."""

    name: str
    conf_path: str
    conf_text: str | None
    """Null when the file is the operator's own, seen in place."""
    error_log: str | None
    """The main context's error log; null for standard error."""
    prefix: str | None = None
    """nginx's ``-p``; null for the build's own."""
    conduct: Conduct = Conduct()


class Session:
    """An open lab with its limits in force.

    ``notes`` says which disks are of another kind than was asked for, and why.
    """

    def __init__(
        self,
        walls: Walls,
        lab: Lab,
        *,
        binary: str,
        covers: Sequence[str],
        overlays: Sequence[str] = (),
        made: Sequence[str] = (),
        view: View | None = None,
    ) -> None:
        refuse_foreign_code(binary, [])
        self._walls = walls
        self._binary = binary
        limits = (lab.memory_bytes, lab.quota_cpus)
        needs_root = bool(lab.disks) or any(limit is not None for limit in limits)
        if needs_root and not walls.root:
            raise MissingPermissionError(
                f"the lab '{lab.name}' limits memory and disks, which needs root",
                hint="run it with sudo, or without --lab",
            )
        lab, self.notes = settle_kinds(
            lab, no_models=find_missing(), no_limits=why_no_controller("blkio")
        )
        self.lab = lab
        answer = walls.ask(
            "open_lab",
            {
                "lab": _plain(lab),
                "covers": list(covers),
                "overlays": list(overlays),
                "made": list(made),
                "view": _plain(view or View()),
            },
        )
        self.files: dict[str, list[ServedFile]] = {
            disk: [ServedFile(str(path), int(size)) for path, size in listing]
            for disk, listing in answer["files"].items()
        }
        self._join_files, self._memory_cgroup = self._limit(answer["devices"])
        self.around = msgspec.convert(answer["around"], Around)
        if self.around.objects:
            objects = self.around.objects.items()
            self.files[ORIGIN] = [ServedFile(path, size) for path, size in objects]
        nginx_cpus, self.probe_cpus = split_cpus(
            sorted(os.sched_getaffinity(0)), separate=lab.separate_cpus
        )
        self.nginx_cpus = nginx_cpus[: lab.cpus]

    def _limit(self, devices: dict[str, str]) -> tuple[list[str], str | None]:
        group = self._walls.group()
        bound(group, self._walls)
        if self.lab.memory_bytes is not None:
            group.limit_memory(self.lab.memory_bytes)
        if self.lab.quota_cpus is not None:
            group.limit_cpu(self.lab.quota_cpus)
        for disk in self.lab.disks:
            if is_limited(disk):
                group.limit_reads(
                    devices[disk.name],
                    bytes_per_second=disk.bytes_per_second,
                    reads_per_second=disk.reads_per_second,
                )
        files = [str(file) for file in group.join_files()]
        self._walls.ask("join", {"files": files})
        memory = group.directory("memory") if self.lab.memory_bytes is not None else None
        return files, str(memory) if memory else None

    def facts(self, paths: Sequence[str]) -> Facts:
        """Facts of the emulated host, with the paths as datasets."""
        answer = self._walls.ask(
            "facts",
            {"paths": list(paths), "binary": self._binary, "memory_cgroup": self._memory_cgroup},
        )
        facts = msgspec.convert(answer, Facts)
        return emulate(facts, self.lab, cpus=len(self.nginx_cpus))

    def surround(
        self,
        addresses: Sequence[str],
        arms: Sequence[Arm],
        *,
        replaced: Mapping[str, bytes],
        outgoing: Sequence[Outgoing],
        sockets: Sequence[str],
    ) -> Surroundings:
        """Have what the arms need around them: addresses of the host, names, other servers.

        ``replaced`` are files that are shown with other bytes; ``sockets`` those that they listen
        on.
        """
        request = SurroundRequest(
            binary=self._binary,
            addresses=list(addresses),
            commands=[
                [
                    self._binary,
                    "-t",
                    "-c",
                    arm.conf_path,
                    *(["-p", arm.prefix] if arm.prefix else []),
                ]
                for arm in arms
            ],
            replaced=dict(replaced),
            outgoing=list(outgoing),
            cpus=self.probe_cpus,
            sockets=list(sockets),
        )
        answer = self._walls.ask("surround", {"request": _plain(request)})
        return msgspec.convert(answer, Surroundings)

    def survey(self, arm: Arm, asked: Sequence[Asked]) -> list[Answer]:
        """What an arm answers to each, before anything is measured."""
        request = SurveyRequest(
            binary=self._binary, conf_path=arm.conf_path, prefix=arm.prefix, asked=list(asked)
        )
        return msgspec.convert(
            self._walls.ask("survey", {"request": _plain(request)}), list[Answer]
        )

    def place(self, site: Site) -> Site:
        """A site with what the lab's topology has for it: address, certificate, origin, cache."""
        return place_site(site, self.lab, self.around)

    def block(self, arm: Arm, number: int, plan: LoadPlan, *, prime: Sequence[str]) -> Measurement:
        """Run one block."""
        if arm.conduct.drain_seconds is not None:
            plan = msgspec.structs.replace(plan, drain_seconds=arm.conduct.drain_seconds)
        request = BlockRequest(
            arm=arm.name,
            block=number,
            binary=arm.conduct.binary or self._binary,
            conf_path=arm.conf_path,
            conf_text=arm.conf_text,
            error_log=arm.error_log,
            prefix=arm.prefix,
            plan=place_plan(plan, self.around),
            prime=list(prime),
            evict=[disk.mount for disk in self.lab.disks],
            join_files=self._join_files,
            nginx_cpus=self.nginx_cpus,
            stand_in=arm.conduct.stand_in,
            workers=arm.conduct.workers,
            sysctls=dict(arm.conduct.sysctls),
            reload_texts=list(arm.conduct.reload_texts),
            reload_seconds=arm.conduct.reload_seconds,
            connections_log=arm.conduct.connections_log,
            starts=arm.conduct.starts,
            memory_bytes=self.lab.memory_bytes,
            traces=arm.conduct.traces,
            counts_opens=arm.conduct.counts_opens,
            warm_names=arm.conduct.warm_names,
            ahead=arm.conduct.ahead,
        )
        return msgspec.convert(self._walls.ask("block", {"request": _plain(request)}), Measurement)


def split_cpus(cpus: list[int], *, separate: bool) -> tuple[list[int], list[int]]:
    """CPUs for nginx and for the load probe: apart where there are two."""
    if not separate or len(cpus) < 2:  # noqa: PLR2004
        return cpus, cpus
    half = len(cpus) // 2
    return cpus[:half], cpus[half:]


def _plain(value: msgspec.Struct) -> Any:
    """What ``json.dumps`` takes; names of files may hold bytes that are no UTF-8."""
    return msgspec.to_builtins(value)
