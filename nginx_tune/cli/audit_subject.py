"""The input of an audit: facts, and a tree from this host, a file, a dump or a git revision."""

import os
import posixpath
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.cli.configurations import Overlaid, read_plan, read_planned
from nginx_tune.cli.described import GivenInputs
from nginx_tune.cli.inputs import read_bytes, read_overlays, read_pipe
from nginx_tune.cli.options import check_maps
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.dumps import Dump, is_dump, is_payload, parse_dump, read_payload
from nginx_tune.conf.edits import apply_edits, set_arguments
from nginx_tune.conf.include_patterns import is_pattern
from nginx_tune.conf.secrets import redact_message
from nginx_tune.conf.tree import ConfTree, Maps, Reader, lines_in, mapped
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.findings import NginxTest
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.paths import absolute_path
from nginx_tune.nginx.elsewhere import FilesElsewhere, files_of, main_file_above, read_as_meant
from nginx_tune.nginx.revision import RevisionReader
from nginx_tune.nginx.subject import (
    ConfigurationFiles,
    Subject,
    find_subject,
    given_to,
    is_of_host,
    own_prefix,
    place_of,
    read_subject,
    refuse_foreign_code,
    refuse_special_files,
)
from nginx_tune.report.terminal.output import refuse_results
from nginx_tune.report.text import plain


class AuditSubject(NamedTuple):
    """A tree, the facts for its audit, and methods that read or test it with other files."""

    host: Host
    reader: Reader
    subject: Subject
    tree: ConfTree
    facts: Facts | None
    replaced: dict[str, bytes]
    """Replaced files: their new contents, by the names given."""

    def tree_with(self, files: Mapping[str, bytes]) -> ConfTree:
        """The tree with further files replaced."""
        return read_subject(Overlaid(self.reader, {**self.replaced, **files}), self.subject)

    def tree_at(self, revision: str) -> ConfTree:
        """The tree of a git revision.

        It is empty if the main file did not exist yet.
        Errors: UsageError without a repository or revision.
        """
        maps = self.subject.maps
        with RevisionReader(self.reader, self.subject.path, revision, maps=maps) as reader:
            return read_subject(reader, self.subject, may_be_absent=True)

    def why_not_testable(self) -> str:
        """The reason why ``nginx -t`` cannot judge the tree; empty if none is known."""
        if isinstance(self.reader, Dump):
            return "a dump has no files here"
        return "" if self.tree.complete else "it is not a whole configuration"

    def test(
        self, nginx_binary: str | None, files: Mapping[str, bytes] | None = None
    ) -> tuple[NginxTest, Nginx]:
        """The result of the target's ``nginx -t`` on the tree, in the sandbox, and that nginx.

        ``files`` are further files with other contents.
        """
        replaced = {**self.replaced, **(files or {})}
        if isinstance(self.reader, FilesElsewhere):
            replaced |= _by_names_here(self.tree_with(files or {}), self.reader)
        return test_tree(
            self.host, self.tree, nginx_binary, prefix=self.subject.prefix, replaced=replaced
        )


def _by_names_here(tree: ConfTree, reader: FilesElsewhere) -> dict[str, bytes]:
    """Files of another host's tree, changed so that an nginx on this machine can read them.

    An include by an absolute name, or through a link of the other host, is replaced on its line by
    the names of the files on this machine. No other file of this machine is read.
    """
    missing = {include.path for include in tree.missing}
    names = {id(block): source.file for source, block in tree.parsed}
    files: dict[str, bytes] = {}
    for source, block in tree.parsed:
        edits = []
        for line in lines_in(block):
            if line.name != "include" or len(line.args) != 1:
                continue
            found = [names[id(source)] for source in line.included or ()]
            here = [reader.followed(path) for path in found]
            is_lost = as_utf8(line.value) in missing and not is_pattern(line.value)
            is_named = line.value == mapped(line.value, reader.maps)
            if is_lost or here != found or (posixpath.isabs(line.value) and not is_named):
                words = "; include ".join(_quoted(absolute_path(path)) for path in here)
                edits.append(set_arguments(line, words or _NOTHING))
        if edits:
            files[reader.followed(source.file)] = apply_edits(source, edits)
    return files


def subject_notes(subject: AuditSubject) -> list[str]:
    """Remarks on the choice of the configuration, if another configuration may be meant."""
    note = [subject.subject.note] if subject.subject.note else []
    words = main_file_above(subject.tree, subject.host)
    if not words:
        return note
    path, main = subject.tree.path, words[0]
    again = shlex.join(["nginx-tune", str(click.get_current_context().info_name), *words])
    return [*note, plain(as_utf8(f"{path} is included by {main}: name the main file: {again}"))]


