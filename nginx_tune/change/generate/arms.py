"""An experiment's arms: the plain configuration of the source, or what was decided."""

from __future__ import annotations

import msgspec

from nginx_tune.change.generate.nginx_conf import emit_decided, emit_plain
from nginx_tune.documents.decisions import Decisions, Setting
from nginx_tune.documents.scenario import ArmSpec
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind


def write_arm(
    spec: ArmSpec, decisions: Decisions, *, site: Site, kind: Kind, error_log: str
) -> str:
    """One arm's nginx.conf, as the emitter delivers it.

    Both arms have the decided number of workers and no access log, so that they differ in what
    is compared alone.
    """
    placed = msgspec.structs.replace(
        site, error_log=error_log, access_log="off", gzip=[], tcp_nopush=False
    )
    quiet = Setting(context="http", directive="access_log", args=["off"])
    if spec.decisions == "none":
        workers = [s for d in decisions.decisions if d.id == "workers" for s in d.settings]
        return emit_plain(placed, kind, forced=[*workers, *spec.settings])
    decided = msgspec.structs.replace(decisions, kind=kind)
    return emit_decided(decided, placed, forced=[quiet, *spec.settings], memory_page=True)
