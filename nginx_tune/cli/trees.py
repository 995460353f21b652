"""Configurations that a command line names, or that the host has."""

from __future__ import annotations

import os

from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import UsageError
from nginx_tune.host.door import Host
from nginx_tune.measure.subject import ConfigurationFiles


def read_configuration(host: Host, path: str, prefix: str | None) -> ConfTree:
    """The tree below a file that must be there."""
    full = os.path.abspath(path)  # noqa: PTH100  # links stay: relative includes stand on them
    if os.path.exists(full) and not os.path.isfile(full):  # noqa: PTH110, PTH113
        raise UsageError(
            f"{path}: no regular file", hint="save the configuration in a file: it is read again"
        )
    if not os.path.isfile(full):  # noqa: PTH113
        raise UsageError(f"{path}: no such configuration file")
    return read_tree(full, ConfigurationFiles(host), prefix=prefix)


def host_configuration(nginx: Nginx) -> str:
    """The configuration of the running master, else of the installed nginx."""
    running = nginx.running
    path = (running.conf_path if running else None) or nginx.conf_path
    if path is None:
        raise UsageError("the host's nginx has no configuration", hint="name one with --against")
    return path
