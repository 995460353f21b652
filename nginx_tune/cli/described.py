"""A host that the command line describes (``--cpus``, ``--disk``, …, ``--host FILE``)."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.cli.inputs import read_document, read_toml, read_workload
from nginx_tune.cli.options import LIVE
from nginx_tune.conf.tree import ConfTree
from nginx_tune.conf.values import parse_count
from nginx_tune.decide.defaults import DEFAULT_CACHE_DIR, OWN_DIRECTORY
from nginx_tune.decide.described import (
    check_room,
    described_facts,
    described_workload,
    describes_host,
    missing_words,
    placed,
    with_link,
)
from nginx_tune.documents.base import decode_tables
from nginx_tune.documents.described_host import (
    MOST_DISKS,
    DescribedDisk,
    DescribedHost,
    DescribedSize,
)
from nginx_tune.documents.facts import Facts, Nginx, with_nginx_version
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import UsageError


def read_described(
    path: str | None, disks: Sequence[str], words: Mapping[str, Any]
) -> DescribedHost:
    """The description from a file and options.

    Errors: UsageError, also for a value that both give.
    """
    tables = read_toml(Path(path)) if path else {}
    found = decode_tables(DescribedHost, tables, str(path))
    given: dict[str, Any] = dict(words)
    if disks:
        given["disks"] = [_disk(text) for text in disks]
    for name in given:
        if name in tables:
            option = "disk" if name == "disks" else name.replace("_", "-")
            raise UsageError(f"--{option}: {path} already has {name}", hint="give one of them")
    described = replace(found, **given)
    if path and described == DescribedHost():
        raise UsageError(f"{path}: describes no host", hint='such as: cpus = 8, memory = "16G"')
    try:  # an invalid figure is refused before anything else is read
        described_facts(described)
        # The mean size that a bandwidth needs may be in the workload, which is read later.
        described_workload(replace(described, mean_size=described.mean_size or 1))
    except UsageError as error:
        said = f"{path}: {error.message}" if path else error.message
        raise UsageError(said, hint=error.hint) from None
    return described


def _disk(text: str) -> DescribedDisk:
    kind, *rest = text.split(":")
    count, size = [*rest, "", ""][:2]
    number = parse_count(count or "1") or 0
    if len(rest) > 2 or not kind or not 1 <= number <= MOST_DISKS:  # noqa: PLR2004
        raise UsageError(
            f"--disk {text}: not KIND[:COUNT[:SIZE]]", hint="such as nvme, hdd:12 or ssd:3:2TB"
        )
    return DescribedDisk(kind=kind, count=number, size=size or None)


_TYPED = click.core.ParameterSource.COMMANDLINE


class DescribedInputs(NamedTuple):
    """Facts and site of a described host, and a note on each assumption."""

    facts: Facts
    site: Site
    notes: list[str]


class GivenInputs(NamedTuple):
    """Facts and workload of a command line, from files or a description; None if not given."""

    facts: Facts | None
    workload: Workload | None
    described: DescribedHost | None
    """The description from which the facts were made; None for facts from another source."""
    link: DescribedSize | None = None
    """A link to add to facts from another source."""
    nginx_version: str | None = None

    @property
    def completes(self) -> bool:
        """True if the command line adds to the facts."""
        return self.link is not None or self.nginx_version is not None

    def completed(self, facts: Facts) -> Facts:
        """The facts, read now or from a file, with what the command line adds."""
        if self.link is not None:
            facts = with_link(facts, self.link)
        if self.nginx_version is not None:
            facts = with_nginx_version(facts, self.nginx_version)
        return facts


def read_facts_and_workload(
    facts_path: str | None,
    workload_path: str | None,
    described: DescribedHost | None,
    *,
    kind: Kind | None,
    nginx_version: str | None,
) -> GivenInputs:
    """Facts from a file or a description, and the workload with the description's values.

    Without a file, or with the name "live", the facts are to be read from this host.
    The disks of a description have no directories yet (``described_inputs``). A given ``kind``
    takes precedence over any other.
    Errors: UsageError, also for two sources of the same value.
    """
    is_live = facts_path in {None, LIVE}
    facts = None if is_live else read_document(Facts, str(facts_path))
    workload = read_workload(workload_path) if workload_path else None
    if described is not None:
        described = replace(
            described,
            kind=None if kind else described.kind,
            nginx_version=nginx_version or described.nginx_version,
        )
        workload = described_workload(described, workload)
        if (
            described.data
            and facts is not None
            and any(dataset.bytes for dataset in facts.datasets)
        ):
            raise UsageError(
                f"--data: {facts_path} already has the size of the data", hint="give one of them"
            )
    if described is None or not describes_host(described):
        link = described.link if described is not None else None
        return GivenInputs(facts, workload, None, link, nginx_version)
    if facts_path is not None:
        raise UsageError(
            f"--facts {facts_path} and a described host exclude each other", hint="give one of them"
        )
    return GivenInputs(described_facts(described), workload, described, None, nginx_version)


def described_inputs(
    described: DescribedHost, site: Site, kind: Kind, *, is_configured: bool = False
) -> DescribedInputs:
    """The facts of a description, with its disks assigned to the directories of the site.

    A site without directories gets those of the description, unless there is a configuration.
    """
    if kind in ("static", "media"):
        check_room(described)
    is_cache = kind == "cache"
    own = Site().roots
    named = site.cache_dirs if is_cache else site.roots
    if named == own and not is_configured:
        named = []
    found = placed(described, named, DEFAULT_CACHE_DIR if is_cache else own[0])
    paths = [directory.path for directory in found.described.directories]
    if paths and not named and is_cache:
        below = [f"{path.rstrip('/')}/{OWN_DIRECTORY}" for path in paths]
        site = replace(
            site, cache_dirs=[DEFAULT_CACHE_DIR] if paths == [DEFAULT_CACHE_DIR] else below
        )
    elif paths and not named:
        site = replace(site, roots=paths)
    missing = missing_words(replace(found.described, kind=kind))
    notes = [found.note] if found.note else []
    version = found.described.nginx_version
    if version and "flags" not in found.described.facts.get("nginx", {}):
        notes.append(f"nginx {version} is assumed to be the package of nginx.org")
    if missing:
        notes.append(f"not known of the described host: {', '.join(missing)}")
    return DescribedInputs(described_facts(found.described), site, notes)


def facts_for_tree(described: DescribedHost, tree: ConfTree) -> tuple[Facts, list[str]]:
    """The facts of a description for a configuration, and the notes of ``described_inputs``."""
    from nginx_tune.change.plan.solver import kind_in, site_of  # noqa: PLC0415  # slow

    found = kind_in(tree)
    kind: Kind = described.kind or (found.kind if found else "static")
    site = site_of(tree, Site(), Nginx())
    facts, _, notes = described_inputs(described, site, kind, is_configured=True)
    return facts, notes


INPUTS = (
    *("host_path", "cpus", "memory", "disks", "link", "data", "mean_size", "rate", "objective"),
    *("facts_path", "workload_path", "kind", "nginx_version", "nginx_binary", "trusts_named"),
    *("site_path", "datasets", "roots", "cache_dirs", "prefix", "maps", "accept_missing"),
)
"""The parameters that name inputs of decisions, the same in plan and generate."""


def typed_words(ctx: click.Context, names: Collection[str] = INPUTS) -> list[str]:
    """The options of these parameters as they were typed, for the next command.

    Values from the environment and settings files apply to that command as well.
    """
    words: list[str] = []
    for option in ctx.command.params:
        value: Any = ctx.params.get(option.name or "")
        if option.name not in names or ctx.get_parameter_source(option.name) is not _TYPED:
            continue
        if isinstance(option, click.Option) and option.is_flag:
            words += option.opts[-1:]
            continue
        for item in value if option.multiple else (value,):
            text = "=".join(item) if isinstance(item, tuple) else f"{item}"
            words += [option.opts[-1], f"{item:g}" if isinstance(item, float) else text]
    return words
