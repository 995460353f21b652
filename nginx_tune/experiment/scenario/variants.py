"""The variants of a scenario: their programs, configurations, and the decisions that they try."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

import msgspec

from nginx_tune.documents.decisions import Decisions, Setting
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.scenario import ExtraVariant, Scenario, UntriedClaims, VariantSpec
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind
from nginx_tune.errors import MissingToolError, UndecidedError
from nginx_tune.experiment.operations import Conduct, Variant
from nginx_tune.experiment.view import HEADER_WORDS
from nginx_tune.host.door import Missing, attempt
from nginx_tune.host.live import LiveHost
from nginx_tune.host.programs import ProgramError, find_program
from nginx_tune.nginx.binary import find_series, runnable_program
from nginx_tune.observe.connections import LOG_NAME, LOG_WORDS

ERROR_LOG = "/var/log/nginx/error.log"
CONNECTIONS_LOG = "/var/log/nginx/connections.log"


class VariantWriter(Protocol):
    """The generator of a variant's nginx.conf."""

    def __call__(
        self, spec: VariantSpec, decisions: Decisions, *, site: Site, kind: Kind, error_log: str
    ) -> str:
        """The text of the configuration."""


class Programs(NamedTuple):
    """The nginx of each variant, and the variants left out, with the reasons."""

    of_variant: Mapping[str, str]
    left_out: Mapping[str, str]


def specs_of(scenario: Scenario) -> dict[str, VariantSpec]:
    """The variants by name, baseline and candidate first."""
    return {
        "baseline": scenario.baseline,
        "candidate": scenario.candidate,
        **{variant.name: variant for variant in scenario.variants},
    }


def find_programs(scenario: Scenario, nginx: Nginx, binary: str) -> Programs:
    """The nginx programs of the variants that this machine can run.

    Errors: MissingToolError or UndecidedError if a variant that is not optional cannot run.
    """
    found: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, spec in specs_of(scenario).items():
        try:
            _check_sysctls(spec)
            found[name] = _program(spec, nginx, binary)
        except (MissingToolError, UndecidedError) as error:
            if not isinstance(spec, ExtraVariant) or not spec.optional:
                raise
            left_out[name] = error.message
    return Programs(found, left_out)


def untried_claims(
    scenarios: Sequence[Scenario], nginx: Nginx, *, is_root: bool
) -> Iterator[UntriedClaims]:
    """The claims that cannot be tried on this host, by scenario and reason."""
    for scenario in scenarios:
        every = [claim.name for claim in scenario.claims]
        if scenario.lab.disks and not is_root:
            reason = "emulated disks need root"
            yield UntriedClaims(scenario=scenario.name, claims=every, reason=reason)
            continue
        try:
            programs = find_programs(scenario, nginx, check_nginx(nginx, scenario))
        except UndecidedError as error:
            yield UntriedClaims(scenario=scenario.name, claims=every, reason=error.message)
            continue
        by_reason: dict[str, list[str]] = {}
        for claim in scenario.claims:
            variant = next(
                (
                    variant
                    for variant in (claim.variant, claim.against)
                    if variant in programs.left_out
                ),
                "",
            )
            if variant:
                by_reason.setdefault(programs.left_out[variant], []).append(claim.name)
        for reason, names in by_reason.items():
            yield UntriedClaims(scenario=scenario.name, claims=names, reason=reason)


def _program(spec: VariantSpec, nginx: Nginx, binary: str) -> str:
    if not spec.series or (nginx.version or "").startswith(f"{spec.series}."):
        return binary
    program = find_series(spec.series)
    if program is None:
        raise MissingToolError(
            f"nginx {spec.series} is not installed",
            hint=f"get it from Debian's archive with tools/nginx-matrix {spec.series}",
        )
    try:
        return find_program(str(program))
    except ProgramError as error:
        raise UndecidedError(f"{program}: {error}") from None


def _check_sysctls(spec: VariantSpec) -> None:
    for name in spec.sysctls:
        file = PurePosixPath("/proc/sys", *name.split("."))
        if isinstance(attempt(LiveHost().real_path, str(file)), Missing):
            raise UndecidedError(f"this kernel has no sysctl {name}")


