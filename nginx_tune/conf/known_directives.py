"""Known directives, by version: their contexts and numbers of arguments.

``directives.tsv`` is read from the command tables of real nginx executables and their modules
(``tools/read-directives``); changes between releases are read from the source
(``tools/read-releases``); ``directives-other.txt`` lists further names. A directive without a row
is unknown, which is not a fault: a module may define it.

Source: ngx_conf_file.c, ngx_conf_handler: nginx looks for a directive of that name that is allowed
in the context, and checks the number of arguments against that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

Version = tuple[int, ...]

MOST_ARGUMENTS = 7
"""Maximum number of arguments of a directive. Source: NGX_CONF_MAX_ARGS is 8, counting the name."""


_FOREIGN = re.compile(
    r"auth_jwt|auth_pam|auth_spnego|brotli|cache_purge|dav_ext|echo|eval|fancyindex|geoip2|headers_more"
    r"|hmac_secure|lua|memc_|modsecurity|push_stream|set_misc|srcache|subs_filter|uploadprogress"
    r"|upstream_fair|xss|zstd|nchan|ndk|rtmp|header_count"
)
"""Third-party modules in the table; header_count is Debian's max_headers, for releases before nginx
had its own."""


FIRST_RELEASE: Version = (1, 4, 0)
"""The oldest release in the tables read from the source."""


class VersionSpan(NamedTuple):
    """The releases from ``since`` up to, but not including, ``gone``."""

    since: Version
    """First release; empty if the span begins with or before the oldest known release."""
    gone: Version
    """First release after the span; empty if the span has not ended."""


def is_within(version: Version, span: VersionSpan) -> bool:
    """True if a version is in the span."""
    return version >= span.since and (not span.gone or version < span.gone)


def parse_span(since: str, gone: str) -> VersionSpan:
    """A span from two columns of a table."""
    return VersionSpan(_version(since), _version(gone))


def is_foreign(module: str) -> bool:
    """True for a module that the authors of nginx did not write."""
    return _FOREIGN.search(module) is not None


class DirectiveRow(NamedTuple):
    """One module's directive in some versions."""

    name: str
    module: str
    contexts: frozenset[str]
    """Names such as ``http``, ``location-if`` and ``stream-server``; ``any`` for everywhere."""
    arguments: str
    """Accepted numbers, ``flag``, ``1+``, ``2+`` or ``any``, separated by commas."""
    is_block: bool
    first: Version
    """The first version in which it was seen."""
    last: Version
    """The last version in which it was seen."""
    absent_to: Version | None
    """The newest known version before ``first`` whose module lacks the directive."""
    absent_from: Version | None
    """The oldest known version after ``last`` whose module lacks the directive."""

    @property
    def is_own(self) -> bool:
        """True for a module of nginx, false for a third-party one."""
        return not is_foreign(self.module)

    def may_stand(self, context: str) -> bool:
        """True if the directive is allowed in a context."""
        return "any" in self.contexts or context in self.contexts

    def takes(self, count: int) -> bool:
        """True if that many arguments are valid."""
        words = self.arguments.split(",")
        if "any" in words:
            return True
        if "flag" in words:
            return count == 1
        if "1+" in words:
            return count >= 1
        if "2+" in words:
            return count >= 2  # noqa: PLR2004  # as its name says
        return count <= MOST_ARGUMENTS and str(count) in words

    def is_surely_absent(self, version: Version) -> bool:
        """True if the directive is certainly missing in ``version``.

        Either nginx's history has it in other releases only, or ``version`` lies on the far side of
        a build that was seen without it.
        """
        if self.is_own and is_outside_history(self.name, version):
            return True
        return (self.absent_to is not None and version <= self.absent_to) or (
            self.absent_from is not None and version >= self.absent_from
        )

    def as_in(self, version: Version) -> DirectiveRow:
        """The row with the contexts and arguments of that release."""
        if not self.is_own or version < FIRST_RELEASE:
            return self
        for form, span in _forms().get((self.name, self.module), ()):
            if is_within(version, span):
                contexts, arguments = form
                return self._replace(
                    contexts=frozenset(contexts.split(",")),
                    arguments=arguments.removesuffix("{"),
                    is_block=arguments.endswith("{"),
                )
        return self


def rows_of(name: str) -> tuple[DirectiveRow, ...]:
    """The rows of a directive."""
    return _parsed(name)


@lru_cache(maxsize=4096)
def is_known(name: str) -> bool:
    """True if nginx, a fork or a known module has the name.

    A name that matches only a pattern of the list, but is close to a name in the table, counts as
    misspelt.
    """
    if name in _table().lines or is_named(name):
        return True
    return is_listed(name) and nearest(name, cutoff=_SLIP) is None


def is_outside_history(name: str, version: Version) -> bool:
    """True if the source of this release of nginx has no directive of that name."""
    since, gone = history_of(name)
    return version < since or (gone is not None and version >= gone)


@lru_cache(maxsize=4096)
def history_of(name: str) -> tuple[Version, Version | None]:
    """The release that brought a directive (empty: 1.4.0 or before) and the one that removed it."""
    since, gone = _history().get(name, ("", ""))
    return _version(since), _version(gone) or None


@lru_cache(maxsize=1)
def known_modules() -> frozenset[str]:
    """The modules of the table, as nginx names them."""
    return frozenset(line.split("\t", 2)[1] for lines in _table().lines.values() for line in lines)


