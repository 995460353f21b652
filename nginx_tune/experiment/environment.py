"""Makes what a configuration finds around it; runs inside the walls."""

from __future__ import annotations

from pathlib import Path

from nginx_tune.experiment.operations import EnvironmentRequest, MadeEnvironment
from nginx_tune.experiment.room import make_room
from nginx_tune.experiment.shown_files import ShownFiles
from nginx_tune.experiment.trial import give_names
from nginx_tune.lab.addresses import take_addresses
from nginx_tune.lab.enclosure import Enclosure
from nginx_tune.lab.mounts import STATE
from nginx_tune.lab.stubs import start_stubs


def make_environment(
    request: EnvironmentRequest, directory: Path, enclosure: Enclosure, shown: ShownFiles
) -> MadeEnvironment:
    """Make it; what there is now."""
    take_addresses(request.addresses)
    shown.lay(request.shown, directory)
    make_room(request.sockets, enclosure)
    names: list[str] = []
    for arm, argv in request.commands.items():
        shown.turn_to(arm)
        names += give_names(argv, directory, enclosure)
    stubs = start_stubs(
        request.outgoing, request.binary, STATE / "stubs", request.cpus, echoes=request.echoes
    )
    for path, ours in stubs.sockets.items():
        enclosure.show_instead(path, ours)
    return MadeEnvironment(names=names, stubs=stubs)
