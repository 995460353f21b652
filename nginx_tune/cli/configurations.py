"""The configurations that a command line names: from disk, with files replaced, or planned.

A plan is not trusted: its files are computed again from its hunks and the files on this host.
"""

import hashlib
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from nginx_tune.change.generate.plan_files import (
    HunkError,
    checked_host_parts,
    first_difference,
    old_content,
)
from nginx_tune.cli.inputs import read_document
from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import STOCK_FILES, ConfTree, Maps, Reader, lines_in, read_tree
from nginx_tune.documents.base import D, MissingInclude, decode, encode
from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.findings import Findings
from nginx_tune.documents.plan import Plan, PlannedFile
from nginx_tune.errors import ConfigurationError, ExitStatus, UndecidedError, UsageError
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.paths import absolute_path, from_here
from nginx_tune.nginx.elsewhere import (
    FilesElsewhere,
    MissingIncludes,
    files_of,
    includes_away,
    likely_maps,
    read_as_meant,
)
from nginx_tune.nginx.subject import ConfigurationFiles, given_to, is_of_host, own_prefix, place_of
from nginx_tune.report.findings import accepted_text, unread_hint, unread_text
from nginx_tune.report.terminal.output import refuse_results
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.text import plain, shown_path

_SHOWN = 3
"""Maximum number of includes that a message names; it only counts the others."""


def read_configuration(
    host: Host,
    path: str,
    prefix: str | None,
    *,
    default_prefix: str | None = None,
    given: str = "",
    nginx: Nginx | None = None,
    is_recorded: bool = False,
    asked_maps: Maps = (),
    to_run: bool = False,
) -> ConfTree:
    """The tree of a configuration file, with absolute paths.

    ``prefix`` is the value of ``-p``, ``default_prefix`` its default, ``given`` the value of
    ``-g``. ``nginx`` is the host's nginx; it is used to tell whether the tree belongs to this
    host. If ``is_recorded``, the host is another machine. ``to_run``: nginx itself reads the tree
    next, by its names on this machine.
    Errors: UsageError, also if an output file of this command is, or would become, one of the
            configuration's files; UndecidedError if, with ``to_run``, the tree is a checkout whose
            includes nginx would not find.
    """
    full = full_path(path, prefix)
    if os.path.exists(full) and not os.path.isfile(full):  # noqa: PTH110, PTH113
        raise UsageError(
            f"{path}: not a regular file",
            hint="save the configuration in a file, since it is read twice",
        )
    try:
        os.stat(full)  # noqa: PTH116
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    base = absolute_path(prefix) if prefix else default_prefix
    is_here = nginx is None or is_of_host(host, full, nginx)

    def read(maps: Maps | None) -> ConfTree:
        return read_tree(full, files_of(host, maps), prefix=base, maps=maps, given=given)

    if to_run:
        tree = read(None)
    else:
        asked = [(name, absolute_path(at)) for name, at in asked_maps]
        tree = read_as_meant(
            *(host, full, asked, read),
            is_here=is_here or (None if is_recorded else False),
            recorded=nginx if is_recorded else None,
        )
    refuse_results((tree.path, *tree.files), tree.asked)
    if to_run and not is_here:
        _refuse_checkout(host, tree, path)
        _tell_includes(tree, path)
    return tree


def parsed(tree: ConfTree, conf_path: str | None = None) -> ConfTree:
    """The tree; ConfigurationError if a file of it could not be read or parsed.

    ``conf_path`` is the main file's name as it was typed.
    """
    if tree.unparsed:
        first = tree.unparsed[0]
        file = typed_name(first.file, conf_path)
        raise ConfigurationError(first.reason, file=file, line=first.line or 0)
    return tree


