"""A certificate for the lab's TLS: self-signed, made for the run, gone with it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from nginx_tune.nginx.lab.disks import run_tool

_DAYS = 2


class Certificate(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


def make_certificate(directory: Path, *, names: list[str]) -> Certificate:
    """A certificate on the curve P-256 (what most sites use) for names and IP addresses.

    By the openssl program, which a host of nginx has, so that no further package is needed.
    Errors: MissingToolError without it.
    """
    made = Certificate(directory / "certificate.pem", directory / "certificate.key")
    alternatives = ",".join(
        f"{'IP' if name.replace('.', '').isdigit() else 'DNS'}:{name}" for name in names
    )
    run_tool(
        "openssl", "req", "-x509", "-nodes", "-newkey", "ec",
        "-pkeyopt", "ec_paramgen_curve:P-256", "-days", str(_DAYS),
        "-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={alternatives}",
        "-keyout", str(made.key), "-out", str(made.certificate),
    )  # fmt: skip
    made.key.chmod(0o600)
    return made