_NOTHING = "/dev/null/*"
"""A pattern that matches no file, so that its include is empty."""


def _quoted(path: str) -> str:
    escaped = path.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def test_tree(
    host: Host,
    tree: ConfTree,
    nginx_binary: str | None,
    *,
    prefix: str | None,
    replaced: Mapping[str, bytes],
) -> tuple[NginxTest, Nginx]:
    """Test a tree with ``nginx -t`` in the sandbox, with some files replaced.

    Shape: the result and the nginx. Errors: UndecidedError if no nginx can be run, or the tree has
            names that are not allowed.
    """
    from nginx_tune.experiment.trial import try_configuration  # noqa: PLC0415  # the whole lab
    from nginx_tune.experiment.view import (  # noqa: PLC0415  # the same
        module_files,
        opened_files,
        plan_view,
    )
    from nginx_tune.nginx.binary import (  # noqa: PLC0415  # the same
        read_nginx,
        runnable_program,
    )

    meant = absolute_path(tree.path)
    nginx, _ = read_nginx(host, binary=nginx_binary, conf_path=meant, to_run=True)
    refuse_special_files(opened_files(tree))
    binary = runnable_program(nginx)
    refuse_foreign_code(binary, module_files(tree, nginx.flags, prefix))
    tried = try_configuration(
        binary,
        tree.path,
        prefix=prefix,
        given=tree.given,
        replaced=replaced,
        view=plan_view([tree], nginx.flags, prefix, directory=str(Path.cwd())),
    )
    messages = [redact_message(line, tree) for line in tried.messages]
    return replace(tried, messages=messages), nginx


test_tree.__test__ = False  # type: ignore[attr-defined]  # not a test


def saved_dump(host: Host, named: str, prefix: str | None) -> bytes | None:
    """The output of ``nginx -T`` or crossplane in the named file; None for a configuration."""
    path = place_of(named, prefix)
    if not os.path.isfile(path):  # noqa: PTH113  # pathlib may raise
        return None
    try:
        data = ConfigurationFiles(host).read_bytes(path)
    except HostReadError:  # reported when the tree is read
        return None
    return data if holds_files(data) else None


def holds_files(data: bytes) -> bool:
    """True for a dump with all files of a configuration, which is not itself a configuration."""
    return is_dump(data) or is_payload(data)


SUBJECT_OPTIONS = ("conf", "conf_option", "prefix", "facts_source", "nginx_binary", "overlays",
                    "plan_path", "maps", "runs_test", "diff_base",
                   "pid")  # fmt: skip


def named_subject(
    inputs: GivenInputs,
    *,
    conf: str | None,
    conf_option: str | None,
    prefix: str | None,
    facts_source: str | None,
    nginx_binary: str | None,
    overlays: tuple[str, ...],
    plan_path: str | None,
    maps: Maps,
    runs_test: bool,
    diff_base: str | None,
    pid: int | None,
) -> AuditSubject:
    """The subject that the options name: a file, a plan, a dump, or this host's configuration.

    Errors: UsageError for options that contradict each other.
    """
    if conf is not None and conf_option is not None:
        raise click.UsageError("give CONF or -c, not both")
    facts = inputs.facts
    if inputs.described is not None and facts_source is not None:
        raise click.UsageError(f"--facts {facts_source}, and a host is described: give one of them")
    check_maps(maps)
    host, replaced = LiveHost(), read_overlays(overlays)
    named = conf or conf_option
    if plan_path is not None:
        if named is not None or overlays:
            raise click.UsageError("--plan names the files: leave CONF and --overlay out")
        plan = read_plan(plan_path)
        named, prefix = plan.conf_path, prefix or plan.prefix
        replaced = read_planned(plan, plan_path, ConfigurationFiles(host), prefix=prefix).files
    if pid is not None and (conf == "-" or facts_source not in {None, "live"}):
        raise click.UsageError(
            "--pid names a process of this host and cannot be combined with - or --facts FILE"
        )
    tests = runs_test or diff_base is not None
    given = read_bytes("-") if conf == "-" else None
    dump, piped = (given, {}) if conf == "-" else _given(host, named, prefix, tests=tests)
    replaced = {**piped, **replaced}
    if dump is not None:
        kind = "crossplane" if is_payload(dump) else "nginx -T"
        what = "a dump on standard input" if conf == "-" else f"{named}, the output of {kind},"
        if maps:
            raise click.UsageError(
                f"{what} already has all files and cannot be combined with --map"
            )
        if runs_test or diff_base is not None or facts_source == "live":
            raise click.UsageError(
                f"{what} has no files on this host and cannot be combined with --test, "
                "--diff-base or --facts live"
            )
        name = "standard input" if conf == "-" else str(named)
        return _read_dumped(host, dump, prefix=prefix, facts=facts, replaced=replaced, name=name)
    return read_audit_subject(
        host,
        named,
        prefix=prefix,
        facts=facts,
        wants_live_facts={None: None, "live": True}.get(facts_source, False),
        nginx_binary=nginx_binary,
        pid=pid,
        replaced=replaced,
        maps=maps,
    )


