"""The process inside the sandbox: builds the lab, gathers its facts, makes runs.

It reads one JSON request per line from standard input and answers each with one line. Decisions and
judgements are made by the command outside.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from nginx_tune.documents.facts import Facts
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.progress import Step
from nginx_tune.documents.rehearsal import RehearsedReload
from nginx_tune.errors import ExitStatus, NginxTuneError, UndecidedError
from nginx_tune.experiment.operations import (
    OPERATIONS,
    EnvironmentRequest,
    FactsRequest,
    JoinRequest,
    LaidTrialRequest,
    MadeEnvironment,
    OpenedLab,
    OpenLabRequest,
    RehearseRequest,
    Response,
    RunRequest,
    SurveyRequest,
    TrialRequest,
    Tried,
)
from nginx_tune.experiment.trial import ShownFiles, give_names, try_inside, try_laid
from nginx_tune.host.program import die_with_parent
from nginx_tune.nginx.lab.enclosure import STATE, Enclosure, raise_loopback
from nginx_tune.nginx.lab.network import set_tcp, take_addresses
from nginx_tune.nginx.lab.operation import Hello, OperationIdentity, answer_line, read_request
from nginx_tune.nginx.lab.stubs import start_stubs

if TYPE_CHECKING:
    from nginx_tune.nginx.lab.building import OpenLab


def make_environment(
    request: EnvironmentRequest, directory: Path, enclosure: Enclosure, shown: ShownFiles
) -> MadeEnvironment:
    """Make the surroundings that configurations need."""
    take_addresses(request.addresses)
    shown.lay(request.shown, directory, enclosure)
    enclosure.make_room(request.sockets)
    names: list[str] = []
    for variant, argv in request.commands.items():
        shown.turn_to(variant)
        names += give_names(argv, directory, enclosure)
    stubs = start_stubs(
        request.outgoing, request.binary, STATE / "stubs", request.cpus, echoes=request.echoes
    )
    for path, ours in stubs.sockets.items():
        enclosure.lay(path, ours)
    return MadeEnvironment(names=names, stubs=stubs)


class Inside:
    """The state of the lab, with a method for each of ``OPERATIONS`` by its name.

    Modules that only some operations need are imported in those: a test needs no lab.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._directory = Path("/")
        self._lab: OpenLab | None = None
        self._enclosure = Enclosure()
        self._shown = ShownFiles()

    def hello(self, request: Hello) -> OperationIdentity:
        """Finish the sandbox: bring up ``lo``. Mounts are private already (unshare)."""
        self._directory = Path(request.directory)
        self._enclosure.hide(request.directory)
        self._enclosure.weaken(request.weaker)
        raise_loopback()
        set_tcp({})
        return OperationIdentity(mark=request.mark)

    def open_lab(self, request: OpenLabRequest) -> OpenedLab:
        """Make, mount and fill the disks, and cover the directories that nginx writes to."""
        from nginx_tune.nginx.lab.building import LabDisks, OpenLab, Topology  # noqa: PLC0415

        tcp = set_tcp(request.lab.tcp)
        enclosure = self._enclosure
        disks = LabDisks(request.lab, self._directory, enclosure, self._say)
        disks.prepare()
        enclosure.begin(self._directory)
        os.environ["TMPDIR"] = str(STATE)  # the only place to write to
        disks.open()
        enclosure.look(request.view)
        enclosure.cover_all(request.covers, request.view.written)
        for directory in request.overlays:
            enclosure.copy_whole(directory, request.view.files)
        for directory in request.made:
            enclosure.make_directory(directory)
        self._lab = OpenLab(disks, Topology(request.lab, self._directory), enclosure)
        placement = self._lab.topology.placement
        for file in filter(None, (placement.certificate, placement.certificate_key)):
            enclosure.lay(file, file)
        return OpenedLab(
            devices=disks.device_numbers,
            files={name: [(str(p), int(n)) for p, n in own] for name, own in disks.files.items()},
            placement=placement,
            tcp=tcp,
        )

    def join(self, request: JoinRequest) -> None:
        """Start all further processes in these cgroups, including trials."""
        self._enclosure.join_files = [Path(file) for file in request.files]

    def environment(self, request: EnvironmentRequest) -> MadeEnvironment:
        """Make the surroundings that configurations need."""
        return make_environment(request, self._directory, self._enclosure, self._shown)

    def survey(self, request: SurveyRequest) -> list[Response]:
        """A variant's answers to single requests."""
        from nginx_tune.experiment.survey import survey  # noqa: PLC0415

        self._shown.turn_to(request.variant.name)
        return survey(request, self._enclosure)

    def facts(self, request: FactsRequest) -> Facts:
        """The facts that a program inside the lab sees."""
        from nginx_tune.host.live import LiveHost  # noqa: PLC0415  # heavy, once
        from nginx_tune.host.programs import vouch_for  # noqa: PLC0415
        from nginx_tune.observe.inspect.facts import gather_facts  # noqa: PLC0415

        vouch_for(request.binary)  # the command outside chose it
        ours = {} if self._lab is None else self._lab.disks.paths
        places = {str(ours.get(path, path)): path for path in request.paths}
        facts = gather_facts(
            LiveHost(),
            paths=[],
            datasets=list(places),
            nginx_binary=request.binary,
            memory_cgroup=request.memory_cgroup,
        )
        named = [replace(dataset, path=places[dataset.path]) for dataset in facts.datasets]
        return replace(facts, datasets=named)

    def trial(self, request: TrialRequest) -> Tried:
        """``nginx -t`` with some files replaced."""
        self._enclosure.begin(self._directory)
        self._enclosure.look(request.view)
        self._enclosure.join_files = [Path(file) for file in request.join_files]
        return try_inside(request, self._directory, self._enclosure)

    def run(self, request: RunRequest) -> Measurement:
        """Make one run."""
        from nginx_tune.experiment.one_run import measure_run  # noqa: PLC0415

        if self._lab is None:
            raise UndecidedError("the lab is not open")
        self._shown.turn_to(request.variant.name)
        return measure_run(request, self._lab, self._say)

    def laid_trial(self, request: LaidTrialRequest) -> Tried:
        """``nginx -t`` with the files that a variant sees."""
        self._shown.turn_to(request.variant)
        return try_laid(request.argv, self._enclosure)

    def rehearse(self, request: RehearseRequest) -> list[RehearsedReload]:
        """Change a running nginx under load."""
        from nginx_tune.experiment.rehearsing import rehearse  # noqa: PLC0415

        if self._lab is None:
            raise UndecidedError("the lab is not open")
        return rehearse(request, self._lab, self._shown, self._say)

    def answer(self, line: str) -> str:
        """The line that answers a line with a request."""
        name, request = read_request(line)
        handler: Callable[[Any], Any] = getattr(self, name)
        try:
            return answer_line(handler(msgspec.convert(request, OPERATIONS[name].request)))
        except NginxTuneError as error:
            return _refusal(error.message, error.hint, error.status)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            return _refusal(f"{place}{error.strerror or error}", "", ExitStatus.UNDECIDED)


def _refusal(message: str, hint: str, status: int) -> str:
    return json.dumps({"error": message, "hint": hint, "status": int(status)}) + "\n"


def _main() -> None:
    die_with_parent()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # no other output may mix with the answers

    def say(text: str) -> None:
        figures = text.figures() if isinstance(text, Step) else None
        out.write(json.dumps({"progress": text, "step": figures}) + "\n")

    inside = Inside(say)
    for line in sys.stdin:
        out.write(inside.answer(line))


if __name__ == "__main__":
    _main()
