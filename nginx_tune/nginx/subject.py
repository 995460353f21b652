"""The configuration that a command is about: its main file, the files around it, and its nginx.

Code and special files that a configuration names are checked before an nginx starts with it.
"""

import os
import posixpath
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nginx_tune.conf.tree import ConfTree, Maps, Reader, read_tree
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import ConfigurationError, UndecidedError, UsageError
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.paths import absolute_path, climbed
from nginx_tune.host.programs import is_vouched_for, why_not_run

MOST_BYTES = 256 << 20
"""Maximum size of a configuration file, in bytes; maps and lists of addresses make some large."""
_NAME_ONE = "name a configuration file"


class Subject(NamedTuple):
    """The configuration file that a command is about."""

    path: str
    prefix: str | None
    """The directory that relative paths start from; None if not known."""
    is_hosts: bool
    """True if this host's nginx runs with this file or would start with it."""
    maps: Maps | None = None
    """Pairs of directories: absolute names below the first lead to the second, in a tree that is
    not on its host. None for a tree of this host."""
    given: str = ""
    """Directives from nginx's command line (``-g``), which come before the file."""
    note: str = ""
    """The reason why this is not the configuration of the nginx that runs; empty if it is."""
    is_here: bool = False
    """True if the file is in a tree that an nginx of this host reads."""


class NoNginxError(UsageError):
    """No configuration is named, and this host has no nginx."""


class ConfigurationFiles(NamedTuple):
    """A reader of configuration files on a host, of up to 256 MiB each."""

    host: Host

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file."""
        return self.host.read_bytes(path, limit_bytes=MOST_BYTES)

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory."""
        return self.host.list_dir(path)

    def climb(self, path: str) -> str:
        """An absolute path without ``..``, resolved as text if the host cannot resolve it."""
        with suppress(HostReadError):
            return climbed(path, self.host.real_path)
        return posixpath.normpath(path)


def find_subject(
    host: Host,
    conf: str | None,
    *,
    prefix: str | None = None,
    nginx_binary: str | None = None,
    pid: int | None = None,
) -> Subject:
    """The named configuration, otherwise the running master's, otherwise the installed nginx's.

    Errors: UsageError if none is named and the host has none; UndecidedError if the running nginx
            is in a container, whose files this process does not see, and no other is installed.
    """
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415  # not for a file by its text

    meant = None if conf is None else absolute_path(place_of(conf, prefix))
    nginx, _ = read_nginx(host, binary=nginx_binary, pid=pid, conf_path=meant)
    own = _own_path(nginx)
    if conf is None and prefix is not None:
        conf = built_conf(nginx)
    if conf is None:
        if nginx.running is not None and nginx.running.other_mount_namespace:
            away = f"the running nginx (process {nginx.running.pid}) sees other files: a container"
            installed = None if pid else installed_conf(host, nginx_binary)
            if installed is None:
                raise UndecidedError(away, hint=f"run nginx-tune inside it, or {_NAME_ONE}")
            path, base = installed
            return Subject(path, base, True, is_here=True, note=f"{away}; {path} is read instead")
        if pid is not None and not nginx.may_run:
            # A process can set any title, so its title must not choose a file that root reads.
            reasons = (candidate.reason for candidate in nginx.candidates if candidate.pid == pid)
            raise UndecidedError(
                f"the configuration of process {pid} cannot be found from its title: "
                f"{next(reasons, '')}",
                hint=_NAME_ONE,
            )
        if own is None:
            raise NoNginxError("no nginx found on this host", hint=_NAME_ONE)
        return Subject(own, own_prefix(nginx), True, is_here=True)
    path = place_of(conf, prefix)
    is_hosts = own is not None and _real(host, path) == _real(host, own)
    base = prefix or (own_prefix(nginx) if is_hosts else None)
    return Subject(path, base, is_hosts, is_here=is_hosts or is_of_host(host, path, nginx))


def installed_conf(host: Host, nginx_binary: str | None = None) -> tuple[str, str | None] | None:
    """The configuration and the prefix of an nginx outside of containers; None without one."""
    from nginx_tune.nginx.binary import read_nginx  # noqa: PLC0415  # rarely

    nginx, _ = read_nginx(host, binary=nginx_binary, to_run=True)
    own = _own_path(nginx)
    return (own, own_prefix(nginx)) if own is not None and Path(own).is_file() else None


def read_subject(reader: Reader, subject: Subject, *, may_be_absent: bool = False) -> ConfTree:
    """The tree of a subject; file names stay as they are given.

    Errors: UsageError if the main file is missing or unreadable, unless it may be absent.
    """
    tree = read_tree(
        subject.path, reader, prefix=subject.prefix, maps=subject.maps, given=subject.given
    )
    if may_be_absent:
        return tree
    if not tree.files and tree.unparsed[0].line is None:
        raise UsageError(f"{subject.path}: {tree.unparsed[0].reason}")
    return tree


