"""Scenario and experiment files, built-in or the user's, read and checked before anything runs."""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from nginx_tune.documents.base import decode_tables, schema_of
from nginx_tune.documents.lab import Lab, has_origin
from nginx_tune.documents.scenario import (
    ExperimentSpec,
    RowClaim,
    Scenario,
    ScenarioClass,
    SourceRow,
    SourceRows,
    VariantSpec,
)
from nginx_tune.errors import UsageError, name_meant
from nginx_tune.measure.load.classes import family_faults
from nginx_tune.measure.proof.gates import check_expressions
from nginx_tune.nginx.lab.check import check_lab
from nginx_tune.report.scenario import expected_text


def list_scenarios() -> list[Scenario]:
    """The built-in scenarios, sorted by name."""
    folder = resources.files("nginx_tune") / "scenarios"
    files = [item for item in folder.iterdir() if item.name.endswith(".toml")]
    found = (decode_tables(Scenario, _tables(file), file.name) for file in files)
    return sorted(found, key=lambda scenario: scenario.name)


def is_file_name(name: str) -> bool:
    """True for the name of a file, not of a built-in scenario."""
    return name.endswith(".toml") or "/" in name


def scenario_text(name: str) -> str:
    """The text of a built-in scenario. Errors: UsageError for an unknown name."""
    folder = resources.files("nginx_tune") / "scenarios"
    for file in folder.iterdir():
        if file.name.endswith(".toml") and _tables(file).get("name") == name:
            return file.read_text()
    raise _unknown_name(name, [scenario.name for scenario in list_scenarios()])


def load_experiment(
    name: str, read_toml: Callable[[Path], dict[str, Any]]
) -> Scenario | ExperimentSpec:
    """The subject of ``scenario run``: a scenario, or an experiment that ``--dry-run`` wrote.

    Errors: UsageError for an unknown name or a file that is neither.
    """
    if not is_file_name(name):
        return load_scenario(name, read_toml)
    tables = read_toml(Path(name))
    if tables.get("schema") == schema_of(ExperimentSpec):
        spec = decode_tables(ExperimentSpec, tables, name)
        check_experiment(spec, name)
        return spec
    return decode_tables(Scenario, tables, name)


def load_scenario(name: str, read_toml: Callable[[Path], dict[str, Any]]) -> Scenario:
    """A built-in scenario by name, or one from a TOML file.

    Errors: UsageError for an unknown name or a file that is not a scenario.
    """
    if is_file_name(name):
        return decode_tables(Scenario, read_toml(Path(name)), name)
    known = {scenario.name: scenario for scenario in list_scenarios()}
    if name not in known:
        raise _unknown_name(name, list(known))
    return known[name]


def _unknown_name(name: str, known: Sequence[str]) -> UsageError:
    hint = name_meant(name, known) or f"one of {', '.join(known)}, or a TOML file"
    return UsageError(f"no scenario '{name}'", hint=hint)


def _tables(file: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = msgspec.toml.decode(file.read_bytes())
    return found


def read_source_rows(scenarios: Sequence[Scenario]) -> SourceRows:
    """The table of source facts, each row with the claims of its scenarios."""
    file = resources.files("nginx_tune") / "sources" / "rows.toml"
    table = msgspec.convert(msgspec.toml.decode(file.read_bytes()), SourceRows)
    return SourceRows(rows=[_with_claims(row, scenarios) for row in table.rows])


def _with_claims(row: SourceRow, scenarios: Sequence[Scenario]) -> SourceRow:
    known = {scenario.name: scenario for scenario in scenarios}
    claims = [
        RowClaim(scenario=name, name=claim.name, expected=expected_text(claim))
        for name in row.scenarios
        for claim in known[name].claims
        if claim.source_row == row.row
    ]
    return msgspec.structs.replace(row, claims=claims)


def check_experiment(spec: ExperimentSpec, source: str) -> None:
    """Check that an experiment can be run. Errors: UsageError with the file and the field."""
    names = [item.name for item in spec.load.classes]
    faults = {
        "candidate: none": not (spec.candidate or spec.plan),
        "plan: it names its configuration, so it excludes baseline and candidate": bool(
            spec.plan and (spec.candidate or spec.baseline)
        ),
        "load.classes: none": not names,
        "load.classes: a name appears twice": len(set(names)) < len(names),
        **{f"load.{fault}": True for fault in family_faults(spec.load.classes)},
        f"pairs: not from 1 to {_MOST_PAIRS}": not 1 <= spec.pairs <= _MOST_PAIRS,
        "duration_seconds: not above 0": spec.duration_seconds <= 0,
        "warmup_seconds: below 0": (spec.warmup_seconds or 0) < 0,
        "max_seconds: not above 0": spec.max_seconds is not None and spec.max_seconds <= 0,
        "scale: not above 0 and at most 1": spec.scale is not None and not 0 < spec.scale <= 1,
        "seed: below 0": spec.seed < 0,
    }
    for fault, stands in faults.items():
        if stands:
            raise UsageError(f"{source}: {fault}")


_MOST_PAIRS = 100


def check_scenario(scenario: Scenario) -> None:
    """Check that a scenario can be run, since a misspelt claim must not cost all of its runs.

    Errors: UsageError with the field.
    """
    names = [item.name for item in scenario.classes]
    _check(len(names) > 0, "classes: none")
    _check(len(set(names)) == len(names), "classes: a name appears twice")
    _check(1 <= scenario.pairs <= _MOST_PAIRS, f"pairs: not from 1 to {_MOST_PAIRS}")
    _check(scenario.duration_seconds > 0, "duration_seconds: not above 0")
    _check(scenario.warmup_seconds >= 0, "warmup_seconds: below 0")
    _check((scenario.drain_seconds or 0) >= 0, "drain_seconds: below 0")
    _check(scenario.seed >= 0, "seed: below 0")
    _check_lab(scenario.lab)
    _check(
        scenario.starts != "full" or scenario.lab.memory_bytes is not None,
        "lab.memory_bytes: missing, but starts = 'full' needs it",
    )
    _check(
        scenario.starts == "cold" or not scenario.lab.cold_names,
        "starts: must be 'cold' with lab.cold_names, because reading a file warms its name",
    )
    check_variants(scenario, _check)
    claimed = [claim.expression for claim in scenario.claims]
    check_expressions([*claimed, f"{scenario.primary_metric} >= 0"], names)


def _check_lab(lab: Lab) -> None:
    _check(len(lab.disks) > 0, "lab.disks: none")
    check_lab(lab, "scenario: lab.")
    for disk in lab.disks:
        _check(disk.mount != "", f"lab.disks.mount: missing for disk {disk.name}")
        _check(
            disk.writable or any(item.disk == disk.name for item in lab.data),
            f"lab.data: missing for disk {disk.name}",
        )
    if has_origin(lab):
        _check(any(disk.writable for disk in lab.disks), "lab.disks: a cache needs a writable disk")


_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,31}", re.ASCII)
_SERIES = re.compile(r"[0-9]+\.[0-9]+", re.ASCII)
_SYSCTL = re.compile(r"net\.[a-z0-9_-]+(\.[a-z0-9_-]+)+", re.ASCII)
"""Sysctls of the lab's network namespace, never the machine's."""
_SYSCTL_VALUE = re.compile(r"[0-9 ]{1,40}", re.ASCII)
_MOST_WORKERS = 64
_FEWEST_SECONDS = 0.1
Ensure = Callable[[bool, str], None]