def _refuse_checkout(host: Host, tree: ConfTree, path: str) -> None:
    """Raise UndecidedError if absolute includes match nothing here, but match beside the tree."""
    lines = [line for file in tree.parsed for line in lines_in(file.block)]
    lost = [
        MissingInclude(file="", line=0, reason="", path=line.value)
        for line in lines
        if line.included == () and posixpath.isabs(line.value)
    ]
    likely = likely_maps(tree.path, lost, host)
    if not likely:
        return
    prefix, _, directory = likely[0].partition("=")
    flags = "-m" if os.geteuid() == 0 else "-rm"
    mount = f"mount --bind {shlex.quote(absolute_path(directory))} {shlex.quote(prefix)}"
    call = click.get_current_context().info_name
    raise UndecidedError(
        f"{plain(as_utf8(path))} is in a checkout: its includes below {shown_path(prefix)} are "
        f"not there, but below {shown_path(directory)}",
        hint=f"mount it at that path, only for this call: unshare {flags} sh -c '{mount} && "
        f"nginx-tune {call} …'",
    )


def _tell_includes(tree: ConfTree, path: str) -> None:
    """Print the includes of another host's tree that were read on this host."""
    names = includes_away(tree)
    if names and not click.get_current_context().obj["quiet"]:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        shown = plain(", ".join(names[:_SHOWN]))
        say(
            f"{plain(as_utf8(path))}: these includes were looked up on this machine, and count as "
            f"empty where nothing matches: {shown}{more}",
            "this is not the configuration of this host's nginx",
        )


def tell_unread(missing: MissingIncludes | Findings) -> ExitStatus:
    """Print the includes that were not read, also with ``-q``; returns the exit status.

    Without ``-q``, the includes that ``--accept-missing`` accepts are printed too.
    """
    accepted = accepted_text(missing.files_missing)
    if accepted and not click.get_current_context().obj["quiet"]:
        say(accepted)
    if not missing.unread:
        return ExitStatus.OK
    say(unread_text(missing.unread), unread_hint(missing.unread, missing.likely_maps))
    return ExitStatus.UNDECIDED


def typed_name(path: str, conf_path: str | None) -> str:
    """The name of a file: relative if that of its main file was typed so."""
    return path if conf_path is None or posixpath.isabs(conf_path) else from_here(path)


def with_typed_names(document: D, conf_path: str | None) -> D:
    """The document for people, with the places in files named as its main file was typed.

    A place (``FILE:LINE``) below the working directory is relative if the main file's name is. In
    JSON, names stay absolute.
    """
    if conf_path is None or posixpath.isabs(conf_path):
        return document
    try:
        here = msgspec.json.encode(str(Path.cwd()))[1:-1]
    except UnicodeEncodeError:
        return document
    place = re.compile(rb'(?:(?<="file": ")|(?<![^\s"(])(?=[^\s"]*:\d))' + re.escape(here) + b"/")
    try:
        return decode(type(document), place.sub(b"", encode(document)))
    except UsageError:  # a name that is not UTF-8
        return document


def link_targets(paths: Iterable[str], maps: Maps | None) -> dict[str, str]:
    """The link targets of those paths that are links, by path, as in Debian's sites-enabled.

    A diff must name the target, because ``patch`` and ``git apply`` follow no link. ``maps`` are
    the tree's; they locate the targets of absolute links in a checkout.
    """
    elsewhere = None if maps is None else FilesElsewhere(LiveHost(), maps)
    found = {}
    for path in paths:
        with suppress(HostReadError):
            real = elsewhere.followed(path) if elsewhere else path
            real = os.path.realpath(real) if real != path or os.path.islink(real) else path  # noqa: PTH114
            if real != path:
                found[path] = real
    return found


def full_path(path: str, prefix: str | None) -> str:
    """The absolute path of a configuration that the command line names."""
    return absolute_path(place_of(path, prefix))


def host_configuration(nginx: Nginx, hint: str) -> str:
    """The configuration of the running master, else of the installed nginx.

    Errors: UsageError without one; ``hint`` says how to name it.
    """
    running = nginx.running
    path = (running.conf_path if running else None) or nginx.conf_path
    if path is None:
        raise UsageError("the host's nginx has no configuration", hint=hint)
    return path


