"""The input of an audit: facts, and a tree from this host, a file, a dump or a git revision."""

from __future__ import annotations

import os
import posixpath
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec.structs import replace

from nginx_tune.cli.configurations import Overlaid
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.dumps import Dump, is_dump, is_payload, parse_dump, read_payload
from nginx_tune.conf.edits import apply_edits, set_arguments
from nginx_tune.conf.secrets import redact_message
from nginx_tune.conf.tree import ConfTree, Maps, Reader, is_pattern, lines_in, mapped
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.findings import NginxTest
from nginx_tune.errors import MissingToolError, UsageError
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.paths import absolute_path
from nginx_tune.host.programs import ProgramError, run_program, start_program
from nginx_tune.nginx.elsewhere import (
    FilesElsewhere,
    files_of,
    main_file_above,
    read_as_meant,
)
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

if TYPE_CHECKING:
    from typing_extensions import Self


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
    """True for a dump with all files of a configuration, which is no configuration itself."""
    return is_dump(data) or is_payload(data)


def read_dumped(host: Host, dump: bytes, *, prefix: str | None, facts: Facts | None,
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


_LINK = "120000"
_ENVIRONMENT = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}
"""The environment of git, as a repository may configure a program that fetches objects."""
_FOREIGN = (
    "the settings of a repository can make git run programs, so root reads only root's "
    "repositories, even under sudo: run this as the owner, with --facts, or allow the repository "
    "for all users: git config --system --add safe.directory {}"
)
_MOST_LINKS = 40
"""Most links that the kernel follows (path_resolution(7))."""


class _Entry(NamedTuple):
    mode: str
    object: str


class RevisionReader:
    """A reader that takes files of a git repository from a revision, and all others from disk.

    Use as a context manager, in which a ``git cat-file`` process runs.
    """

    def __init__(
        self, reader: Reader, path: str, revision: str, *, maps: Maps | None = None
    ) -> None:
        self._reader = reader
        self._maps = maps
        directory = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120  # links stay
        self._top = _git(directory, "rev-parse", "--show-toplevel").decode().rstrip("\n")
        commit = _git(
            directory,
            *("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"),
            fault=f"--diff-base {revision}: no such revision (a shallow clone: fetch it first)",
        )
        self._entries: dict[str, _Entry] = {}
        self._names: dict[str, set[str]] = {}
        tree = _git(self._top, "ls-tree", "-r", "-z", "--full-tree", commit.decode().strip())
        for record in tree.split(b"\0"):
            head, _, name = record.decode("utf-8", "surrogateescape").partition("\t")
            if name:
                mode, _, blob = head.split(" ")
                self._entries[name] = _Entry(mode, blob)
                self._add_names(name)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = start_program(
            ["git", "-C", self._top, "cat-file", "--batch"],
            environment=_ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        name = self._name(path)
        if name is None:
            return self._reader.read_bytes(path)
        for _ in range(_MOST_LINKS):
            entry = self._entries.get(name)
            if entry is None:
                raise HostReadError(f"read {path}", "No such file in the revision")
            data = self._blob(entry.object)
            if entry.mode != _LINK:
                return data
            target = data.decode("utf-8", "surrogateescape")
            if self._maps is not None and posixpath.isabs(target):
                here = mapped(target, self._maps)
                if here is None:
                    raise HostReadError(f"read {path}", "No such file in the revision")
                target = os.path.abspath(here)  # noqa: PTH100  # links are followed in the revision
            full = posixpath.normpath(posixpath.join(self._top, posixpath.dirname(name), target))
            inside = self._name(full)
            if inside is None:
                return self._reader.read_bytes(full)
            name = inside
        raise HostReadError(f"read {path}", "Too many levels of symbolic links")

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        name = self._name(path)
        if name is None:
            return self._reader.list_dir(path)
        if name not in self._names:
            raise HostReadError(f"list {path}", "No such directory in the revision")
        return sorted(self._names[name])

    def _name(self, path: str) -> str | None:
        """The name of a path in the revision; None if it is outside the repository."""
        full = os.path.abspath(path)  # noqa: PTH100  # links are followed in the revision
        if full == self._top:
            return ""
        if full.startswith(self._top + "/"):
            return full[len(self._top) + 1 :]
        real = os.path.realpath(os.path.dirname(full))  # noqa: PTH120
        if real == self._top or real.startswith(self._top + "/"):
            return posixpath.join(real, posixpath.basename(full))[len(self._top) + 1 :]
        return None

    def _add_names(self, name: str) -> None:
        while name:
            directory, _, last = name.rpartition("/")
            known = self._names.setdefault(directory, set())
            if last in known:
                return
            known.add(last)
            name = directory

    def _blob(self, name: str) -> bytes:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise HostReadError(f"object {name}", "git does not run")
        process.stdin.write(name.encode() + b"\n")
        process.stdin.flush()
        head = process.stdout.readline().split()
        if len(head) != len(("name", "type", "size")):
            raise HostReadError(f"object {name}", "not in the repository")
        data = process.stdout.read(int(head[2]) + 1)
        return data[:-1]


def _git(directory: str, *arguments: str, fault: str = "") -> bytes:
    try:
        run = run_program(
            ["git", "-C", directory, *arguments],
            environment=_ENVIRONMENT,
        )
    except ProgramError as error:
        raise MissingToolError(f"git: {error}", hint="apt-get install git") from None
    if run.returncode != 0:
        words = run.stderr.decode(errors="replace").strip().partition("\n")[0]
        is_foreign = "dubious ownership" in words
        raise UsageError(
            (fault if not is_foreign else "") or f"--diff-base: {words.removeprefix('fatal: ')}",
            hint=_FOREIGN.format(shlex.quote(directory)) if is_foreign else "",
        )
    return run.stdout
