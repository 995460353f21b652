"""Decisions of ``recommend``, ``generate`` and ``plan``, and their inputs.

The inputs are facts, a workload, a kind and a site, and for some commands a configuration.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.audit.storage import outermost
from nginx_tune.change.plan.solver import FittedDecisions, KindFound, Solver, kind_in, site_of
from nginx_tune.cli.configurations import (
    configuration_to_decide,
    full_path,
)
from nginx_tune.cli.described import described_inputs, read_facts_and_workload
from nginx_tune.cli.inputs import read_document, read_toml
from nginx_tune.cli.options import (
    HOST_ALONE,
    LIVE,
    check_maps,
    data_directories,
    facts_option,
    host_options,
    kind_option,
    nginx_options,
    nginx_version_option,
    option_group,
    tell_choice,
)
from nginx_tune.conf.served import served_directories
from nginx_tune.conf.tree import ConfTree, Maps
from nginx_tune.decide.answer import ALL_AS_DECIDED, Pinned
from nginx_tune.decide.cache_layout import not_known
from nginx_tune.decide.defaults import DEFAULT_CACHE_DIR
from nginx_tune.decide.engine import case_of, situation_of
from nginx_tune.documents.base import decode_tables
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.described_host import DescribedHost
from nginx_tune.documents.facts import AccessLog, Facts, Nginx
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.host.paths import absolute_path
from nginx_tune.nginx.elsewhere import NONE_MISSING, MissingIncludes, missing_includes
from nginx_tune.report.terminal.saying import say

_MOST_DATASETS = 32
_MOST_PATHS = 256
"""Maximum number of paths to inspect, since a configuration may have hundreds of servers."""


class FilledSite(NamedTuple):
    """A site completed from the current configuration."""

    site: Site
    kind: KindFound | None
    """The kind found there; None if unknown."""
    is_for_host: bool
    """True if its directories are those of this host."""
    served: Sequence[str] = ()
    """The directories that the configuration serves from."""


_NOT_LOOKED_AT = (
    "this is not the configuration of this host's nginx: its directories are not examined, so the "
    "size of its data is not known"
)
_WHOSE_FACTS = "give its host with --facts FILE, or this one with --facts live"
_OPTIONS = (
    facts_option("facts_path", HOST_ALONE),
    click.option(
        "--workload",
        "workload_path",
        metavar="FILE",
        help="Workload of the site ('learn -f json').",
    ),
    kind_option,
    host_options,
    click.option(
        "--site",
        "site_path",
        metavar="FILE",
        help="Addresses, names, upstreams: JSON or TOML; default: [site] of nginx-tune.toml.",
    ),
    click.option(
        "--dataset",
        "datasets",
        multiple=True,
        metavar="DIR",
        callback=data_directories,
        help="Scan this tree of served files (without --facts); default: the roots.",
    ),
    nginx_version_option,
    click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="DIR",
        help="Directory of served files; may repeat.",
    ),
    click.option(
        "--cache-dir",
        "cache_dirs",
        multiple=True,
        metavar="DIR",
        help="Cache directory; may repeat, one on each disk.",
    ),
    nginx_options,
)


@dataclass(frozen=True)
class Inputs:
    """The inputs of the decisions, as given and as completed."""

    kind: Kind
    facts: Facts
    given_workload: Workload | None
    given_site: Site
    """The site as read, before ``--root`` and ``--cache-dir``."""
    site: Site
    workload: Workload
    """The given workload, completed from the facts and the kind of site."""
    decide: Callable[[Pinned], Decisions]
    """A function that makes the decisions, with parts of a configuration pinned."""
    settled: Decisions | None = None
    """Decisions that respect pinned parts of the current configuration; None without a
    configuration."""
    is_live: bool = False
    """True if the facts were read from this host now."""
    roots: Sequence[str] = ()
    cache_dirs: Sequence[str] = ()
    """Cache directories of the command line, or of a description of the host."""
    not_known: Sequence[tuple[str, str]] = ()
    """Pairs of an unknown input of the cache sizes and the command that finds it."""

    @cached_property
    def decisions(self) -> Decisions:
        """The decisions for these inputs."""
        return self.settled or self.decide(ALL_AS_DECIDED)

    def tell(self) -> None:
        """Print the unknown inputs on stderr."""
        for text, hint in self.not_known:
            say(text, hint)


deciding_options = option_group(_OPTIONS)
"""Add the options that name the inputs."""


def read_inputs(
    ctx: click.Context,
    *,
    facts_path: str | None,
    workload_path: str | None,
    kind: Kind | None,
    site_path: str | None,
    datasets: Sequence[str],
    roots: Sequence[str],
    cache_dirs: Sequence[str],
    nginx_binary: str | None,
    features: Sequence[str] = (),
    observation_path: str | None = None,
    nginx_version: str | None = None,
    conf_path: str | None = None,
    described: DescribedHost | None = None,
    fill_current: Callable[[Site, Nginx, Sequence[AccessLog] | None], FilledSite] | None = None,
    emulated: Callable[[Facts, Sequence[str]], Facts] | None = None,
) -> Inputs:
    """The inputs that a command line names.

    ``conf_path`` is the configuration's absolute path, which selects one of several running nginx.
    ``fill_current`` completes the site from a configuration and finds its kind, unless a kind is
    declared or known from a log. The facts then cover the directories of that site if it is for
    this host. ``emulated`` turns this host's facts into those of a lab with the site's roots.
    """
    given = read_facts_and_workload(
        facts_path, workload_path, described, kind=kind, nginx_version=nginx_version
    )
    facts, given_workload, host = given.facts, given.workload, given.described
    is_live = facts is None
    is_known = given_workload is not None and given_workload.kind_provenance != "assumed"
    assumed: Kind = given_workload.kind if given_workload else "static"
    given_site = _site(ctx, site_path)
    site = _with_named(given_site, roots, cache_dirs, features)
    if datasets and not is_live:
        raise UsageError("--dataset scans this host, but the facts are of another one: omit one")
    current = FilledSite(site, None, is_for_host=True)
    if fill_current is not None:
        nginx = facts.nginx if facts else _live_nginx(nginx_binary, conf_path)
        current = fill_current(site, nginx, facts.access_logs if facts else None)
    site = current.site
    shown = None if kind or is_known else current.kind
    assumed = kind or (shown.kind if shown else assumed)
    if host is not None:
        facts, site, notes = described_inputs(
            host, site, assumed, is_configured=fill_current is not None
        )
        for note in () if ctx.obj["quiet"] else notes:
            say(note)
        roots = roots or [path for path in site.roots if path not in given_site.roots]
        cache_dirs = cache_dirs or [
            directory for directory in site.cache_dirs if directory not in given_site.cache_dirs
        ]
    if facts is None:
        facts = _live(
            _served(assumed, current, [*roots, *cache_dirs]), datasets, nginx_binary, conf_path
        )
        tell_choice(ctx, facts.nginx)
    if emulated is not None:
        facts = emulated(facts, site.roots)
    facts = given.completed(facts)
    chosen = kind or (shown.kind if shown else None)
    observation = read_document(Observation, observation_path) if observation_path else None
    case = case_of(facts, given_workload, site, chosen, observation)
    if fill_current is None:
        recorded = None if is_live else facts.access_logs
        case = case._replace(site=with_seen_logs(case.site, facts.nginx, recorded))

    def made(stays: Pinned) -> Decisions:
        found = case.decide(stays)
        return replace(found, kind_reason=shown.reason) if shown else found

    return Inputs(
        kind=case.workload.kind,
        facts=facts,
        given_workload=given_workload,
        given_site=given_site,
        site=case.site,
        workload=case.workload,
        decide=made,
        is_live=is_live,
        roots=roots,
        cache_dirs=cache_dirs,
        not_known=not_known(situation_of(*case[:2], site=case.site, observation=observation)),
    )


def _with_named(
    site: Site, roots: Sequence[str], cache_dirs: Sequence[str], features: Sequence[str]
) -> Site:
    """The site, with the directories and features given on the command line."""
    return replace(
        site,
        roots=list(roots) or site.roots,
        cache_dirs=list(cache_dirs) or site.cache_dirs,
        features=[*site.features, *features],
    )


def _site(ctx: click.Context, path: str | None) -> Site:
    if path is None:
        table = ctx.obj["settings"].get("site")
        return (
            Site() if table is None else decode_tables(Site, table, "[site] of the settings file")
        )
    if not path.endswith(".toml"):
        return read_document(Site, path)
    tables = read_toml(Path(path))
    return decode_tables(Site, tables.get("site", tables), path)


def _live_nginx(nginx_binary: str | None, conf_path: str | None) -> Nginx:
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415  # not needed with --facts
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415

    return read_nginx(LiveHost(), binary=nginx_binary, conf_path=conf_path)[0]


def _served(kind: Kind, current: FilledSite, named: Sequence[str]) -> list[str]:
    """The directories on this host that files of the site are served from.

    For another host's site, only the ``named`` directories of the command line count.
    """
    if current.served or not current.is_for_host:
        return [*named, *(current.served if current.is_for_host else ())]
    site = current.site
    # Also for the default directory of a cache, which may have other files.
    cached = site.cache_dirs or [DEFAULT_CACHE_DIR]
    beside = site.roots if site.serves_files else []
    return {"cache": [*cached, *beside], "proxy": []}.get(kind, site.roots)


def _live(
    served: Sequence[str], datasets: Sequence[str], nginx_binary: str | None, conf_path: str | None
) -> Facts:
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415  # not needed with --facts
    from nginx_tune.observe.inspect.facts import (  # noqa: PLC0415
        DATASET_BUDGET_SECONDS,
        gather_facts,
        with_current_settings,
    )

    present = [
        path
        for path in served
        if Path(path).is_dir() and os.access(path, os.R_OK | os.X_OK, effective_ids=True)
    ]
    scanned = list(datasets) or outermost(present)[:_MOST_DATASETS]
    facts = gather_facts(
        LiveHost(),
        paths=present[:_MOST_PATHS],
        datasets=scanned,
        nginx_binary=nginx_binary,
        conf_path=conf_path,
        dataset_budget_seconds=DATASET_BUDGET_SECONDS / max(1, 0 if datasets else len(scanned)),
    )
    return with_current_settings(facts, LiveHost())


class Held(NamedTuple):
    """A configuration and the decisions for it."""

    inputs: Inputs
    tree: ConfTree
    decisions: Decisions
    """The decisions as changes to the tree."""
    stays: Pinned
    missing: MissingIncludes = NONE_MISSING

    @property
    def is_moved(self) -> bool:
        """True for a checkout, whose absolute names lead elsewhere: nginx cannot run with it."""
        return any(absolute_path(at or ".") != name for name, at in self.tree.maps or ())

    def without(self, written: Collection[str], chosen: Collection[str]) -> Held | None:
        """Decide again, with only the decisions ``written`` applied.

        None if the decisions ``chosen`` already fit that case.
        """
        settled = FittedDecisions(self.inputs.decisions, self.decisions, self.stays)
        solver = Solver(self.inputs.decide, self.tree, self.inputs.facts)
        again = solver.without(settled, written, chosen)
        if again is None:
            return None
        inputs = dataclasses.replace(self.inputs, settled=again.decided)
        return self._replace(inputs=inputs, decisions=again.held, stays=again.stays)

    def changed_by(self, change: Callable[[Decisions], Decisions]) -> Held:
        """Decide again, with a change to the decisions."""

        def made(stays: Pinned) -> Decisions:
            return change(self.inputs.decide(stays))

        settled = Solver(made, self.tree, self.inputs.facts).begin(made(ALL_AS_DECIDED))
        inputs = dataclasses.replace(self.inputs, settled=settled.decided, decide=made)
        return self._replace(inputs=inputs, decisions=settled.held, stays=settled.stays)


def read_held(
    ctx: click.Context,
    conf_path: str | None,
    prefix: str | None,
    *,
    maps: Maps = (),
    accept_missing: Sequence[str] = (),
    to_run: bool = False,
    **named: Any,
) -> Held:
    """The configuration (by default that of the host's nginx) and the decisions for it.

    ``to_run``: nginx itself reads the configuration next.
    Errors: ConfigurationError if it could not be parsed.
    """
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415  # not needed with --facts
    from nginx_tune.nginx.subject import find_subject  # noqa: PLC0415  # the same

    check_maps(maps)
    tree: ConfTree | None = None

    def fill_current(site: Site, nginx: Nginx, recorded: Sequence[AccessLog] | None) -> FilledSite:
        nonlocal tree
        tree = configuration_to_decide(
            *(conf_path, prefix, nginx), maps=maps, is_recorded=recorded is not None, to_run=to_run
        )
        site = site_of(tree, site, nginx)
        is_for_host = tree.maps is None or named["facts_path"] == LIVE
        if recorded is None and not is_for_host:
            recorded = []
            knows = (*named["roots"], *named["cache_dirs"], *named["datasets"])
            if not (knows or named["workload_path"] or ctx.obj["quiet"]):
                say(_NOT_LOOKED_AT, _WHOSE_FACTS)
        site = with_seen_logs(site, nginx, recorded, tree.opened_name)
        return FilledSite(site, kind_in(tree), is_for_host, served_directories(tree))

    if conf_path is None and named["facts_path"] in {None, LIVE} and not named.get("described"):
        subject = find_subject(LiveHost(), None, nginx_binary=named["nginx_binary"])
        if subject.note:
            conf_path = subject.path
            if not ctx.obj["quiet"]:
                say(subject.note)
    meant = full_path(conf_path, prefix) if conf_path else None
    inputs = read_inputs(ctx, fill_current=fill_current, conf_path=meant, **named)
    if tree is None:
        raise AssertionError("read_inputs asks what stands")
    settled = Solver(inputs.decide, tree, inputs.facts).begin(inputs.decisions)
    inputs = dataclasses.replace(inputs, settled=settled.decided)
    missing = missing_includes(tree, LiveHost(), accept_missing)
    decisions = replace(settled.held, files_missing=missing.files_missing)
    return Held(inputs, tree, decisions, settled.stays, missing)


def read_hosts_own(
    ctx: click.Context, named: dict[str, Any], prefix: str | None = None
) -> Held | None:
    """The decisions for the configuration of this host's nginx, as ``check`` reads it.

    None if the options name another host or site, or if there is no readable configuration. Prints
    what the result is for, unless an option names that.
    """
    if not _is_for_host(ctx, named):
        return None
    path = _hosts_own_path(named["nginx_binary"])
    if path is None:
        _tell_subject(ctx, f"no configuration of nginx was found: for files in {Site().roots[0]}")
        return None
    _tell_subject(ctx, f"for {path}, the configuration of this host's nginx")
    return read_held(ctx, None, prefix, **named)


def tell_new_site(ctx: click.Context, named: dict[str, Any]) -> None:
    """Print that the result is for a new site, if this host's nginx has a configuration."""
    if _is_for_host(ctx, named) and (path := _hosts_own_path(named["nginx_binary"])):
        text = f"for a new site with files in {Site().roots[0]}, not for the sites of {path}"
        _tell_subject(ctx, text, "nginx-tune plan changes those; --root, --site name others")


def _hosts_own_path(nginx_binary: str | None) -> str | None:
    """The configuration of this host's nginx; None if there is none that can be read."""
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415  # not needed with --facts
    from nginx_tune.nginx.subject import NoNginxError, find_subject  # noqa: PLC0415  # the same

    try:
        path = find_subject(LiveHost(), None, nginx_binary=nginx_binary).path
    except (NoNginxError, UndecidedError):
        return None
    return path if Path(path).is_file() and os.access(path, os.R_OK) else None


def _is_for_host(ctx: click.Context, named: dict[str, Any]) -> bool:
    """True if no option or settings file names another host, a site or its directories."""
    others = ("described", "site_path", "datasets", "roots", "cache_dirs", "features")
    is_new = any(named.get(name) for name in others) or "site" in ctx.obj["settings"]
    return named["facts_path"] in {None, LIVE} and not is_new


def _tell_subject(ctx: click.Context, text: str, hint: str = "") -> None:
    if not ctx.obj["quiet"]:
        say(text, hint)


def with_seen_logs(
    site: Site,
    nginx: Nginx,
    recorded: Sequence[AccessLog] | None,
    opened_name: Callable[[str], str | None] = str,
) -> Site:
    """The site with its access logs sorted into ``piped_logs`` and ``plain_logs``, if known.

    ``recorded`` are the logs in a facts file; None if the facts are of this host. A log that is
    missing there counts as a pipe if it is one on this machine, which may be the image that the
    configuration is for. A plain file here proves nothing about the recorded host. ``opened_name``
    returns the path by which nginx opens a log; None if it is not known.
    """
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415
    from nginx_tune.observe.inspect.live_facts import is_plain_log  # noqa: PLC0415

    known = {log.path: log.is_file for log in recorded or ()}
    here = nginx if recorded is None else Nginx()
    piped, plain = [*site.piped_logs], [*site.plain_logs]
    for log in dict.fromkeys([site.access_log or "", *site.other_access_logs]):
        path = None if not log or log in piped or "$" in log else opened_name(log)
        if path is None or not path.startswith("/"):
            continue
        is_plain = known.get(path)
        if is_plain is None:
            is_plain = is_plain_log(LiveHost(), path, here)
            if is_plain and recorded is not None:
                continue
        if is_plain is not None:
            (plain if is_plain else piped).append(log)
    return replace(site, piped_logs=piped, plain_logs=plain)
