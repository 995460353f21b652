"""Which configuration an audit is about, and whether it is the one of this host's nginx."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nginx_tune.conf.tree import ConfTree, Reader, read_tree
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.host.climbing import absolute_path, climbed
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.nginx.binary import read_nginx

MOST_BYTES = 256 << 20
"""Of one configuration file: maps and lists of addresses make some larger than any other file."""

_NAME_ONE = "name a configuration file"


class Subject(NamedTuple):
    """A configuration file."""

    path: str
    prefix: str | None
    """What its relative paths stand on; null when not known."""
    is_hosts: bool
    """Whether this host's nginx runs on it or would start with it."""
    maps: tuple[tuple[str, str], ...] | None = None
    """Where the files are that an absolute name means, of a tree that lies elsewhere than on its
    host; null for the tree of this one."""
    given: str = ""
    """Lines that the command line of the nginx that reads it gives before it (``-g``)."""
    is_here: bool = False
    """Whether it is of a tree that an nginx of this host reads."""


class ConfigurationFiles(NamedTuple):
    """A host's files as a configuration is read from them, however much data stands in it."""

    host: Host

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        return self.host.read_bytes(path, limit_bytes=MOST_BYTES)

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""
        return self.host.list_dir(path)

    def climb(self, path: str) -> str:
        """An absolute path without ``..``; by its words alone where the host does not tell."""
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
    """The named configuration, else the running master's, else the installed nginx's.

    Errors: UsageError when none is named and the host has none; UndecidedError when the running
            nginx lives in a container, whose files this process does not see.
    """
    meant = None if conf is None else absolute_path(place_of(conf, prefix))
    nginx, _ = read_nginx(host, binary=nginx_binary, pid=pid, conf_path=meant)
    own = _own_path(nginx)
    if conf is None and prefix is not None:
        conf = built_conf(nginx)
    if conf is None:
        if nginx.running is not None and nginx.running.other_mount_namespace:
            raise UndecidedError(
                f"the running nginx (process {nginx.running.pid}) sees other files: a container",
                hint=f"run nginx-tune inside it, or {_NAME_ONE}",
            )
        if pid is not None and not nginx.may_run:
            # A title says whatever its process likes: it chooses no file that root reads.
            raise UndecidedError(
                f"the configuration of process {pid} is not read by its title: "
                f"{next((one.reason for one in nginx.candidates if one.pid == pid), '')}",
                hint=_NAME_ONE,
            )
        if own is None:
            raise UsageError("no nginx found on this host", hint=_NAME_ONE)
        return Subject(own, own_prefix(nginx), True, is_here=True)
    path = place_of(conf, prefix)
    is_hosts = own is not None and _real(host, path) == _real(host, own)
    base = prefix or (own_prefix(nginx) if is_hosts else None)
    return Subject(path, base, is_hosts, is_here=is_hosts or is_of_host(host, path, nginx))


def read_subject(reader: Reader, subject: Subject, *, may_be_absent: bool = False) -> ConfTree:
    """The tree of a subject; names of files stay as they were given.

    Errors: UsageError when the main file is not there or cannot be read, unless it may be absent.
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
    """A named file: a relative name stands on the prefix where one is given, as nginx takes it.

    One that is not there but here, as a shell completes it, is meant from here.
    Source: ngx_process_options, which passes -c to ngx_conf_full_name.
    """
    if prefix is None or posixpath.isabs(conf):
        return conf
    below = posixpath.join(prefix, conf)
    return conf if Path(conf).exists() and not Path(below).exists() else below


def own_prefix(nginx: Nginx, *meant: str) -> str | None:
    """What relative paths stand on without a ``-p``: the built prefix, or the running master's.

    The master's holds for what it reads itself: of ``meant`` one must be its configuration, where
    any is named. Another file is read by an nginx that was started without that ``-p``.
    """
    running = nginx.running
    own = running.conf_path if running else None
    if meant and (own is None or os.path.realpath(own) not in map(os.path.realpath, meant)):
        return nginx.prefix
    return (running.prefix if running else None) or nginx.prefix


def given_to(nginx: Nginx, path: str) -> str:
    """What the running master's command line gives (``-g``), where it reads that file."""
    running = nginx.running
    if running is None or running.conf_path is None or not running.given:
        return ""
    is_own = os.path.realpath(running.conf_path) == os.path.realpath(path)
    return running.given if is_own else ""


def built_conf(nginx: Nginx) -> str:
    """What the program reads without ``-c``; a relative one stands on ``-p``.

    Source: auto/options, NGX_CONF_PATH.
    """
    option = "--conf-path="
    given = [flag.removeprefix(option) for flag in nginx.flags if flag.startswith(option)]
    return given[-1] if given and given[-1] else "conf/nginx.conf"


def _own_path(nginx: Nginx) -> str | None:
    return (nginx.running.conf_path if nginx.running else None) or nginx.conf_path


def is_of_host(host: Host, path: str, nginx: Nginx) -> bool:
    """Whether a file is of a tree that an nginx of this host reads: what it names is here.

    One that a master here runs on, or what the installed nginx reads by itself: its own file, and
    all in the directory of that.
    """
    running = (
        [(nginx.running.conf_path, nginx.running.other_mount_namespace)] if nginx.running else []
    )
    running += [(one.conf_path, one.other_mount_namespace) for one in nginx.instances]
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
