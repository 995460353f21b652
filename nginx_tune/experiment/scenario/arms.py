"""The arms of a scenario as this machine can run them, and those it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from nginx_tune.documents.decisions import Decisions, Setting
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.scenario import ArmSpec, FurtherArm, Scenario
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind
from nginx_tune.errors import MissingToolError, UndecidedError
from nginx_tune.experiment.arm import Arm, Conduct
from nginx_tune.experiment.worker_header import HEADER_WORDS
from nginx_tune.host.programs import ProgramError, find_program
from nginx_tune.nginx.matrix import find_series
from nginx_tune.observe.connections import LOG_NAME, LOG_WORDS

ERROR_LOG = "/var/log/nginx/error.log"
CONNECTIONS_LOG = "/var/log/nginx/connections.log"


class ArmWriter(Protocol):
    """Writes one arm's nginx.conf; the emitter, given from outside."""

    def __call__(
        self, spec: ArmSpec, decisions: Decisions, *, site: Site, kind: Kind, error_log: str
    ) -> str:
        """The whole text."""


class Programs(NamedTuple):
    """Which nginx each arm runs, and which arms are left out."""

    of_arm: Mapping[str, str]
    left_out: Mapping[str, str]
    """Why, by the arm's name."""


def specs_of(scenario: Scenario) -> dict[str, ArmSpec]:
    """Every arm by its name, baseline and candidate first."""
    return {
        "baseline": scenario.baseline,
        "candidate": scenario.candidate,
        **{arm.name: arm for arm in scenario.arms},
    }


def find_programs(scenario: Scenario, nginx: Nginx, binary: str) -> Programs:
    """The programs of the arms, as far as this machine has them.

    Errors: MissingToolError or UndecidedError when one that is not optional cannot run.
    """
    found: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, spec in specs_of(scenario).items():
        try:
            _check_sysctls(spec)
            found[name] = _program(spec, nginx, binary)
        except (MissingToolError, UndecidedError) as error:
            if not isinstance(spec, FurtherArm) or not spec.optional:
                raise
            left_out[name] = error.message
    return Programs(found, left_out)


def _program(spec: ArmSpec, nginx: Nginx, binary: str) -> str:
    if not spec.series or (nginx.version or "").startswith(f"{spec.series}."):
        return binary
    program = find_series(spec.series)
    if program is None:
        raise MissingToolError(
            f"nginx {spec.series} is not here",
            hint=f"tools/nginx-matrix {spec.series} unpacks it from Debian's archive",
        )
    try:
        return find_program(str(program))
    except ProgramError as error:
        raise UndecidedError(f"{program}: {error}") from None


def _check_sysctls(spec: ArmSpec) -> None:
    for name in spec.sysctls:
        if not Path("/proc/sys", *name.split(".")).exists():
            raise UndecidedError(f"this kernel has no sysctl {name}")


def make_arms(
    scenario: Scenario,
    programs: Programs,
    prediction: Decisions,
    *,
    write_arm: ArmWriter,
    site: Site,
    cached: Sequence[str] = (),
) -> list[Arm]:
    """The arms that run, each with its configuration; ``cached`` are URLs that caches hold."""
    workers = scenario.lab.worker_processes
    always = [_workers(workers), _told_by_worker()] if workers > 1 else []
    always += _counting() if scenario.counts_connections else []

    def text(spec: ArmSpec, more: Sequence[Setting] = ()) -> str:
        forced = msgspec.structs.replace(spec, settings=[*always, *spec.settings, *more])
        own = _without_tls(site) if spec.cleartext else site
        return write_arm(forced, prediction, site=own, kind=scenario.kind, error_log=ERROR_LOG)

    arms = []
    for name, spec in specs_of(scenario).items():
        if name not in programs.of_arm:
            continue
        texts = [text(spec, [_workers(count)]) for count in _reloaded(spec)]
        conduct = Conduct(
            binary=programs.of_arm[name],
            stand_in=spec.stand_in,
            workers=workers,
            sysctls=spec.sysctls,
            reload_texts=texts,
            reload_seconds=spec.reload.every_seconds if spec.reload else 1.0,
            starts=scenario.starts,
            traces=scenario.traces,
            drain_seconds=scenario.drain_seconds,
            cached=list(cached),
            counts_opens=scenario.counts_opens,
            warm_names=spec.warm_names,
            ahead=True,
            cleartext=spec.cleartext,
            connections_log=CONNECTIONS_LOG if scenario.counts_connections else None,
        )
        arms.append(
            Arm(
                name=name,
                conf_path=f"/run/nginx-tune/{name}/nginx.conf",
                conf_text=texts[0] if texts else text(spec),
                error_log=ERROR_LOG,
                conduct=conduct,
            )
        )
    return arms