def make_variants(
    scenario: Scenario,
    programs: Programs,
    prediction: Decisions,
    *,
    write_variant: VariantWriter,
    site: Site,
    cached: Sequence[str] = (),
) -> list[Variant]:
    """The variants to run, with their configurations; ``cached``: URLs that fill the caches."""
    workers = scenario.lab.worker_processes
    always = [_workers(workers), _worker_header()] if workers > 1 else []
    always += _connections_log() if scenario.counts_connections else []

    def text(spec: VariantSpec, more: Sequence[Setting] = ()) -> str:
        forced = msgspec.structs.replace(spec, settings=[*always, *spec.settings, *more])
        own = _without_tls(site) if spec.cleartext else site
        return write_variant(forced, prediction, site=own, kind=scenario.kind, error_log=ERROR_LOG)

    variants = []
    for name, spec in specs_of(scenario).items():
        if name not in programs.of_variant:
            continue
        texts = [text(spec, [_workers(count)]) for count in _reloaded(spec)]
        conduct = Conduct(
            binary=programs.of_variant[name],
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
        variants.append(
            Variant(
                name=name,
                conf_path=f"/run/nginx-tune/{name}/nginx.conf",
                conf_text=texts[0] if texts else text(spec),
                error_log=ERROR_LOG,
                conduct=conduct,
            )
        )
    return variants


def _without_tls(site: Site) -> Site:
    listens = [" ".join(word for word in item.split() if word != "ssl") for item in site.listen]
    return msgspec.structs.replace(site, tls=None, listen=listens)


def _reloaded(spec: VariantSpec) -> list[int]:
    return spec.reload.worker_processes if spec.reload else []


def _workers(count: int) -> Setting:
    return Setting(context="main", directive="worker_processes", args=[str(count)])


def _worker_header() -> Setting:
    """A response header with the worker's id, except in locations with headers of their own."""
    return Setting(context="http", directive="add_header", args=list(HEADER_WORDS))


def _connections_log() -> list[Setting]:
    """The settings of an access log that records the worker of each connection."""
    return [
        Setting(context="http", directive="log_format", args=[LOG_NAME, *LOG_WORDS]),
        Setting(context="server", directive="access_log", args=[CONNECTIONS_LOG, LOG_NAME]),
    ]


def variant_of_prediction(scenario: Scenario) -> str:
    """The variant that tries the decisions: the first with all decisions, else the candidate."""
    specs = specs_of(scenario)
    decided = (name for name, spec in specs.items() if spec.decisions == "recommended")
    return next((name for name in decided if name != "baseline"), "candidate")


def tried_decisions(scenario: Scenario, prediction: Decisions) -> set[str]:
    """The decisions by which ``variant_of_prediction`` differs from the baseline.

    Thread pools that the variant forces on count as tried if they are the decided ones. They also
    count if none were decided: the forecast is then of their cost.
    """
    variant, baseline = specs_of(scenario)[variant_of_prediction(scenario)], scenario.baseline
    tried: set[str] = set()
    for decision in prediction.decisions:
        pools = [setting.args for setting in decision.settings if setting.directive == "aio"]
        forced = _forced(variant, "aio")
        if forced is not None and forced != _forced(baseline, "aio"):
            is_tried = decision.id == "thread-pools" and (not pools or forced in pools)
        else:
            is_tried = variant.decisions == "recommended" != baseline.decisions and bool(
                decision.settings
            )
        if is_tried and _forced(baseline, "aio") is None:
            tried.add(decision.id)
    return tried


def tries_chunk(scenario: Scenario, prediction: Decisions) -> bool:
    """True if a variant without thread pools forces the decided chunk size."""
    variant = specs_of(scenario)[variant_of_prediction(scenario)]
    forced = _forced(variant, "sendfile_max_chunk")
    decided = [
        setting.args
        for decision in prediction.decisions
        for setting in decision.settings
        if setting.directive == "sendfile_max_chunk"
    ]
    return has_no_pools(variant) and forced is not None and forced in decided


def has_no_pools(spec: VariantSpec) -> bool:
    """True if a variant certainly has no thread pools."""
    return spec.decisions == "none" and _forced(spec, "aio") is None and spec.stand_in == "none"


def _forced(spec: VariantSpec, directive: str) -> list[str] | None:
    return next((setting.args for setting in spec.settings if setting.directive == directive), None)


def check_nginx(nginx: Nginx, scenario: Scenario) -> str:
    """The program's path. Errors: UndecidedError if it lacks a module that the scenario needs."""
    binary = runnable_program(nginx)
    built = {flag.partition("=")[0] for flag in nginx.flags}
    missing = [flag for flag in scenario.needs if flag not in built]
    if missing:
        raise UndecidedError(
            f"{binary} is built without {', '.join(missing)}, which {scenario.name} needs",
            hint="install an nginx that has it, and name it with --nginx",
        )
    return binary
