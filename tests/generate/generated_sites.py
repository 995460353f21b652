"""A generated configuration that a test can start: one process group, files in its folder."""

from pathlib import Path

from made_decisions import decide
from situations import load

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site, SiteTls
from nginx_tune.nginx.lab.network import make_certificate

_STARTABLE = (
    ("main", "daemon", "off"),
    ("main", "worker_processes", "1"),
    ("main", "worker_rlimit_nofile", "4096"),
    ("events", "worker_connections", "512"),
)


def generated(folder: Path, facts: Facts, *listen: str) -> str:
    """A static site with a certificate for localhost; ``folder`` is its root, and has its logs."""
    made = make_certificate(folder, names=["localhost"])
    site = complete_site(
        Site(
            listen=list(listen),
            tls=SiteTls(certificate=str(made.certificate), certificate_key=str(made.key)),
            roots=[str(folder)],
            user="root",
            error_log=f"{folder}/error.log",
            access_log=f"{folder}/access.log",
        ),
        facts,
        "static",
    )
    lines = (*_STARTABLE, ("main", "pid", f"{folder}/pid"))
    forced = [Setting(context=where, directive=name, args=[value]) for where, name, value in lines]
    return emit_decided(decide(facts, load(), site=site), site, forced=forced)