def check_variants(scenario: Scenario, check: Ensure) -> None:
    """Call ``check`` with each condition and the message for its failure."""
    names = ["baseline", "candidate", *(variant.name for variant in scenario.variants)]
    check(len(set(names)) == len(names), "arms: a name appears twice")
    for variant in scenario.variants:
        check(
            _NAME.fullmatch(variant.name) is not None,
            f"arms: not a valid name: {variant.name[:60]!a}",
        )
    for name, spec in zip(
        names, (scenario.baseline, scenario.candidate, *scenario.variants), strict=True
    ):
        _check_variant(scenario, name, spec, check)
    claims = {claim.name for claim in scenario.claims}
    for claim in scenario.claims:
        fault = f"claims: less_than: no claim {claim.less_than[:60]!a}"
        check(claim.less_than in {"", *claims} - {claim.name}, fault)
        for name in (claim.variant, claim.against):
            check(name in names, f"claims: no variant {name[:60]!a}")


def _check_variant(scenario: Scenario, name: str, spec: VariantSpec, check: Ensure) -> None:
    classes = {item.name for item in scenario.classes}
    check(
        not spec.classes or {item.name for item in spec.classes} == classes,
        f"{name}: its classes need the names of the scenario's: {', '.join(sorted(classes))}",
    )
    for fault in (*family_faults(scenario.classes), *family_faults(spec.classes)):
        check(False, fault)
    for item in (*scenario.classes, *spec.classes):
        _check_class(scenario, item, check)
    check(
        not spec.cleartext or scenario.lab.tls,
        f"{name}: cleartext: has no effect, because the lab has no TLS",
    )
    classes_of_variant = spec.classes or scenario.classes
    check(
        not spec.cleartext or all(item.http3 is None for item in classes_of_variant),
        f"{name}: cleartext: HTTP/3 is always encrypted",
    )
    for key, value in spec.sysctls.items():
        valid = _SYSCTL.fullmatch(key) and _SYSCTL_VALUE.fullmatch(value)
        check(
            valid is not None,
            f"{name}: sysctls: only names below net. with numeric values: {key[:60]!a}",
        )
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


def _check_class(scenario: Scenario, item: ScenarioClass, check: Ensure) -> None:
    check(item.first_files is None or item.first_files > 0, "classes.first_files: below 1")
    check(not item.once or item.source == "random", "classes.once: only for random files")
    check(not item.once or item.exponent is None, "classes.once: excludes exponent")
    check(
        not item.beside_memory
        or (
            item.beside_memory > 0
            and item.source == "random"
            and item.exponent is None
            and item.arrivals.rate_per_second is not None
        ),
        "classes.beside_memory: only for random files of equal popularity, at a rate",
    )
    _check_protocol(scenario, item, check)
    check(
        item.disk in {"", *(disk.name for disk in scenario.lab.disks)},
        f"classes: no disk {item.disk[:60]!a}",
    )


def _check_protocol(scenario: Scenario, item: ScenarioClass, check: Ensure) -> None:
    check(item.http2 is None or item.http3 is None, "classes: http2 and http3 exclude each other")
    check(
        item.http3 is None or scenario.lab.tls,
        "classes.http3: QUIC is encrypted, so lab.tls must be set",
    )
    check(
        (item.http2 is None and item.http3 is None) or item.keepalive,
        "classes: keepalive = false needs HTTP/1.1",
    )
    check(
        item.http3 is None or item.read_bytes_per_second is None,
        "classes: slow clients need HTTP/1.1 or HTTP/2",
    )


def _check(holds: bool, fault: str) -> None:
    if not holds:
        raise UsageError(f"scenario: {fault}")
