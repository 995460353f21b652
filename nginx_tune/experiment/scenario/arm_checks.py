"""Whether a scenario's arms can be run as they are written; pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from nginx_tune.documents.lab import has_origin
from nginx_tune.documents.scenario import ArmSpec, Scenario, ScenarioClass
from nginx_tune.measure.load.families import family_faults

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,31}", re.ASCII)
_SERIES = re.compile(r"[0-9]+\.[0-9]+", re.ASCII)
_SYSCTL = re.compile(r"net\.[a-z0-9_-]+(\.[a-z0-9_-]+)+", re.ASCII)
"""Only names that the lab's own network namespace has, never the machine's."""
_SYSCTL_VALUE = re.compile(r"[0-9 ]{1,40}", re.ASCII)
_QUERY = re.compile(r"[a-z0-9=&_-]{0,200}", re.ASCII)
_MOST_WORKERS = 64
_FEWEST_SECONDS = 0.1

Check = Callable[[bool, str], None]


def check_arms(scenario: Scenario, check: Check) -> None:
    """Call ``check`` with each thing that must hold and the fault where it does not."""
    names = ["baseline", "candidate", *(arm.name for arm in scenario.arms)]
    check(len(set(names)) == len(names), "arms: a name stands twice")
    for arm in scenario.arms:
        check(_NAME.fullmatch(arm.name) is not None, f"arms: no name: {arm.name[:60]!a}")
    for name, spec in zip(
        names, (scenario.baseline, scenario.candidate, *scenario.arms), strict=True
    ):
        _check_arm(scenario, name, spec, check)
    claims = {claim.name for claim in scenario.claims}
    for claim in scenario.claims:
        fault = f"claims: less_than: no claim {claim.less_than[:60]!a}"
        check(claim.less_than in {"", *claims} - {claim.name}, fault)
        for name in (claim.arm, claim.against):
            check(name in names, f"claims: no arm {name[:60]!a}")


def _check_arm(scenario: Scenario, name: str, spec: ArmSpec, check: Check) -> None:
    classes = {item.name for item in scenario.classes}
    disks = {disk.name for disk in scenario.lab.disks}
    check(
        not spec.classes or {item.name for item in spec.classes} == classes,
        f"{name}: its classes need the names of the scenario's: {', '.join(sorted(classes))}",
    )
    for fault in (*family_faults(scenario.classes), *family_faults(spec.classes)):
        check(False, fault)
    for item in (*scenario.classes, *spec.classes):
        check(item.first_files is None or item.first_files > 0, "classes.first_files: below 1")
        check(not item.once or item.source == "random", "classes.once: only of random files")
        check(not item.once or item.exponent is None, "classes.once: no file is popular then")
        check(
            not item.beside_memory
            or (
                item.beside_memory > 0
                and item.source == "random"
                and item.exponent is None
                and item.arrivals.rate_per_second is not None
            ),
            "classes.beside_memory: only of random files, all alike, at a rate",
        )
        _check_protocol(scenario, item, check)
        is_events = item.source == "events"
        check(
            not is_events or has_origin(scenario.lab),
            "classes.source: events are the origin's: lab.topology proxy, or origin_behind a link",
        )
        is_uploads = item.source == "uploads"
        check(
            not is_uploads or has_origin(scenario.lab),
            "classes.source: uploads go to the origin: lab.topology proxy, or origin_behind a link",
        )
        check(is_uploads == (item.upload is not None), "classes.upload: of uploads, and only there")
        check(is_events or not item.query, "classes.query: only of events")
        check(
            _QUERY.fullmatch(item.query) is not None,
            f"classes.query: no query: {item.query[:60]!a}",
        )
        check(item.disk in {"", *disks}, f"classes: no disk {item.disk[:60]!a}")
    check(not spec.cleartext or scenario.lab.tls, f"{name}: cleartext: the lab has no TLS anyway")
    asked = spec.classes or scenario.classes
    check(
        not spec.cleartext or all(item.http3 is None for item in asked),
        f"{name}: cleartext: HTTP/3 is always encrypted",
    )
    for key, value in spec.sysctls.items():
        fine = _SYSCTL.fullmatch(key) and _SYSCTL_VALUE.fullmatch(value)
        check(fine is not None, f"{name}: sysctls: only net.… with numbers: {key[:60]!a}")
    check(
        not spec.series or _SERIES.fullmatch(spec.series) is not None,
        f"{name}: series: not like 1.18: {spec.series[:60]!a}",
    )
    check(
        not spec.warm_names or scenario.lab.cold_names,
        f"{name}: warm_names: the lab has no cold_names",
    )
    check(
        spec.stand_in == "none" or not (spec.series or spec.reload or spec.settings),
        f"{name}: a stand-in takes no series, settings or reloads",
    )
    if spec.reload is not None:
        check(spec.reload.every_seconds >= _FEWEST_SECONDS, f"{name}: reload: too often")
        counts = spec.reload.worker_processes
        check(
            len(counts) > 0 and all(1 <= count <= _MOST_WORKERS for count in counts),
            f"{name}: reload.worker_processes: from 1 to {_MOST_WORKERS}",
        )


def _check_protocol(scenario: Scenario, item: ScenarioClass, check: Check) -> None:
    check(item.http2 is None or item.http3 is None, "classes: http2 and http3 exclude each other")
    check(item.http3 is None or scenario.lab.tls, "classes.http3: QUIC is encrypted: lab.tls")
    check(
        (item.http2 is None and item.http3 is None) or item.keepalive,
        "classes: keepalive is of HTTP/1.1 alone",
    )
    check(
        item.http3 is None or item.read_bytes_per_second is None,
        "classes: slow clients are of HTTP/1.1 and HTTP/2",
    )
