"""Where the load enters a configuration: a listener, a root, a URL without a file; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.conf.directive import Block, Directive
from nginx_tune.conf.scopes import Scope, scopes, servers
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.experiment import Protocol
from nginx_tune.documents.loadplan import Target
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.target import (
    Spoken,
    can_load,
    last_choice,
    spoken_at,
    spoken_plainly,
    target_of,
    uri_of,
    url_prefix,
    why_not_asked,
    written_files,
)
from nginx_tune.nginx.lab.refused import is_own_stream

_INDEX = "index.html"


class EntryPoint(NamedTuple):
    """Where the load enters a configuration."""

    target: Target
    server: Directive
    root: str | None
    """Directory on disk behind ``url_prefix``; none where no server serves files."""
    url_prefix: str
    index_file: str
    """The file that stands for a directory."""
    memory_url: str | None
    """A URL answered by ``return 200`` or ``204``, that is without a file."""
    error_log: str | None
    """The main context's error log; null for the build's default."""
    written: list[str]
    """Files and directories that the configuration writes."""
    spoken: Spoken = Spoken()


class FilePlace(NamedTuple):
    """A directory whose files a server serves, by URLs that are known."""

    target: Target
    server: Directive
    root: str
    url_prefix: str
    index_file: str
    lacks: bool
    """Whether its server speaks less than is wanted."""


def file_places(tree: ConfTree, *, protocols: Sequence[Protocol] = ()) -> list[FilePlace]:
    """In the order of choice: a server that speaks all of ``protocols``, a port, one without TLS.

    Of equals the first goes first.
    """
    found = []
    targets: dict[Directive, Target | None] = {}
    for served in filter(can_load, served_paths(tree)):
        server = served.scope.server
        if server not in targets:
            targets[server] = target_of(tree, server)
        target = targets[server]
        if target is not None:
            found.append(
                FilePlace(
                    target,
                    server,
                    served.path,
                    url_prefix(served),
                    _index(served.scope),
                    _lacks(tree, server, protocols),
                )
            )
    return sorted(found, key=lambda place: (place.lacks, *last_choice(place.target)[:2]))


def plan_entry(
    tree: ConfTree,
    place: FilePlace | None,
    *,
    default_error_log: str | None,
    protocols: Sequence[Protocol] = (),
    server: Directive | None = None,
) -> EntryPoint:
    """The entry at files, or without any: at a server that can be asked, else at the first.

    Of these one that speaks all of ``protocols`` goes before those that do not.
    Errors: UndecidedError when none can be asked.
    """
    if place is None:
        targets = [(target_of(tree, one), one) for _, one in servers(tree)]
        asked = [(target, one) for target, one in targets if target is not None]
        if not asked:
            raise UndecidedError(
                f"{tree.path}: no server with a plain-HTTP listener or one with TLS"
                f"{_why_none(tree)}",
                hint="listen on an IP address or a unix socket, http2 only beside ssl",
            )
        target, chosen = min(
            asked, key=lambda item: (_lacks(tree, item[1], protocols), item[1] is not server)
        )
        root, prefix, index = None, "", _INDEX
    else:
        target, chosen, index = place.target, place.server, place.index_file
        root, prefix = place.root, place.url_prefix
    return EntryPoint(
        target=target,
        server=chosen,
        root=root,
        url_prefix=prefix,
        index_file=index,
        memory_url=_memory_url(tree, chosen),
        error_log=_error_log(tree, default_error_log),
        written=written_files(tree),
        spoken=spoken_at(tree, chosen),
    )


def _why_none(tree: ConfTree) -> str:
    """That there are listeners, and no host is known that one of the servers takes."""
    found = [one for _, one in servers(tree) if spoken_plainly(tree, one)]
    return f" can be asked: {why_not_asked(tree, found[0])}" if found else ""


def _lacks(tree: ConfTree, server: Directive, protocols: Sequence[Protocol]) -> bool:
    spoken = spoken_at(tree, server) if protocols else Spoken()
    return any(spoken.at(one) is None for one in protocols)


def _index(scope: Scope) -> str:
    names = scope.effective("index")
    plain = [name for name in (names.args if names else ()) if "$" not in name and "/" not in name]
    return plain[0] if plain else _INDEX


_CONDITIONS = ("if", "limit_except", "deny", "auth_basic", "auth_request", "auth_jwt", "rewrite")
"""What may have other clients answered than those that ask here."""


def _memory_url(tree: ConfTree, server: Directive) -> str | None:
    """The first that answers whoever asks, else the first that may: nginx is asked before a load.

    ``internal`` answers no client at all, nor does a location of a server that itself returns.
    """
    may = None
    for scope in scopes(tree):
        answer = scope.sets("return")
        if scope.kind != "location" or scope.server is not server or answer is None:
            continue
        uri = uri_of(scope)
        if not uri or answer.args[:1] not in (("200",), ("204",)):
            continue
        if scope.effective("internal") or (server.block or Block([])).first("return"):
            continue
        if not any(scope.effective(name) for name in _CONDITIONS):
            return uri
        may = may or uri
    return may


def _error_log(tree: ConfTree, default: str | None) -> str | None:
    names = [line.value for line in tree.main.all("error_log")]
    # Of several that take the same lines a device keeps none.
    own = next((name for name in names if not name.startswith("/dev/")), names[0] if names else "")
    name = own or default
    if name is None or name == "stderr" or name.startswith(("syslog:", "memory:")):
        return None
    full = tree.full_path(name)
    return None if full is None or is_own_stream(full) else full