def configuration_to_decide(
    path: str | None,
    prefix: str | None,
    nginx: Nginx,
    *,
    maps: Maps,
    is_recorded: bool,
    to_run: bool,
) -> ConfTree:
    """The tree to decide for: as named, else the running or the installed nginx's own.

    Errors: ConfigurationError for a file without ``events``, which is only part of a tree.
    """
    name = path or host_configuration(nginx, "name it: plan CONF, or recommend -c CONF")
    own = own_prefix(nginx, full_path(name, prefix))
    given = given_to(nginx, full_path(name, prefix))
    tree = read_configuration(
        *(LiveHost(), name, prefix),
        default_prefix=own,
        given=given,
        nginx=nginx,
        is_recorded=is_recorded,
        asked_maps=maps,
        to_run=to_run,
    )
    if parsed(tree, path).main.first("events") is None and not tree.missing:
        raise ConfigurationError(
            'it has no "events" section, so nginx does not start with it',
            file=typed_name(tree.path, path),
            line=1,
            hint="name the main file (nginx.conf), which includes the others",
        )
    return tree


class Overlaid:
    """A reader that replaces the bytes of some files, also when read through symbolic links."""

    def __init__(self, reader: Reader, files: Mapping[str, bytes]) -> None:
        self.reader = reader
        self.climb = getattr(reader, "climb", posixpath.normpath)
        self._files = {_real(path): data for path, data in files.items()}
        self._unread = {_real(path): path for path in files}  # one file may have several names
        self._new_names: dict[str, set[str]] = {}
        for path in files:
            directory, name = posixpath.split(absolute_path(path))
            self._new_names.setdefault(directory, set()).add(name)

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        real = _real(path)
        if real in self._files:
            self._unread.pop(real, None)
            return self._files[real]
        return self.reader.read_bytes(path)

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, including those of new files."""
        new = self._new_names.get(absolute_path(path), set())
        if not new:
            return self.reader.list_dir(path)
        old = self.reader.list_dir(path) if os.path.isdir(path) else []  # noqa: PTH112
        return sorted({*old, *new})

    def check_all_read(self) -> None:
        """Raise UsageError for a replaced file that the tree does not include."""
        for path in self._unread.values():
            raise UsageError(f"--overlay {path}: the configuration does not include this file")


def _real(path: str) -> str:
    return os.path.realpath(path)


_AGAIN = "make it again: nginx-tune plan"


class Planned(NamedTuple):
    """A configuration without and with a plan."""

    before: ConfTree
    after: ConfTree
    files: dict[str, bytes]
    """The new bytes of each file, by its path."""


def check_plan(
    plan: Plan, name: str, reader: Reader, *, may_lack_content: bool = False
) -> dict[str, str]:
    """The SHA-256 of each existing file of a plan, by its path.

    ``may_lack_content``: also accept a plan from a page of ``report``.
    Errors: UsageError if a file's contents are not the planned ones, or differ from the hunks:
            everything that is written must be shown. UndecidedError if includes were not read.
    """
    names = [plan.conf_path, plan.prefix or "", *(file.path for file in plan.files), *plan.reads]
    if not plan.conf_path:
        raise UsageError(f"{name}: it names no configuration", hint=_AGAIN)
    if any("\0" in name for name in names):
        raise UsageError(f"{name}: a file name in it has a zero byte")
    for path in (name for name in names if name and not posixpath.isabs(name)):
        raise UsageError(f"{name}: {shown_path(path)}: not an absolute path", hint=_AGAIN)
    try:
        checked_host_parts(plan.host)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint=error.hint) from None
    if unread := [include for include in plan.files_missing if not include.accepted]:
        raise UndecidedError(f"{name}: {unread_text(unread)}", hint=f"{_AGAIN} with all of them")
    found: dict[str, str] = {}
    real: dict[str, str] = {}
    for file in plan.files:
        first = real.setdefault(os.path.realpath(file.path), file.path)
        if first is not file.path:
            raise UsageError(
                f"{name}: {shown_path(first)} and {shown_path(file.path)} are the same file",
                hint=_AGAIN,
            )
        now = None
        with suppress(HostReadError):
            now = reader.read_bytes(file.path)
        if file.content or not may_lack_content:
            _check_file(file, name, now)
        if now is not None:
            found[file.path] = hashlib.sha256(now).hexdigest()
    return found


def _check_file(file: PlannedFile, name: str, now: bytes | None) -> None:
    """Raise UsageError if a file's content is not the planned one, or differs from its hunks.

    ``now`` is the content on this host.
    """
    place = f"{name}: {shown_path(file.path)}"
    if hashlib.sha256(file.content).hexdigest() != file.sha256_after:
        if not file.content:
            raise UsageError(
                f"{place}: its content is left out, as in a page of 'report'",
                hint="use the JSON that 'nginx-tune plan' wrote",
            )
        raise UsageError(f"{place}: its content is not what was planned")
    try:
        old = old_content(file)
    except HunkError as error:
        raise UsageError(f"{place}:{error.line}: {error.why}", hint=_AGAIN) from None
    if hashlib.sha256(old).hexdigest() == file.sha256_before:
        return
    if now is not None and hashlib.sha256(now).hexdigest() == file.sha256_before:
        place = f"{place}:{first_difference(now, old)}"
    raise UsageError(f"{place}: the new file changes more than the plan's hunks show", hint=_AGAIN)


def read_planned(
    plan: Plan, name: str, reader: Reader, *, prefix: str | None, to_run: bool = False
) -> Planned:
    """The configuration of a plan, without and with the plan.

    ``prefix`` is the chosen nginx's prefix, for a plan that has none. ``to_run``: nginx itself
    reads the files next, by their names on this machine.
    Errors: UsageError if the plan is incomplete, or a file has changed since; UndecidedError if
            nginx would read other files than the plan did.
    """
    check_plan(plan, name, reader)
    files = {file.path: file.content for file in plan.files}
    before = {file.path: file.sha256_before for file in plan.files}
    for path, sha256 in (before | plan.reads).items():
        try:
            data = reader.read_bytes(path)
        except HostReadError as error:
            raise UsageError(f"{name}: {shown_path(path)}: {error.reason}") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise UsageError(
                f"{name}: {shown_path(path)} has changed since the plan was made", hint=_AGAIN
            )
    base = plan.prefix or prefix
    tree = read_tree(plan.conf_path, reader, prefix=base)
    apart = {*tree.files} ^ {*before, *plan.reads} if to_run else set()
    if names := sorted(path for path in apart if posixpath.basename(path) not in STOCK_FILES):
        raise UndecidedError(
            f"{name}: this plan was made for a checkout, and the set of files that nginx reads "
            f"here is different, for example {shown_path(names[0])}",
            hint="make the plan on the host of that configuration",
        )
    return Planned(tree, read_tree(plan.conf_path, Overlaid(reader, files), prefix=base), files)


def believed_plan(path: str) -> Plan:
    """Read a plan from a file, and check it against its hunks before any of it is shown.

    Errors: UsageError.
    """
    plan = read_document(Plan, path)
    check_plan(plan, path, ConfigurationFiles(LiveHost()))
    return plan


def read_plan(path: str) -> Plan:
    """Read a plan from a file, for a command that also accepts a plan without changes.

    For such a plan, a line on standard error states that the result is for the current
    configuration and proves nothing about the plan. Errors: UsageError.
    """
    plan = believed_plan(path)
    if not plan.files and not click.get_current_context().obj["quiet"]:
        conf = shown_path(plan.conf_path)
        say(f"{path}: the plan changes no file, so the result is for {conf} as it is now")
    return plan
