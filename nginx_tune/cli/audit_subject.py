"""What an audit reads: a tree by name, of this host, from a dump or from a revision, with facts."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.cli.overlaid import Overlaid
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.dump import Dump, is_dump, parse_dump
from nginx_tune.conf.edits import apply_edits, set_arguments
from nginx_tune.conf.globs import is_pattern
from nginx_tune.conf.payload import is_payload, read_payload
from nginx_tune.conf.quoted import redact_message
from nginx_tune.conf.tree import ConfTree, Reader, lines_in, mapped
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.findings import NginxTest
from nginx_tune.experiment.view import module_files, opened_files, plan_view
from nginx_tune.host.climbing import absolute_path
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.choice import runnable_program
from nginx_tune.nginx.elsewhere import FilesElsewhere, files_of, with_own_directory
from nginx_tune.nginx.lab.refused import refuse_foreign_code, refuse_special_files
from nginx_tune.nginx.subject import (
    ConfigurationFiles,
    Subject,
    find_subject,
    given_to,
    own_prefix,
    place_of,
    read_subject,
)
from nginx_tune.report.terminal.output import refuse_results


class AuditSubject(NamedTuple):
    """A tree with the facts it is judged by, and the means to read it in another state."""

    host: Host
    reader: Reader
    subject: Subject
    tree: ConfTree
    facts: Facts | None
    replaced: dict[str, bytes]
    """Files given with other contents than they have, by the names they were given."""

    def tree_with(self, files: Mapping[str, bytes]) -> ConfTree:
        """The tree with further files replaced."""
        return read_subject(Overlaid(self.reader, {**self.replaced, **files}), self.subject)

    def tree_at(self, revision: str) -> ConfTree:
        """The tree as a git revision has it.

        Errors: UsageError where there is no repository or no such revision; a main file that
        was not there yet gives an empty tree.
        """
        from nginx_tune.cli.revision import RevisionReader  # noqa: PLC0415  # rarely asked for

        maps = self.subject.maps
        with RevisionReader(self.reader, self.subject.path, revision, maps=maps) as reader:
            return read_subject(reader, self.subject, may_be_absent=True)

    def why_not_testable(self) -> str:
        """Why ``nginx -t`` cannot judge the tree, by what is known without it; empty if it can."""
        if isinstance(self.reader, Dump):
            return "a dump has no files here"
        return "" if self.tree.complete else "it is not a whole configuration"

    def test(
        self, nginx_binary: str | None, files: Mapping[str, bytes] | None = None
    ) -> tuple[NginxTest, Nginx]:
        """What the target's ``nginx -t`` says of the tree, inside walls; and which nginx it was.

        ``files`` are further ones with other contents.
        """
        replaced = {**self.replaced, **(files or {})}
        if isinstance(self.reader, FilesElsewhere):
            replaced |= _by_names_here(self.tree_with(files or {}), self.reader)
        return test_tree(
            self.host, self.tree, nginx_binary, prefix=self.subject.prefix, replaced=replaced
        )


def _by_names_here(tree: ConfTree, reader: FilesElsewhere) -> dict[str, bytes]:
    """The files of a tree that lies elsewhere, as an nginx that is started here can read them.

    Only those that differ: an include by an absolute name, or through a link of the other host,
    names the files that stand for it here, in the same line. Nothing of this machine is read.
    """
    missing = {one.path for one in tree.missing}
    names = {id(block): source.file for source, block in tree.parsed}
    files: dict[str, bytes] = {}
    for source, block in tree.parsed:
        edits = []
        for line in lines_in(block):
            if line.name != "include" or len(line.args) != 1:
                continue
            found = [names[id(one)] for one in line.included or ()]
            here = [reader.followed(one) for one in found]
            is_lost = as_utf8(line.value) in missing and not is_pattern(line.value)
            is_named = line.value == mapped(line.value, reader.maps)
            if is_lost or here != found or (posixpath.isabs(line.value) and not is_named):
                words = "; include ".join(_quoted(absolute_path(one)) for one in here)
                edits.append(set_arguments(line, words or _NOTHING))
        if edits:
            files[reader.followed(source.file)] = apply_edits(source, edits)
    return files


_NOTHING = "/dev/null/*"
"""A pattern that nothing matches: an include of it is empty."""


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
    """What ``nginx -t`` says of a tree whose files on this host have other bytes, inside walls.

    Shape: with the nginx that said it. Errors: UndecidedError where none can be run, or the tree
    names what must not be.
    """
    from nginx_tune.experiment.trial import try_configuration  # noqa: PLC0415  # the whole lab

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


test_tree.__test__ = False  # type: ignore[attr-defined]  # no test of ours


def saved_dump(host: Host, named: str, prefix: str | None) -> bytes | None:
    """What ``nginx -T`` or crossplane printed into the named file; null for a configuration."""
    path = place_of(named, prefix)
    if not os.path.isfile(path):  # noqa: PTH113  # Path's raises where a directory is closed to us
        return None
    try:
        data = ConfigurationFiles(host).read_bytes(path)
    except HostReadError:  # said where the tree is read
        return None
    return data if holds_files(data) else None


def holds_files(data: bytes) -> bool:
    """Whether data holds all files of a configuration, and is none itself."""
    return is_dump(data) or is_payload(data)


def read_dumped(host: Host, dump: bytes, *, prefix: str | None, facts: Facts | None,
                replaced: dict[str, bytes], name: str) -> AuditSubject:  # fmt: skip
    """The tree inside the output of ``nginx -T`` or of ``crossplane parse``."""
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
    maps: tuple[tuple[str, str], ...] = (),
    pid: int | None = None,
) -> AuditSubject:
    """The named tree, else the one of this host's nginx, of the master ``pid`` where one is named.

    ``wants_live_facts`` is null where they are wanted for this host's own configuration only.
    Errors: UsageError for files and binaries that are not there.
    """
    is_by_text = named is not None and (facts is not None or wants_live_facts is False)
    if named is not None and is_by_text:
        subject = Subject(place_of(named, prefix), prefix or _prefix(facts), is_hosts=False)
    else:
        subject = find_subject(host, named, prefix=prefix, nginx_binary=nginx_binary, pid=pid)
    is_live = wants_live_facts or (wants_live_facts is None and facts is None and subject.is_hosts)
    if is_live and subject.prefix is not None:
        # Facts name paths in full; by its text alone a tree's paths stay as they were given.
        subject = subject._replace(prefix=absolute_path(subject.prefix))
    if maps or not subject.is_here:
        subject = subject._replace(maps=with_own_directory(subject.path, maps))
    overlaid, tree = _read(host, subject, replaced)
    if tree.missing and not maps and is_by_text:
        found = find_subject(host, named, prefix=prefix, nginx_binary=nginx_binary)
        if found.is_here:
            subject = subject._replace(maps=None)
            overlaid, tree = _read(host, subject, replaced)
    overlaid.check_all_read()
    if is_live:
        from nginx_tune.observe.inspect.live_facts import gather_live_facts  # noqa: PLC0415  # slow to load

        facts = gather_live_facts(host, tree, nginx_binary=nginx_binary, pid=pid)
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
