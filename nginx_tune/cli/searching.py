"""``validate --search``: the candidates, the search, and its answer as a plan.

Each candidate is a plan: the recommendation with one decision reversed, made by the code of
``plan`` for the same configuration.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.change.plan.alternatives import alternatives
from nginx_tune.cli.configurations import read_plan, read_planned
from nginx_tune.cli.deciding import Held, read_held
from nginx_tune.cli.experiments import Wanted, configuration_meant, exit_status, started_with
from nginx_tune.cli.options import keep_run, tell_choice
from nginx_tune.cli.plan import PRIVATE, make_plan
from nginx_tune.cli.signals import as_interrupt
from nginx_tune.conf.secret_values import redact_text
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.plan import Plan, Search
from nginx_tune.documents.scenario import ExperimentSpec
from nginx_tune.errors import ExitStatus, UndecidedError
from nginx_tune.experiment.session import served_files, split_cpus
from nginx_tune.experiment.store import Clock
from nginx_tune.experiment.validate.search import Found, SearchVariant, run_search
from nginx_tune.experiment.validate.validation import Sides
from nginx_tune.experiment.view import emulate, lab_datasets
from nginx_tune.host.door import Host
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.proof.search import MOST_CANDIDATES, RECOMMENDED
from nginx_tune.nginx.binary import read_linked, read_nginx
from nginx_tune.nginx.lab.spec import LabPlan, Shape
from nginx_tune.nginx.subject import ConfigurationFiles, own_prefix
from nginx_tune.report.plan import hunk_text
from nginx_tune.report.search import candidate_text, search_screen
from nginx_tune.report.terminal.saying import progress_printer, say
from nginx_tune.report.terminal.writer import write_screen


class _SearchInputs(NamedTuple):
    """The configurations of a search."""

    today: ConfTree
    variants: list[SearchVariant]
    """The recommendation, if it changes anything, then the candidates."""
    plans: dict[str, Plan]
    """The plans, by the name of the variant."""
    unchanged: Plan
    """The plan that leaves the current configuration as it is."""


def search(
    ctx: click.Context,
    spec: ExperimentSpec,
    lab: LabPlan | None,
    wanted: Wanted,
    *,
    workload_path: str | None,
    facts_path: str | None,
) -> ExitStatus:
    """Run a search, store the comparison with the current configuration, and print the answer.

    ``facts_path`` names the file from which the lab is made, if any.
    """
    clock, host = Clock(), LiveHost()
    meant = configuration_meant(spec)
    nginx, _ = read_nginx(host, binary=wanted.nginx_binary, conf_path=meant, to_run=True)
    with as_interrupt():
        inputs = _read_search(
            *(ctx, host, spec, nginx),
            nginx_binary=wanted.nginx_binary,
            workload_path=workload_path,
            facts_path=facts_path,
            lab=lab,
        )
        tell_choice(ctx, nginx)
        prefix = started_with(inputs.unchanged.prefix, nginx, (inputs.today.path,))
        build = read_linked(host, nginx)
        sides = Sides(inputs.today, inputs.today, lab, (prefix, prefix), (build, build))
        found = run_search(spec, sides, inputs.variants, progress=progress_printer(ctx))
    if not wanted.no_store:
        path = inputs.today.path
        keep_run(ctx, found.validation, kind="validate", name=path, clock=clock)
    _write_search(inputs, found, wanted.formats, wanted.output)
    verdict = found.validation.verdict
    if found.search.reference == found.search.answer == "today" and verdict.outcome == "worse":
        verdict = replace(verdict, outcome="no_difference")  # only the winner is the answer
    return exit_status(verdict, wanted)


def _read_search(
    ctx: click.Context,
    host: Host,
    spec: ExperimentSpec,
    nginx: Nginx,
    *,
    nginx_binary: str | None,
    workload_path: str | None,
    facts_path: str | None,
    lab: LabPlan | None,
) -> _SearchInputs:
    """The recommendation and at most eight candidates around it, chosen before any run.

    Without ``facts_path``, the lab's limits replace those of this host.
    Errors: those of ``plan``; UndecidedError if there is nothing to compare.
    """
    given = read_plan(spec.plan) if spec.plan else None
    conf = given.conf_path if given else spec.candidate or None
    prefix = (given and given.prefix) or spec.prefix
    held = read_held(
        ctx,
        conf,
        prefix,
        facts_path=facts_path,
        workload_path=workload_path,
        kind=None,
        site_path=None,
        datasets=(),
        roots=(),
        cache_dirs=(),
        nginx_binary=nginx_binary,
        to_run=True,
        emulated=None if lab is None or facts_path else _emulated(lab),
    )
    unchanged = Plan(conf_path=held.tree.path, prefix=prefix)
    if given is None:
        recommended, _, held = make_plan(held, (), (), prefix=prefix)
        only: tuple[str, ...] = ()
    else:
        recommended = given
        only = tuple(dict.fromkeys(h.decision for file in given.files for h in file.hunks))
    plans = _distinct(recommended, _around(held, only, prefix))
    if not plans:
        raise UndecidedError(
            f"{held.tree.path}: the recommendation changes nothing, and there are no alternatives "
            "to try"
        )
    reader = ConfigurationFiles(host)
    own = prefix or own_prefix(nginx, held.tree.path)
    variants = []
    today = held.tree
    for name, (plan, reason) in plans.items():
        read = read_planned(plan, spec.plan or "the plan", reader, prefix=own, to_run=True)
        today = read.before
        lines = _changes(plan, recommended) if plan is not recommended else _changes(plan, None)
        variants.append(SearchVariant(name, read.after, read.files, lines, reason))
    if not ctx.obj["quiet"]:
        for variant in variants:
            say(candidate_text(variant.name, variant.changes, variant.reason))
    return _SearchInputs(
        today, variants, {name: plan for name, (plan, _) in plans.items()}, unchanged
    )


def _write_search(
    inputs: _SearchInputs, found: Found, formats: tuple[str, ...], output: str | None
) -> None:
    """Print the answer; as JSON, it is the plan for ``apply``, with its proof."""
    search: Search = found.search
    plan = inputs.unchanged if search.answer == "today" else inputs.plans[search.name]
    plan = replace(plan, proof=search)
    write_screen(lambda: search_screen(search), plan, formats, output, mode=PRIVATE)


def _emulated(lab: LabPlan) -> Callable[[Facts, Sequence[str]], Facts]:
    def emulated(facts: Facts, roots: Sequence[str]) -> Facts:
        root = next(iter(roots), "")
        sizes = [file.bytes for file in served_files(root)] if os.path.isdir(root) else []  # noqa: PTH112
        made = lab(Shape(root, sizes)).lab
        cpus, _ = split_cpus(sorted(os.sched_getaffinity(0)), separate=made.separate_cpus)
        found = emulate(facts, made, cpus=len(cpus[: made.cpus]))
        return replace(found, datasets=[*lab_datasets(made)] or facts.datasets)

    return emulated


def _around(
    held: Held, only: tuple[str, ...], prefix: str | None
) -> Iterable[tuple[str, Plan, str]]:
    """The alternatives as (name, plan, reason), each plan made on demand.

    ``only`` lists the decisions of a given plan; empty for all. A given plan may be old, restricted
    or for other facts, so the current recommendation is then a candidate too.
    """
    if only:
        plan, _, _ = make_plan(held, (), (), prefix=prefix)
        yield "decided-now", plan, "what is recommended for these facts"
    for alternative in alternatives(held.inputs.decisions):
        wanted = (*only, *alternative.ids) if only else ()
        plan, _, _ = make_plan(held.changed_by(alternative.change), wanted, (), prefix=prefix)
        yield alternative.name, plan, alternative.reason


def _distinct(
    recommended: Plan, around: Iterable[tuple[str, Plan, str]]
) -> dict[str, tuple[Plan, str]]:
    """The plans that differ from the current configuration and from each other, by name."""
    seen = {_key(recommended), ()}
    plans = {RECOMMENDED: (recommended, "")} if recommended.files else {}
    most = len(plans) + MOST_CANDIDATES
    for name, plan, reason in around:
        if len(plans) == most:
            break
        if _key(plan) not in seen:
            seen.add(_key(plan))
            plans[name] = (plan, reason)
    return plans


def _key(plan: Plan) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((file.path, file.sha256_after) for file in plan.files))


def _changes(plan: Plan, beside: Plan | None) -> list[str]:
    """Lines that ``plan`` has and ``beside`` lacks, then directives that ``plan`` leaves out."""
    own, other = _lines(plan), _lines(beside) if beside else []
    found = [line for line in own if line not in other]
    named = {line.partition(" ")[0] for line in found}
    gone = (line for line in other if line not in own and line.partition(" ")[0] not in named)
    return [*found, *(f"without {line}" for line in gone)]


def _lines(plan: Plan) -> list[str]:
    hunks = (hunk for file in plan.files for hunk in file.hunks)
    texts = (
        hunk_text(redact_text(hunk.after))
        if hunk.after
        else f"no {hunk_text(redact_text(hunk.before))}"
        for hunk in hunks
    )
    return list(dict.fromkeys(texts))
