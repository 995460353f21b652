"""The two sides of an experiment: configurations, or one with a plan, and what runs each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nginx_tune.audit_input.planned import read_planned
from nginx_tune.cli.inputs import read_document
from nginx_tune.cli.trees import full_path, host_configuration, read_configuration
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.experiment import ExperimentSpec
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.plan import Plan
from nginx_tune.host.door import Host
from nginx_tune.lab.spec import LabPlan
from nginx_tune.nginx.builds import read_linked
from nginx_tune.subject.subject import ConfigurationFiles, own_prefix
from nginx_tune.validate.run import Sides


def configuration_meant(spec: ExperimentSpec) -> str | None:
    """The file by which the nginx that is meant is told, in full; None where none is named.

    A plan that comes by a pipe is read once only, later.
    """
    if spec.plan:
        is_here = Path(spec.plan).is_file()
        return read_document(Plan, spec.plan).conf_path if is_here else None
    named = spec.baseline or spec.candidate
    return full_path(named, spec.prefix) if named else None


def read_sides(
    host: Host, spec: ExperimentSpec, lab: LabPlan | None, builds: tuple[Nginx, Nginx]
) -> Sides:
    """What an experiment is of; ``builds`` run the baseline and the candidate.

    An empty baseline is the configuration of the host's nginx, or with two builds the candidate's
    own; an empty candidate then the baseline's.
    """
    prefix = spec.prefix
    planned: Mapping[str, bytes] = {}
    trees: tuple[ConfTree, ConfTree]
    names: tuple[str, ...]
    if spec.plan:
        plan = read_document(Plan, spec.plan)
        names = (plan.conf_path,)
        own = prefix or own_prefix(builds[1], *names)
        before, after, planned = read_planned(plan, spec.plan, ConfigurationFiles(host), prefix=own)
        trees, prefix = (before, after), plan.prefix or prefix
    else:
        same = spec.candidate if builds[0] is not builds[1] else ""
        baseline = spec.baseline or same or host_configuration(builds[1])
        sides = (baseline, spec.candidate or baseline)
        # A candidate beside the running nginx's own is meant to be started as that one is.
        names = tuple(full_path(name, prefix) for name in sides)
        before, after = (
            read_configuration(host, name, prefix, default_prefix=own_prefix(build, *names))
            for name, build in zip(sides, builds, strict=True)
        )
        trees = (before, after)
    return Sides(
        baseline=trees[0],
        candidate=trees[1],
        lab=lab,
        prefixes=(
            _started_with(prefix, builds[0], names),
            _started_with(prefix, builds[1], names),
        ),
        builds=(read_linked(host, builds[0]), read_linked(host, builds[1])),
        planned=planned,
    )


def _started_with(prefix: str | None, nginx: Nginx, names: tuple[str, ...]) -> str | None:
    """The -p of nginx: what is asked for, else the running master's where it is not the build's."""
    if prefix:
        return prefix
    own = own_prefix(nginx, *names)
    return None if own == nginx.prefix else own