@lru_cache(maxsize=4096)
def lacks_a_version(name: str) -> bool:
    """True if some version of the table certainly has no directive of that name."""
    rows = rows_of(name)
    return bool(rows) and any(
        all(row.is_surely_absent(_version(version)) for row in rows) for version in seen_versions()
    )


def newest_version() -> Version:
    """The newest release whose source the tables were read from."""
    _, _, words = read_table("directive-history.tsv").partition(" and ")
    return max(*map(_version, seen_versions()), _version(words.partition(",")[0]))


_WRITTEN_VERSION = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,4}){1,2}")


def version_fault(text: str) -> str:
    """The reason why a version cannot be used to judge a configuration; empty if it can.

    Texts that are not versions, versions older than the tables and higher major numbers are
    refused. Other versions newer than the tables can be used: their known directives are judged.
    """
    if _WRITTEN_VERSION.fullmatch(text) is None:
        return f"{text}: give a version such as 1.26.3"
    numbers, newest = _version(text), newest_version()
    if numbers >= FIRST_RELEASE[: len(numbers)] and numbers[0] <= newest[0]:
        return ""
    first, last = (".".join(map(str, one)) for one in (FIRST_RELEASE, newest))
    return f"{text}: the known releases are {first} to {last}"


def seen_versions() -> list[str]:
    """The nginx versions that the table was read from, oldest first."""
    return _table().versions


_SLIP = 0.91
"""Minimum difflib ratio to a name in the table from which a name counts as misspelt."""


def nearest(name: str, cutoff: float = 0.8) -> str | None:
    """The known name closest to ``name``; None if no known name is close."""
    from difflib import get_close_matches  # noqa: PLC0415  # only for a name that is wrong

    found = get_close_matches(name, _table().lines, n=1, cutoff=cutoff)
    return found[0] if found else None


def slip_of(name: str) -> str | None:
    """The known name that differs by one typing error (two in a long name), or None."""
    from difflib import get_close_matches  # noqa: PLC0415  # only for a name that is wrong

    most = 1 if len(name) < _LONG else 2
    found = get_close_matches(name, _table().lines, n=3, cutoff=0.8)
    return next((one for one in found if _keystrokes(name, one) <= most), None)


_LONG = 12


def _keystrokes(one: str, other: str) -> int:
    """The number of typing errors between two names: letters added, lost, changed or swapped.

    Source: optimal string alignment distance.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            least = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                least = min(least, older[j - 2] + 1)
            row.append(least)
    return row[-1]


def read_table(name: str) -> str:
    """The text of one of the package's tables."""
    return Path(__file__).with_name(name).read_text(encoding="ascii")


class _Table(NamedTuple):
    lines: dict[str, list[str]]
    versions: list[str]


@lru_cache(maxsize=1)
def _table() -> _Table:
    text = read_table("directives.tsv")
    head, *rest = text.splitlines()
    versions = head.partition(" of nginx ")[2].split(" and ")[0].split(", ")
    lines: dict[str, list[str]] = {}
    for line in rest:
        if not line.startswith("#"):
            lines.setdefault(line.partition("\t")[0], []).append(line)
    return _Table(lines, versions)


@lru_cache(maxsize=1)
def _history() -> dict[str, tuple[str, str]]:
    """The releases (1.4.0 to 1.31.4) that added and removed each directive, or empty texts."""
    lines = read_table("directive-history.tsv").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {name: (since, gone) for name, since, gone in rows}


@lru_cache(maxsize=1)
def _forms() -> dict[tuple[str, str], list[tuple[tuple[str, str], VersionSpan]]]:
    """Contexts and arguments of each form of a directive, with its releases."""
    found: dict[tuple[str, str], list[tuple[tuple[str, str], VersionSpan]]] = {}
    for line in read_table("directive-forms.tsv").splitlines():
        if not line.startswith("#"):
            name, module, contexts, arguments, since, gone = line.split("\t")
            pair = (contexts, arguments), parse_span(since, gone)
            found.setdefault((name, module), []).append(pair)
    return found


@lru_cache(maxsize=1)
def _listed() -> tuple[frozenset[str], tuple[str, ...]]:
    """The names in the hand-kept list, and its patterns with a star."""
    text = read_table("directives-other.txt")
    words: set[str] = set()
    for line in text.splitlines():
        if not line.startswith("#"):
            words.update(line.partition(": ")[2].split())
    patterns = {word for word in words if "*" in word}
    return frozenset(words - patterns), tuple(sorted(patterns))


def is_named(name: str) -> bool:
    """True if the hand-kept list has exactly this name, so a third-party module or fork has it."""
    return name in _listed()[0]


@lru_cache(maxsize=4096)
def is_listed(name: str) -> bool:
    """True if the hand-kept list has the name or a pattern for it, as for forks and modules."""
    names, patterns = _listed()
    return name in names or any(fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache(maxsize=4096)
def _parsed(name: str) -> tuple[DirectiveRow, ...]:
    return tuple(_rows(_table().lines.get(name, ())))


def _rows(lines: Iterable[str]) -> Iterator[DirectiveRow]:
    for line in lines:
        name, module, contexts, arguments, first, last, absent_to, absent_from = line.split("\t")
        yield DirectiveRow(
            name,
            module,
            frozenset(contexts.split(",")),
            arguments.removesuffix("{"),
            arguments.endswith("{"),
            _version(first),
            _version(last),
            _version(absent_to) or None,
            _version(absent_from) or None,
        )


def _version(text: str) -> Version:
    return tuple(map(int, text.split("."))) if text else ()