def _without_tls(site: Site) -> Site:
    listens = [" ".join(word for word in item.split() if word != "ssl") for item in site.listen]
    return msgspec.structs.replace(site, tls=None, listen=listens)


def _reloaded(spec: ArmSpec) -> list[int]:
    return spec.reload.worker_processes if spec.reload else []


def _workers(count: int) -> Setting:
    return Setting(context="main", directive="worker_processes", args=[str(count)])


def _told_by_worker() -> Setting:
    """Which worker answers, in each response; a location with headers of its own tells nothing."""
    return Setting(context="http", directive="add_header", args=list(HEADER_WORDS))


def _counting() -> list[Setting]:
    """A log of nothing but which worker served which connection."""
    return [
        Setting(context="http", directive="log_format", args=[LOG_NAME, *LOG_WORDS]),
        Setting(context="server", directive="access_log", args=[CONNECTIONS_LOG, LOG_NAME]),
    ]


def arm_of_prediction(scenario: Scenario) -> str:
    """The arm that tries what was decided: the first with all of it, else the candidate."""
    specs = specs_of(scenario)
    decided = (name for name, spec in specs.items() if spec.decisions == "recommended")
    return next((name for name in decided if name != "baseline"), "candidate")


def tried_decisions(scenario: Scenario, prediction: Decisions) -> set[str]:
    """The decisions in which that arm differs from the baseline as they were decided.

    Thread pools that are forced on try the forecast where they are those that were decided, or
    where none were: then it is of what they would cost.
    """
    arm, baseline = specs_of(scenario)[arm_of_prediction(scenario)], scenario.baseline
    tried: set[str] = set()
    for decision in prediction.decisions:
        pools = [one.args for one in decision.settings if one.directive == "aio"]
        forced = _forced(arm, "aio")
        if forced is not None and forced != _forced(baseline, "aio"):
            is_tried = decision.id == "thread-pools" and (not pools or forced in pools)
        else:
            is_tried = arm.decisions == "recommended" != baseline.decisions and bool(
                decision.settings
            )
        if is_tried and _forced(baseline, "aio") is None:
            tried.add(decision.id)
    return tried


def tries_chunk(scenario: Scenario, prediction: Decisions) -> bool:
    """Whether the chunk that was decided is forced on an arm whose loop reads by itself."""
    arm = specs_of(scenario)[arm_of_prediction(scenario)]
    forced = _forced(arm, "sendfile_max_chunk")
    wanted = [
        one.args
        for decision in prediction.decisions
        for one in decision.settings
        if one.directive == "sendfile_max_chunk"
    ]
    return has_no_pools(arm) and forced is not None and forced in wanted


def has_no_pools(spec: ArmSpec) -> bool:
    """Whether an arm surely has no thread pools."""
    return spec.decisions == "none" and _forced(spec, "aio") is None and spec.stand_in == "none"


def _forced(spec: ArmSpec, directive: str) -> list[str] | None:
    return next((one.args for one in spec.settings if one.directive == directive), None)
