"""Runs a scenario: lab, facts, decisions before the run, both arms, verdict and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from nginx_tune.decide import decide
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.scenario import ArmSpec, ArmText, Scenario, ScenarioRun
from nginx_tune.documents.site import Site
from nginx_tune.documents.verdict import Environment
from nginx_tune.documents.workload import Kind
from nginx_tune.errors import MissingToolError, UndecidedError, UsageError
from nginx_tune.lab.walls import Walls
from nginx_tune.measure.experiment import Load, run_pairs
from nginx_tune.measure.plan_load import ServedFile
from nginx_tune.measure.plan_places import plan_places
from nginx_tune.measure.plan_scenario import check_scenario
from nginx_tune.measure.plan_workload import plan_workload
from nginx_tune.measure.session import MODULE_INSIDE, Arm, Session
from nginx_tune.prove.gates import judge_claims
from nginx_tune.prove.verdict import judge

PORT = 8080
ERROR_LOG = "/var/log/nginx/error.log"
MEMORY_URL = "/healthz"


class ArmWriter(Protocol):
    """Writes one arm's nginx.conf; the emitter, given from outside."""

    def __call__(
        self, spec: ArmSpec, decisions: Decisions, *, site: Site, kind: Kind, error_log: str
    ) -> str:
        """The whole text."""


class Shorter(NamedTuple):
    """What a caller may change of a scenario's length; None leaves it."""

    pairs: int | None = None
    duration_seconds: float | None = None
    seed: int | None = None


def list_scenarios() -> list[Scenario]:
    """The built-in scenarios, by name."""
    folder = resources.files("nginx_tune") / "scenarios"
    files = [item for item in folder.iterdir() if item.name.endswith(".toml")]
    return sorted((_convert(_tables(file), file.name) for file in files), key=lambda s: s.name)


def load_scenario(name: str, read_toml: Callable[[Path], dict[str, Any]]) -> Scenario:
    """A built-in scenario by name, or one from a TOML file.

    Errors: UsageError for an unknown name or a file that is no scenario.
    """
    if name.endswith(".toml") or "/" in name:
        return _convert(read_toml(Path(name)), name)
    known = {scenario.name: scenario for scenario in list_scenarios()}
    if name not in known:
        raise UsageError(f"no scenario '{name}'", hint=f"one of {', '.join(known)}, or a TOML file")
    return known[name]


def _tables(file: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = msgspec.toml.decode(file.read_bytes())
    return found


def _convert(tables: Mapping[str, Any], source: str) -> Scenario:
    unknown = sorted(set(tables) - {"schema", *Scenario.__struct_fields__})
    if unknown:  # people write it by hand: a misspelt word would do nothing
        raise UsageError(f"{source}: a scenario has no '{unknown[0]}'")
    try:
        return msgspec.convert(tables, Scenario)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: not a scenario: {error}") from None


def run_scenario(
    scenario: Scenario,
    *,
    nginx: Nginx,
    write_arm: ArmWriter,
    shorter: Shorter | None = None,
    progress: Callable[[str], None],
) -> ScenarioRun:
    """Run a scenario on this machine.

    Errors: UsageError for a scenario that cannot be run (before anything runs),
            MissingToolError without nginx, UndecidedError when nginx lacks what the scenario
            needs, MissingPermissionError when the lab needs root.
    Side effects: everything happens inside the walls and is gone afterwards.
    """
    scenario = _shorten(scenario, shorter or Shorter())
    check_scenario(scenario)
    binary = check_nginx(nginx, scenario)
    with Walls(MODULE_INSIDE, progress=progress) as walls:
        session = Session(walls, scenario.lab, binary=binary, covers=plan_places(nginx.flags))
        mounts = [disk.mount for disk in scenario.lab.disks]
        facts = session.facts(mounts)
        site = Site(
            listen=[f"127.0.0.1:{PORT}"], server_names=["localhost"], roots=mounts or ["/srv"]
        )
        prediction = decide(facts, plan_workload(scenario, facts), site=site)
        arms = [
            Arm(
                name=name,
                conf_path=f"/run/nginx-tune/{name}/nginx.conf",
                conf_text=write_arm(
                    spec, prediction, site=site, kind=scenario.kind, error_log=ERROR_LOG
                ),
                error_log=ERROR_LOG,
            )
            for name, spec in (("baseline", scenario.baseline), ("candidate", scenario.candidate))
        ]
        load = Load(
            classes=scenario.classes,
            files=_served(session, scenario),
            port=PORT,
            memory_url=MEMORY_URL,
            host="localhost",
            warmup_seconds=scenario.warmup_seconds,
            duration_seconds=scenario.duration_seconds,
        )
        measurements = run_pairs(
            session, arms, load, pairs=scenario.pairs, seed=scenario.seed, progress=progress
        )
    environment = Environment(
        nginx_version=nginx.version,
        kernel_release=facts.kernel.release,
        lab=scenario.lab.name,
        seed=scenario.seed,
    )
    return ScenarioRun(
        name=scenario.name,
        facts=facts,
        prediction=prediction,
        claims=judge_claims(scenario.claims, measurements, decisions=prediction),
        verdict=judge(
            measurements,
            primary_metric=scenario.primary_metric,
            environment=environment,
            decisions=prediction,
        ),
        arms=[ArmText(arm=arm.name, nginx_conf=arm.conf_text or "") for arm in arms],
        measurements=measurements,
    )


def check_nginx(nginx: Nginx, scenario: Scenario) -> str:
    """The binary, when it can run the scenario."""
    if nginx.binary is None:
        raise MissingToolError(
            "nginx is not installed", hint="apt-get install nginx, or name one with --nginx"
        )
    built = {flag.partition("=")[0] for flag in nginx.flags}
    missing = [flag for flag in scenario.needs if flag not in built]
    if missing:
        raise UndecidedError(
            f"{nginx.binary} is built without {', '.join(missing)}, which {scenario.name} needs",
            hint="install a package of nginx that has it and name it with --nginx",
        )
    return nginx.binary


def _served(session: Session, scenario: Scenario) -> list[ServedFile]:
    disk = scenario.lab.disks[0]
    return [
        ServedFile(file.url.removeprefix(disk.mount), file.bytes)
        for file in session.files[disk.name]
    ]


def _shorten(scenario: Scenario, shorter: Shorter) -> Scenario:
    changes = {key: value for key, value in shorter._asdict().items() if value is not None}
    return msgspec.structs.replace(scenario, **changes)
