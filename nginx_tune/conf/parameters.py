"""The words that directives know, and of which releases each is.

``directive-parameters.tsv`` is read out of the source of every release (``tools/read-releases``):
what ngx_http_core_listen, ngx_http_upstream_server, ngx_http_file_cache_set_slot and their like
compare arguments with, and the words of enumerations and bit masks. A test tries them on the
versions that are at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from nginx_tune.conf.known_directives import (
    FIRST_RELEASE,
    Span,
    Version,
    is_within,
    parse_span,
    read_table,
    rows_of,
)
from nginx_tune.conf.known_directives import seen_versions as _seen_versions

_CACHE_PATHS = tuple(f"{one}_cache_path" for one in ("proxy", "fastcgi", "uwsgi", "scgi"))
COMMERCIAL: Mapping[str, frozenset[str]] = {
    "listen": frozenset({"http3"}),
    "server": frozenset({"route=", "drain", "slow_start=", "id=", "sid="}),
    "limit_req_zone": frozenset({"sync"}),
    "limit_conn_zone": frozenset({"sync"}),
    **dict.fromkeys(
        _CACHE_PATHS,
        frozenset({"purger=", "purger_files=", "purger_sleep=", "purger_threshold="}),
    ),
}
"""Words that only the commercial nginx and forks have, or had before it came to all."""
_WITH_OR_WITHOUT_VALUE = frozenset({"gzip", "threads"})


class Words(NamedTuple):
    """What one module's directive knows."""

    module: str
    start: int
    """The first argument that is one of the words."""
    is_closed: bool
    """Whether nginx refuses any other word there."""
    spans: Mapping[str, tuple[Span, ...]]
    """By word (``backlog=`` where a value follows): the releases with it."""

    def of(self, argument: str) -> tuple[Span, ...] | None:
        """The releases that know an argument; null where none does."""
        name, equals, _ = argument.partition("=")
        if equals and name in _WITH_OR_WITHOUT_VALUE:
            return self.spans.get(name)
        # Source: ngx_conf_set_enum_slot and its like compare without regard to case.
        return self.spans.get(name + equals if self.is_closed else (name + equals).lower())


class ArgumentFault(NamedTuple):
    """What is wrong with an argument."""

    since: Version = ()
    """The release it came with; empty where it is not a matter of that."""
    gone: Version | None = None
    """The first release without it."""

    @property
    def is_unknown(self) -> bool:
        """Whether no release knows it."""
        return not self.since and self.gone is None


@lru_cache(maxsize=4096)
def words_of(directive: str, context: str) -> tuple[Words, ...]:
    """What the modules that have a directive in a context know as its words."""
    modules = {row.module for row in rows_of(directive) if row.may_stand(context)}
    return tuple(one for one in _table().get(directive, ()) if one.module in modules)


def judge(directive: str, words: Words, argument: str, version: Version) -> ArgumentFault | None:
    """Why a version refuses an argument; null where it takes it or that cannot be told."""
    spans = words.of(argument)
    name, equals, _ = argument.partition("=")
    if name + equals in COMMERCIAL.get(directive, ()):
        return None
    if spans is None:
        return ArgumentFault() if words.is_closed else None
    if version < FIRST_RELEASE or any(is_within(version, span) for span in spans):
        return None
    if version < spans[0].since:
        return ArgumentFault(since=spans[0].since)
    return ArgumentFault(gone=next(one.gone for one in reversed(spans) if one.since <= version))


def seen_versions() -> list[Version]:
    """The versions that an unknown one is taken to be among."""
    return [tuple(map(int, one.split("."))) for one in _seen_versions()]


@lru_cache(maxsize=1)
def _table() -> Mapping[str, tuple[Words, ...]]:
    found: dict[tuple[str, str, int, bool], dict[str, list[Span]]] = {}
    for line in read_table("directive-parameters.tsv").splitlines():
        if not line.startswith("#"):
            name, module, start, kind, word, since, gone = line.split("\t")
            is_closed = kind == "closed"
            key = name, module, int(start), is_closed
            known = found.setdefault(key, {})
            known.setdefault(word if is_closed else word.lower(), []).append(
                parse_span(since, gone)
            )
    table: dict[str, tuple[Words, ...]] = {}
    for (name, module, at, is_closed), words in found.items():
        spans = {word: tuple(sorted(ranges)) for word, ranges in words.items()}
        table[name] = (*table.get(name, ()), Words(module, at, is_closed, spans))
    return table
