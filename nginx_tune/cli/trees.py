"""Configurations that a command line names, or that the host has."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable

import click

from nginx_tune.conf.directive import as_utf8
from nginx_tune.conf.tree import STOCK_FILES, ConfTree, Maps, read_tree
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import UsageError
from nginx_tune.host.climbing import absolute_path
from nginx_tune.host.door import Host
from nginx_tune.nginx.elsewhere import files_of, includes_away, with_own_directory
from nginx_tune.nginx.subject import is_of_host, place_of
from nginx_tune.report.terminal.output import refuse_results
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.text import plain

_SHOWN = 3
"""Includes of a tree; the rest is counted."""


def read_configuration(
    host: Host,
    path: str,
    prefix: str | None,
    *,
    default_prefix: str | None = None,
    given: str = "",
    nginx: Nginx | None = None,
    is_recorded: bool = False,
) -> ConfTree:
    """The tree below a file that must be there; its names are absolute.

    ``prefix`` is what ``-p`` says, ``default_prefix`` the one without it, ``given`` what
    ``-g`` does. ``nginx`` is the host's: it is said which absolute includes of another tree are
    read on this machine. None are where ``nginx`` is recorded, of another machine.
    Errors: UsageError also where a result of this call would stand in the tree.
    """
    full = full_path(path, prefix)
    if os.path.exists(full) and not os.path.isfile(full):  # noqa: PTH110, PTH113
        raise UsageError(
            f"{path}: no regular file", hint="save the configuration in a file: it is read again"
        )
    try:
        os.stat(full)  # noqa: PTH116
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    base = absolute_path(prefix) if prefix else default_prefix
    is_away = nginx is not None and not is_of_host(host, full, nginx)
    maps: Maps | None = None
    if is_away and is_recorded:
        maps = with_own_directory(full, _of_host(nginx, full))
    tree = read_tree(full, files_of(host, maps), prefix=base, maps=maps, given=given)
    refuse_results((tree.path, *tree.files), tree.asked)
    context = click.get_current_context(silent=True)
    if is_away and context is not None and not context.obj["quiet"]:
        _tell_includes(tree, path)
    return tree


def _of_host(nginx: Nginx | None, full: str) -> Maps:
    """The directory of the main file, for the one of the configuration of the recorded host."""
    own = posixpath.dirname(host_configuration(nginx)) if nginx and nginx.conf_path else ""
    return ((own, posixpath.dirname(full)),) if own.startswith("/") and own != "/" else ()


def _tell_includes(tree: ConfTree, path: str) -> None:
    """Say which includes of a tree that is not this host's were not read, or were read here."""
    if tree.maps is not None:
        lost = (one for one in tree.missing if posixpath.basename(one.path) not in STOCK_FILES)
        text, names = "not here, and so not considered", [one.path for one in lost]
        hint = "decide where it lies as its host has it"
    else:
        text, names = "read on this machine, and none where nothing matches", includes_away(tree)
        hint = "it is not the configuration of this host's nginx"
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        shown = plain(", ".join(names[:_SHOWN]))
        say(f"{plain(as_utf8(path))}: includes {text}: {shown}{more}", hint)


def link_targets(paths: Iterable[str]) -> dict[str, str]:
    """The files behind those of the names that are links: ``patch`` and ``git apply`` follow none.

    As sites-enabled has them on Debian.
    """
    return {path: os.path.realpath(path) for path in paths if os.path.islink(path)}  # noqa: PTH114


def full_path(path: str, prefix: str | None) -> str:
    """Where a named configuration lies."""
    return absolute_path(place_of(path, prefix))


def host_configuration(nginx: Nginx) -> str:
    """The configuration of the running master, else of the installed nginx."""
    running = nginx.running
    path = (running.conf_path if running else None) or nginx.conf_path
    if path is None:
        raise UsageError("the host's nginx has no configuration", hint="name one with --against")
    return path
