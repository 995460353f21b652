"""Makes what a configuration finds around it; runs inside the walls."""

from __future__ import annotations

from pathlib import Path

from nginx_tune.lab.addresses import take_addresses
from nginx_tune.lab.stubs import start_stubs
from nginx_tune.measure.surroundings import Surroundings, SurroundRequest
from nginx_tune.measure.trial import give_names, show_files

_DIRECTORY = Path("/run/nginx-tune-stubs")


def surround(request: SurroundRequest, directory: Path) -> Surroundings:
    """Make it; what there is now."""
    take_addresses(request.addresses)
    show_files(request.replaced, directory)
    names = [name for argv in request.commands for name in give_names(argv, directory)]
    stubs = start_stubs(request.outgoing, request.binary, _DIRECTORY, request.cpus)
    return Surroundings(names=names, stubs=stubs)
