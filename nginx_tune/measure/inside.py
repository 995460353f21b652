"""The process inside the walls: builds the lab, knows its facts, runs blocks.

It reads one JSON request a line from standard input and answers in kind, so that the command
outside (which decides and judges) needs nothing of what only exists in here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from nginx_tune.documents.lab import Lab
from nginx_tune.errors import ExitStatus, NginxTuneError, UndecidedError
from nginx_tune.lab import mounts
from nginx_tune.lab.building import LabDisks
from nginx_tune.lab.lifetime import die_with_parent
from nginx_tune.lab.opened import OpenLab
from nginx_tune.lab.topology import Topology
from nginx_tune.measure.block import BlockRequest, run_block


class Inside:
    """State of the lab: its directory, its disks and where they are mounted."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._directory = Path("/")
        self._lab: OpenLab | None = None

    def hello(self, mark: str, directory: str) -> dict[str, Any]:
        """Finish the walls: private mounts were made by unshare, ``lo`` comes up here."""
        self._directory = Path(directory)
        mounts.raise_loopback()
        return {"mark": mark, "uid": os.geteuid()}

    def open_lab(
        self, lab: dict[str, Any], covers: list[str], overlays: list[str], *, seal: bool
    ) -> dict[str, Any]:
        """Make, mount and fill the disks, cover what nginx writes to, seal the rest.

        ``overlays`` are directories that nginx writes to and that hold what it serves or reads.
        Shape: ``devices`` {disk name: MAJOR:MINOR}, ``files`` {disk name: [[path, bytes], …]}.
        """
        spec = msgspec.convert(lab, Lab)
        for directory in overlays:
            mounts.take_writes(Path(directory))
        disks = LabDisks(spec, self._directory, self._say)
        disks.prepare()
        mounts.set_apart(self._directory)
        disks.open()
        self._lab = OpenLab(disks, Topology(spec, self._directory))
        for directory in covers:
            mounts.cover(Path(directory))
        if seal:
            mounts.seal_root()
            os.environ["TMPDIR"] = "/run"  # covered by us, and the only place to write to
        around = msgspec.to_builtins(self._lab.topology.around)
        return {"devices": disks.device_numbers, "files": disks.files, "around": around}

    def surround(self, request: dict[str, Any]) -> Any:
        """Have what configurations need around them; see ``measure/surroundings.py``."""
        from nginx_tune.measure.surround import surround  # noqa: PLC0415  # not for scenarios
        from nginx_tune.measure.surroundings import SurroundRequest  # noqa: PLC0415

        wanted = msgspec.convert(request, SurroundRequest)
        return msgspec.to_builtins(surround(wanted, self._directory))

    def survey(self, request: dict[str, Any]) -> Any:
        """What a configuration answers; see ``measure/survey.py``."""
        from nginx_tune.measure.survey import SurveyRequest, survey  # noqa: PLC0415

        return msgspec.to_builtins(survey(msgspec.convert(request, SurveyRequest)))

    def facts(self, paths: list[str], binary: str, memory_cgroup: str | None) -> dict[str, Any]:
        """Facts as a program inside the lab reads them."""
        from nginx_tune.host.live import LiveHost  # noqa: PLC0415  # heavy, once
        from nginx_tune.measure.facts import gather_facts  # noqa: PLC0415

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
        self, argv: list[str], files: dict[str, str], *, seal: bool
    ) -> dict[str, Any]:
        """``nginx -t`` with some files replaced."""
        from nginx_tune.measure.trial import try_inside  # noqa: PLC0415  # not for blocks

        mounts.set_apart(self._directory)
        found: dict[str, Any] = try_inside(argv, files, self._directory, seal=seal)
        return found

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one block; the measurement."""
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
