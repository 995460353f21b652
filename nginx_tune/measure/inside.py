"""The process inside the walls: builds the lab, knows its facts, runs blocks.

It reads one JSON request a line from standard input and answers in kind, so that the command
outside (which decides and judges) needs nothing of what only exists in here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nginx_tune.documents.lab import Lab
from nginx_tune.errors import ExitStatus, NginxTuneError, UndecidedError
from nginx_tune.lab import mounts
from nginx_tune.lab.enclosure import Enclosure, View
from nginx_tune.lab.lifetime import die_with_parent
from nginx_tune.sandbox.spec import Wall

if TYPE_CHECKING:
    from nginx_tune.lab.opened import OpenLab


class Inside:
    """State of the lab: its directory, its disks and where they are mounted."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._directory = Path("/")
        self._lab: OpenLab | None = None
        self._enclosure = Enclosure()

    def hello(self, mark: str, directory: str, weaker: list[Wall]) -> dict[str, Any]:
        """Finish the walls: private mounts were made by unshare, ``lo`` comes up here."""
        self._directory = Path(directory)
        self._enclosure.hide(directory)
        self._enclosure.weaken(weaker)
        mounts.raise_loopback()
        return {"mark": mark, "uid": os.geteuid()}

    def open_lab(
        self,
        lab: dict[str, Any],
        covers: list[str],
        overlays: list[str],
        made: list[str],
        view: dict[str, Any],
    ) -> dict[str, Any]:
        """Make, mount and fill the disks, cover what nginx writes to, seal the rest.

        ``view`` is what nginx gets to see of the host.

        ``overlays`` are directories that nginx writes to and that hold what it serves or reads;
        ``made`` are those that it needs and that the host lacks.
        Shape: ``devices`` {disk name: MAJOR:MINOR}, ``files`` {disk name: [[path, bytes], …]}.
        """
        # Not to test a configuration; and now, while no cover can lie over the package.
        import_module("nginx_tune.measure.block")
        from nginx_tune.lab.building import LabDisks  # noqa: PLC0415
        from nginx_tune.lab.opened import OpenLab  # noqa: PLC0415
        from nginx_tune.lab.topology import Topology  # noqa: PLC0415

        spec = msgspec.convert(lab, Lab)
        for directory in overlays:
            mounts.take_writes(Path(directory))
        disks = LabDisks(spec, self._directory, self._say)
        disks.prepare()
        mounts.set_apart(self._directory)
        disks.open()
        self._lab = OpenLab(disks, Topology(spec, self._directory), self._enclosure)
        wanted = msgspec.convert(view, View)
        mounts.cover_all(covers, wanted.written)
        for directory in made:
            mounts.place(Path(directory))
        mounts.make_state()
        self._enclose(spec, [*covers, *overlays], wanted)
        around = msgspec.to_builtins(self._lab.topology.around)
        return {"devices": disks.device_numbers, "files": disks.files, "around": around}

    def _enclose(self, lab: Lab, written: list[str], view: View) -> None:
        """Settle what nginx gets to see, and let nobody here write to the host."""
        mounts.seal_all(keep=self._directory, only=self._enclosure.outer_mounts)
        os.environ["TMPDIR"] = str(mounts.STATE)  # the only place to write to
        self._enclosure.look(view)
        self._enclosure.show(str(mounts.STATE))
        for disk in lab.disks:
            if disk.writable:
                self._enclosure.open(disk.mount)
            else:
                self._enclosure.show(disk.mount)
        if self._lab is not None:
            around = self._lab.topology.around
            self._enclosure.show(*filter(None, (around.certificate, around.certificate_key)))
        self._enclosure.open(*written)

    def join(self, files: list[str]) -> None:
        """Have what is started from now on in these cgroups, if only to be tried."""
        self._enclosure.join_files = [Path(file) for file in files]

    def surround(self, request: dict[str, Any]) -> Any:
        """Have what configurations need around them; see ``measure/surroundings.py``."""
        from nginx_tune.measure.surround import surround  # noqa: PLC0415  # not for scenarios
        from nginx_tune.measure.surroundings import SurroundRequest  # noqa: PLC0415

        wanted = msgspec.convert(request, SurroundRequest)
        return msgspec.to_builtins(surround(wanted, self._directory, self._enclosure))

    def survey(self, request: dict[str, Any]) -> Any:
        """What a configuration answers; see ``measure/survey.py``."""
        from nginx_tune.measure.survey import SurveyRequest, survey  # noqa: PLC0415

        wanted = msgspec.convert(request, SurveyRequest)
        return msgspec.to_builtins(survey(wanted, self._enclosure))

    def facts(self, paths: list[str], binary: str, memory_cgroup: str | None) -> dict[str, Any]:
        """Facts as a program inside the lab reads them."""
        from nginx_tune.host.live import LiveHost  # noqa: PLC0415  # heavy, once
        from nginx_tune.host.programs import vouch_for  # noqa: PLC0415
        from nginx_tune.measure.facts import gather_facts  # noqa: PLC0415

        vouch_for(binary)  # the command outside chose it
        facts = gather_facts(
            LiveHost(),
            paths=paths,
            datasets=paths,
            nginx_binary=binary,
            memory_cgroup=memory_cgroup,
        )
        found: dict[str, Any] = json.loads(msgspec.json.encode(facts))
        return found

    def try_configuration(
        self,
        argv: list[str],
        files: dict[str, str],
        view: dict[str, Any],
        join_files: list[str],
    ) -> dict[str, Any]:
        """``nginx -t`` with some files replaced."""
        from nginx_tune.measure.trial import try_inside  # noqa: PLC0415  # not for blocks

        mounts.set_apart(self._directory)
        wanted = msgspec.convert(view, View)
        self._enclosure.look(wanted)
        self._enclosure.join_files = [Path(file) for file in join_files]
        found: dict[str, Any] = try_inside(argv, files, self._directory, self._enclosure, wanted)
        return found

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one block; the measurement."""
        from nginx_tune.measure.block import BlockRequest, run_block  # noqa: PLC0415

        wanted = msgspec.convert(request, BlockRequest)
        if self._lab is None:
            raise UndecidedError("the lab is not open")
        measurement = run_block(wanted, self._lab)
        found: dict[str, Any] = json.loads(msgspec.json.encode(measurement))
        return found


def _main() -> None:
    die_with_parent()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing else may write into the conversation

    def say(text: str) -> None:
        out.write(json.dumps({"progress": text}) + "\n")

    inside = Inside(say)
    handlers: dict[str, Callable[..., Any]] = {
        "hello": inside.hello,
        "open_lab": inside.open_lab,
        "join": inside.join,
        "surround": inside.surround,
        "survey": inside.survey,
        "facts": inside.facts,
        "block": inside.block,
        "try_configuration": inside.try_configuration,
    }
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request["what"]](**request["arguments"])
            reply = {"answer": answer}
        except NginxTuneError as error:
            reply = {"error": error.message, "hint": error.hint, "status": int(error.status)}
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            reply = {
                "error": f"{place}{error.strerror or error}",
                "hint": "",
                "status": int(ExitStatus.UNDECIDED),
            }
        out.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    _main()
