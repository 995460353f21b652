"""Configurations that a command line names, or that the host has."""

from __future__ import annotations

import os
from collections.abc import Iterable

from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import UsageError
from nginx_tune.host.climbing import absolute_path
from nginx_tune.host.door import Host
from nginx_tune.subject.subject import ConfigurationFiles, place_of
from nginx_tune.terminal.output import refuse_results


def read_configuration(
    host: Host,
    path: str,
    prefix: str | None,
    *,
    default_prefix: str | None = None,
    given: str = "",
) -> ConfTree:
    """The tree below a file that must be there; its names are absolute.

    ``prefix`` is what ``-p`` says, ``default_prefix`` the one without it, ``given`` what
    ``-g`` does. Errors: UsageError also where a result of this call would stand in the tree.
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
    tree = read_tree(full, ConfigurationFiles(host), prefix=base, given=given)
    refuse_results((tree.path, *tree.files), tree.asked)
    return tree


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
