"""What is around nginx in a lab: clients behind a link, an origin, a certificate."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from nginx_tune.documents.lab import Lab, has_origin
from nginx_tune.errors import UndecidedError
from nginx_tune.host.programs import own_module, start_text_program
from nginx_tune.nginx.lab.certificate import Certificate, make_certificate
from nginx_tune.nginx.lab.environment import LOOPBACK, Placement
from nginx_tune.nginx.lab.lifetime import die_with_parent
from nginx_tune.nginx.lab.link import SERVER_ADDRESS, ClientSide
from nginx_tune.nginx.lab.origin import OriginRequest, origin_objects

T = TypeVar("T")


class Topology:
    """The surroundings of one lab, inside its walls. They go with the walls."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self._clients = ClientSide(lab.link) if lab.topology == "link" else None
        self._origin: subprocess.Popen[str] | None = None
        address = SERVER_ADDRESS if self._clients is not None else LOOPBACK
        certificate: Certificate | None = None
        if lab.tls:
            certificate = make_certificate(directory, names=["localhost", LOOPBACK, address])
        is_proxy = has_origin(lab)
        self.placement = Placement(
            address=address,
            origin=self._start_origin(lab) if is_proxy else None,
            objects=origin_objects(lab.origin) if is_proxy else {},
            certificate=str(certificate.certificate) if certificate else None,
            certificate_key=str(certificate.key) if certificate else None,
        )

    def from_clients(self, call: Callable[[], T]) -> T:
        """What a call returns when it is made where the clients are."""
        return call() if self._clients is None else self._clients.run(call)

    def _start_origin(self, lab: Lab) -> str:
        request = OriginRequest(address=LOOPBACK, origin=lab.origin, seed=lab.seed)
        self._origin = start_text_program(
            own_module("nginx_tune.nginx.lab.origin", msgspec.json.encode(request).decode()),
            is_checked=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,  # one prctl; no threads are running
        )
        port = "" if self._origin.stdout is None else self._origin.stdout.readline().strip()
        if not port:
            self._origin.kill()
            errors = "" if self._origin.stderr is None else self._origin.stderr.read().strip()
            raise UndecidedError(f"the origin ended: {errors.splitlines()[-1] if errors else ''}")
        return f"{LOOPBACK}:{port}"