def place_of(conf: str, prefix: str | None) -> str:
    """The path of a named file; a relative name is below the prefix, as in nginx.

    If the file is not there but exists below the working directory, as when a shell completed the
    name, that file is taken.
    Source: ngx_process_options, which passes -c to ngx_conf_full_name.
    """
    if prefix is None or posixpath.isabs(conf):
        return conf
    below = posixpath.join(prefix, conf)
    return conf if Path(conf).exists() and not Path(below).exists() else below


def own_prefix(nginx: Nginx, *meant: str) -> str | None:
    """The base of relative paths without ``-p``: the running master's prefix, else the built one.

    ``meant`` are the files in question. If none of them is the master's own configuration, the
    built prefix is returned, since the master's ``-p`` is for its own file.
    """
    running = nginx.running
    own = running.conf_path if running else None
    if meant and (own is None or os.path.realpath(own) not in map(os.path.realpath, meant)):
        return nginx.prefix
    return (running.prefix if running else None) or nginx.prefix


def given_to(nginx: Nginx, path: str) -> str:
    """The ``-g`` directives of the running master, if it reads that file; otherwise empty."""
    running = nginx.running
    if running is None or running.conf_path is None or not running.given:
        return ""
    is_own = os.path.realpath(running.conf_path) == os.path.realpath(path)
    return running.given if is_own else ""


def built_conf(nginx: Nginx) -> str:
    """The file that the program reads without ``-c``, possibly relative to the prefix.

    Source: auto/options, NGX_CONF_PATH.
    """
    option = "--conf-path="
    given = [flag.removeprefix(option) for flag in nginx.flags if flag.startswith(option)]
    return given[-1] if given and given[-1] else "conf/nginx.conf"


def _own_path(nginx: Nginx) -> str | None:
    return (nginx.running.conf_path if nginx.running else None) or nginx.conf_path


def is_of_host(host: Host, path: str, nginx: Nginx) -> bool:
    """True if a file is in a tree that an nginx of this host reads, so that its paths are here.

    Such a file is the configuration of a master here, or is in the directory of the installed
    nginx's own file.
    """
    running = (
        [(nginx.running.conf_path, nginx.running.other_mount_namespace)] if nginx.running else []
    )
    running += [(found.conf_path, found.other_mount_namespace) for found in nginx.instances]
    real = _real(host, path)
    if any(own is not None and not away and real == _real(host, own) for own, away in running):
        return True
    if nginx.conf_path is None:
        return False
    directory = posixpath.dirname(_real(host, nginx.conf_path))
    return directory != "/" and real.startswith(f"{directory}/")


def _real(host: Host, path: str) -> str:
    try:
        return host.real_path(path)
    except HostReadError:
        return path


def refuse_foreign_code(binary: str, modules: Iterable[str]) -> None:
    """Check that only root can write nginx and the modules that ``load_module`` names.

    If the user vouches for the program (``--trust``), this covers its modules too.
    Errors: UndecidedError that names the first file that others can write.
    """
    if is_vouched_for(binary):
        return
    # nginx itself reports a missing file.
    for path in (binary, *filter(_is_there, modules)):
        why = why_not_run(path)
        if why:
            raise UndecidedError(
                "refusing to run nginx as root: " + (why if path in why else f"{path}: {why}"),
                hint="install it as root where only root may write, such as /opt; run this as "
                "its owner, or vouch for it with --nginx BIN --trust",
            )


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


_STREAM = re.compile("/dev/std(out|err)|(/dev|/proc/self)/fd/[12]")
_KINDS = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a block device"))


def is_own_stream(path: str) -> bool:
    """True for a path that leads to the standard output or error of the process that opens it."""
    return _STREAM.fullmatch(path) is not None


def refuse_special_files(paths: Iterable[str]) -> None:
    """Check that nginx would open no disk and no file that makes it hang.

    Standard streams are allowed: they are nginx's own, and images log to them.
    Errors: ConfigurationError that names the first such file.
    """
    for path in paths:
        if is_own_stream(path) or is_own_stream(_link(path)):
            continue
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116  # follows links
        except (OSError, ValueError):
            continue  # nginx itself reports a missing file
        for is_kind, kind in _KINDS:
            if is_kind(mode):
                raise ConfigurationError(
                    f"{path}: {kind}, not a file: nginx is not started with it",
                    hint="try it with a file in its place: --overlay, or another path",
                )


def _link(path: str) -> str:
    """The target of a symbolic link; empty if the file is not a link."""
    try:
        return os.readlink(path)  # noqa: PTH115
    except (OSError, ValueError):
        return ""