def _given(
    host: Host, named: str | None, prefix: str | None, *, tests: bool
) -> tuple[bytes | None, dict[str, bytes]]:
    """A saved dump of all files, or None; and the contents of a named pipe, by its name."""
    if named is None:
        return None, {}
    if not Path(named).is_fifo():
        return saved_dump(host, named, prefix), {}
    if tests:
        raise click.UsageError(f"{named} is a pipe: save it in a file for --test, --diff-base")
    piped = read_pipe(named)  # it can be read once only
    return (piped, {}) if holds_files(piped) else (None, {named: piped})


def _read_dumped(host: Host, dump: bytes, *, prefix: str | None, facts: Facts | None,
                replaced: dict[str, bytes], name: str) -> AuditSubject:  # fmt: skip
    """The subject for a tree in ``dump``, the output of ``nginx -T`` or ``crossplane parse``."""
    reader = read_payload(dump, name) if is_payload(dump) else parse_dump(dump)
    subject = Subject(reader.main, prefix or _prefix(facts), is_hosts=False)
    overlaid = Overlaid(reader, replaced)
    tree = read_subject(overlaid, subject)
    overlaid.check_all_read()
    return AuditSubject(host, reader, subject, tree, facts, replaced)


def read_audit_subject(
    host: Host,
    named: str | None,
    *,
    prefix: str | None,
    facts: Facts | None,
    wants_live_facts: bool | None,
    nginx_binary: str | None,
    replaced: dict[str, bytes],
    maps: Maps = (),
    pid: int | None = None,
    scan_seconds: float | None = None,
    is_for_host: bool = True,
) -> AuditSubject:
    """The named tree, else the tree of this host's nginx, or of the master ``pid``.

    ``wants_live_facts`` is None to read facts only for this host's own configuration. Served files
    are counted for at most ``scan_seconds``. Without ``is_for_host``, live facts have no
    directories of a tree that is not this host's own.
    Errors: UsageError for files and binaries that do not exist.
    """
    is_by_text = named is not None and (facts is not None or wants_live_facts is False)
    if named is not None and is_by_text:
        subject = Subject(place_of(named, prefix), prefix or _prefix(facts), is_hosts=False)
    else:
        subject = find_subject(host, named, prefix=prefix, nginx_binary=nginx_binary, pid=pid)
    is_live = wants_live_facts or (wants_live_facts is None and facts is None and subject.is_hosts)
    if is_live and subject.prefix is not None:
        # Facts name paths in full; without facts, a tree's paths stay as they were given.
        subject = subject._replace(prefix=absolute_path(subject.prefix))
    is_here: bool | None = subject.is_here
    if is_by_text and not is_here:
        is_here = (facts is not None and is_of_host(host, subject.path, facts.nginx)) or None
    overlaid = Overlaid(ConfigurationFiles(host), replaced)

    def read(maps: Maps | None) -> ConfTree:
        nonlocal overlaid
        overlaid, tree = _read(host, subject._replace(maps=maps), replaced)
        return tree

    tree = read_as_meant(
        *(host, subject.path, maps, read),
        is_here=is_here,
        recorded=facts.nginx if is_by_text and facts is not None else None,
    )
    subject = subject._replace(maps=tree.maps)
    overlaid.check_all_read()
    if is_live:
        from nginx_tune.observe.inspect.live_facts import (  # noqa: PLC0415  # slow to load
            SCAN_SECONDS,
            gather_live_facts,
        )

        facts = gather_live_facts(
            *(host, tree),
            nginx_binary=nginx_binary,
            pid=pid,
            scan_seconds=SCAN_SECONDS if scan_seconds is None else scan_seconds,
            is_for_host=is_for_host or tree.maps is None,
        )
        refuse_results((log.path for log in facts.error_logs), ())
    given = "" if facts is None else given_to(facts.nginx, subject.path)
    if given:
        subject = subject._replace(given=given)
        overlaid, tree = _read(host, subject, replaced)
    return AuditSubject(host, overlaid.reader, subject, tree, facts, replaced)


def _read(host: Host, subject: Subject, replaced: dict[str, bytes]) -> tuple[Overlaid, ConfTree]:
    overlaid = Overlaid(files_of(host, subject.maps), replaced)
    return overlaid, read_subject(overlaid, subject)


def _prefix(facts: Facts | None) -> str | None:
    return None if facts is None else own_prefix(facts.nginx)
