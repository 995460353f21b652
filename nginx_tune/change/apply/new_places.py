"""Whether a change has nginx write over what lies somewhere, or give it to another user.

A reload writes its number into whatever ``pid`` names, and nginx removes that as it ends. The
directories of caches and of temporary files are given to the workers' user by every start, every
reload, and by root's ``nginx -t`` alone. Where an include takes either, the next reload reads it as
configuration. No rollback could undo that, so it is looked at before any file is changed.
A ``lock_file`` is harmless: with atomic operations nginx never opens it (ngx_shmtx_create()).
Source: ngx_create_pidfile(), ngx_delete_pidfile(), ngx_create_paths().
"""

from __future__ import annotations

import os
import posixpath
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from nginx_tune.change.apply.errors import RefusedError
from nginx_tune.change.apply.target import ManagedNginx, pid_path
from nginx_tune.conf.caches import MODULES
from nginx_tune.conf.scopes import http_blocks
from nginx_tune.conf.tree import ConfTree
from nginx_tune.nginx.overwriting import is_asked

_TEMPORARY: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_NAMES: Final = frozenset({f"{name}_temp_path" for name in _TEMPORARY}) | {
    f"{name}_cache_path" for name in MODULES
}
_GIVEN_USER = re.compile(r"(?:^|;)\s*user\s+([^\s;]+)")
_MOST_PID_BYTES = 64


class _Place(NamedTuple):
    """What nginx makes, or takes for its own."""

    path: str
    said: str
    """Where it is said, for people."""


def refuse_taken_places(before: ConfTree, after: ConfTree, subject: ManagedNginx) -> None:
    """Look at what nginx would make by the new configuration, and not by the old one.

    Errors: RefusedError that names the line and what it would do.
    """
    _check_pid_file(before, after, subject)
    known = {one.path for one in _places(before, subject)}
    for place in _places(after, subject):
        if place.path not in known:
            _refuse_included(place.path, place.said, after)
    if os.geteuid() == 0:  # nobody else can give files away
        _check_owners(before, after, subject)


def _refuse_included(path: str, said: str, after: ConfTree) -> None:
    """Errors: RefusedError for what nginx makes where it looks for its configuration."""
    for name in after.asked:
        if is_asked(path, name):
            raise RefusedError(
                f"{said}: the configuration includes {name}, so the next reload would read what "
                "nginx makes there, and fail",
                hint="name a place that nothing includes",
            )


def _check_pid_file(before: ConfTree, after: ConfTree, subject: ManagedNginx) -> None:
    old, new = pid_path(before, subject), pid_path(after, subject)
    if new == old:
        return
    lines = after.main.all("pid")
    said = f"{lines[-1].file}:{lines[-1].line}: pid {lines[-1].value}" if lines else f"pid {new}"
    if os.path.realpath(new) == os.path.realpath(old):
        raise RefusedError(
            f"{said}: is the same file as {old}: at a reload nginx writes the new one and removes "
            "the old one, so none is left",
            hint="leave pid as it is until nginx is started anew",
        )
    _refuse_included(new, said, after)
    if not _is_free(new, subject):
        raise RefusedError(
            f"{said}: nginx would write its number over that file, and remove it as it ends",
            hint="name a file that is not there yet",
        )


def _is_free(path: str, subject: ManagedNginx) -> bool:
    """Whether nothing is lost: no file, or one of ours that is empty or names no living process.

    ``nginx -t`` leaves an empty one where there was none. A link is written through, and removed
    itself; by another name of the file (a hard link) somebody else reads it.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        is_plain = is_plain and status.st_uid == os.geteuid()
        content = os.read(descriptor, _MOST_PID_BYTES + 1) if is_plain else b"-"
    finally:
        os.close(descriptor)
    number = content.strip()
    if not number:
        return True
    if len(content) > _MOST_PID_BYTES or not number.isdigit():
        return False
    own = subject.master is not None and int(number) == subject.master.pid
    return own or not Path(f"/proc/{int(number)}").exists()


def _check_owners(before: ConfTree, after: ConfTree, subject: ManagedNginx) -> None:
    user, name = _user(after, subject)
    if user is None:  # nginx -t says so
        return
    was, _ = _user(before, subject)
    known = {one.path for one in _places(before, subject)}
    for place in _places(after, subject):
        if place.path in known and user == was:
            continue
        try:
            status = Path(place.path).stat()
        except OSError:
            continue  # nginx makes it, or says that it cannot
        if status.st_uid == user and status.st_mode & stat.S_IRWXU == stat.S_IRWXU:
            continue
        if place.path in known:
            raise RefusedError(
                f"user {name}: nginx -t alone would give it {place.path}, which the workers that "
                "run cannot use from then on, even if the change is taken back",
                hint="change user by hand, with a restart",
            )
        raise RefusedError(
            f"{place.said}: nginx would make {name} the owner of what is there, with every right, "
            "and no rollback gives it back",
            hint=f"name a directory that is not there yet, or one that is {name}'s already (u+rwx)",
        )


def _user(tree: ConfTree, subject: ManagedNginx) -> tuple[int | None, str]:
    """Number and name of the workers' user.

    Source: ngx_core_module_init_conf(): the build's ``--user``, which is nobody by default.
    """
    command = subject.test_command
    given = _GIVEN_USER.search(command[-1]) if "-g" in command else None
    lines = [line for line in tree.main.all("user") if line.args]
    built = next((f for f in subject.build.flags if f.startswith("--user=")), "--user=nobody")
    name = given[1] if given else lines[-1].value if lines else built.partition("=")[2]
    try:
        return pwd.getpwnam(name).pw_uid, name
    except KeyError:
        return None, name


def _places(tree: ConfTree, subject: ManagedNginx) -> Iterator[_Place]:
    """The directories of all caches and for all temporary files, links resolved."""
    for line in tree.main.walk():
        if line.name in _NAMES and line.args and (path := tree.full_path(line.value)) is not None:
            said = f"{line.file}:{line.line}: {line.name} {line.value}"
            yield _Place(os.path.realpath(path), said)
    blocks = [one.block for one in http_blocks(tree) if one.block is not None]
    for name in _TEMPORARY if blocks else ():
        if not any(block.all(f"{name}_temp_path") for block in blocks):
            option = f"--http-{name.replace('_', '-')}-temp-path="
            built = next((f for f in subject.build.flags if f.startswith(option)), "")
            path = built.removeprefix(option) or f"{name}_temp"
            path = posixpath.join(subject.prefix, path)
            yield _Place(os.path.realpath(path), f"{name}_temp_path {path}")
