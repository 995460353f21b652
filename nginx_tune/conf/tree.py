"""A configuration as nginx would read it: the main file and everything it includes.

The caller passes a reader (a Host, a dictionary in a test), so that the configuration of any
machine can be read. Every file is read and parsed once, however often it is included. A file that
cannot be read or parsed is listed with line and reason; the others still give a tree.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, Protocol

from nginx_tune.conf.directive import Block, Directive, Source, as_utf8
from nginx_tune.conf.include_patterns import TooWideError, expand, is_pattern
from nginx_tune.conf.parser import (
    MOST_DIRECTIVES,
    ParsedText,
    ParseFault,
    parse_block,
    parse_source,
)
from nginx_tune.conf.values import is_template_line
from nginx_tune.documents.base import MissingInclude
from nginx_tune.documents.findings import Unparsed
from nginx_tune.errors import NginxTuneError

DEEPEST_INCLUDE = 100
"""The longest chain of includes; beyond it nginx runs out of descriptors or stack."""


_SECTIONS = ("events", "http", "mail", "stream")
"""Blocks of a main file; nginx requires events."""
_INSIDE_HTTP = ("server", "location", "upstream", "map", "listen", "server_name")
"""Directives that are never at the top level of a main file."""


STOCK_FILES = frozenset(
    {
        "mime.types", "fastcgi_params", "fastcgi.conf", "uwsgi_params", "scgi_params",
        "koi-utf", "koi-win", "win-utf",
    }
)  # fmt: skip
"""Files that come with nginx, with only types, parameters and character sets."""


COMMAND_LINE = "-g of the running master"
"""The file name of directives from ``-g``. Source: ngx_conf_param."""


_ABSENT = ("No such file", "Not a directory")
"""The system's messages for a file that does not exist."""


Maps = Sequence[tuple[str, str]]
"""Prefixes of absolute paths, and the directories that replace them."""


class ParsedFile(NamedTuple):
    """One file of a tree, its includes unresolved."""

    source: Source
    block: Block


class Reader(Protocol):
    """The part of a Host that is needed to read a tree."""

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory."""


@dataclass(frozen=True)
class ConfTree:
    """A configuration read with its includes."""

    path: str
    main: Block
    prefix: str | None = None
    """The directory of relative paths (``nginx -p``, ``--prefix``); None if not known."""
    files: tuple[str, ...] = ()
    """Files that were read and parsed, in order."""
    unparsed: tuple[Unparsed, ...] = ()
    parsed: tuple[ParsedFile, ...] = ()
    """The parsed files with their contents."""
    missing: tuple[MissingInclude, ...] = ()
    """Include lines whose files are absent, in a tree that is read on another machine."""
    lost: tuple[Directive, ...] = ()
    """Includes with an unread file, except nginx's stock files and template placeholders."""

    maps: Maps | None = None
    """The directories that replace absolute prefixes; None if names apply unchanged."""
    given: str = ""
    """The text of ``-g``, whose directives come first in ``main`` and are in no file."""
    asked: tuple[str, ...] = ()
    """The names in include lines, each once, relative to the main file's directory. Patterns are
    not expanded."""
    climb: Callable[[str], str] = field(default=posixpath.normpath, repr=False, compare=False)
    """Resolves ``..`` in an absolute path. The kernel follows links first; if the reader does not
    know the links, only the text is used."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all directives, for a cheap test of absence."""
        return frozenset(self.main.by_name)

    @cached_property
    def _values(self) -> dict[str, frozenset[str]]:
        return {}

    def values_of(self, name: str) -> frozenset[str]:
        """The first arguments of all directives of a name, in lower case."""
        if name not in self._values:
            lines = self.main.within(name)
            self._values[name] = frozenset(line.value.lower() for line in lines)
        return self._values[name]

    @cached_property
    def absolute_includes(self) -> tuple[str, ...]:
        """The absolute names in include lines as written, each once."""
        lines = (line for file in self.parsed for line in lines_in(file.block))
        names = (line.value for line in lines if line.name == "include" and len(line.args) == 1)
        return tuple(dict.fromkeys(name for name in names if posixpath.isabs(name)))

    @property
    def complete(self) -> bool:
        """True if the whole configuration was read."""
        return not self.unparsed and not self.missing and not self.is_part

    @property
    def is_whole(self) -> bool:
        """True if every file was read, except perhaps stock files such as mime.types."""
        return bool(self.parsed) and not self.lost and not self.is_part

    @property
    def is_template(self) -> bool:
        """True if template placeholders remain, so that only one of two branches may apply."""
        return any(is_template_line(directive.name) for directive in self.lost)

    @property
    def is_part(self) -> bool:
        """True for a file that a main file includes, such as a site or a snippet."""
        if self.main.all("http"):
            return False
        is_bare = bool(self.main.directives) and not any(map(self.main.all, _SECTIONS))
        return is_bare or any(map(self.main.all, _INSIDE_HTTP))

    def full_path(self, name: str) -> str | None:
        """The absolute path of an argument such as a root; None if the prefix is needed.

        For searching and comparing; reports keep the operator's spelling. Source:
        ngx_conf_full_name with conf_prefix = 0.
        """
        if not name.startswith("/") and self.prefix is None:
            return None
        full = self.opened_name(name)
        full = self.climb(full) if ".." in full.split("/") else posixpath.normpath(full)
        return full[1:] if full.startswith("//") else full  # normpath keeps two slashes

    def opened_name(self, name: str) -> str:
        """The absolute name with which nginx opens a file.

        nginx distinguishes open files by this name: two spellings of a path are two files. Source:
        ngx_conf_open_file.
        """
        return name if self.prefix is None else posixpath.join(self.prefix, name)


def read_tree(
    path: str,
    reader: Reader,
    *,
    prefix: str | None = None,
    maps: Maps | None = None,
    given: str = "",
) -> ConfTree:
    """The configuration with main file ``path``, after the directives of ``-g``.

    ``maps`` is None on the tree's own host: names apply unchanged, and a pattern without a match is
    empty, as in nginx. In a tree elsewhere (a checkout), absolute names are looked up only through
    ``maps``. Includes and patterns without a file are then listed in ``missing``, not as faults.
    Errors: none; files that could not be read or parsed, even the main file, are listed in
    ``unparsed``. Source: ngx_conf_include; a relative include starts at the main file's directory.
    """
    walk = _Reading(reader, posixpath.dirname(path), maps)
    main = walk.load(path)
    if main is not None:
        walk.follow(path, main)
        main = Block([*_given_lines(given), *main.directives]) if given else main
    return ConfTree(
        path=path,
        main=main or Block([]),
        prefix=prefix,
        files=tuple(walk.parsed),
        unparsed=tuple(walk.unparsed),
        parsed=tuple(ParsedFile(*item) for item in walk.sources.items()),
        missing=tuple(walk.missing),
        lost=tuple(dict.fromkeys(walk.lost)),
        maps=maps,
        given=given,
        asked=tuple(walk.asked),
        climb=getattr(reader, "climb", posixpath.normpath),
    )


def _given_lines(text: str) -> list[Directive]:
    """The directives of ``-g``; empty if they cannot be parsed, as process titles lose quotes."""
    try:
        return parse_block(Source(COMMAND_LINE, text)).directives
    except ParseFault:
        return []


def parse_text(text: str, *, file: str = "nginx.conf") -> ConfTree:
    """The tree of one text, without its includes."""
    return read_tree(file, _OneText(file, text))


@dataclass
class _OneText:
    file: str
    text: str

    def read_bytes(self, path: str) -> bytes:
        if path != self.file:
            raise NginxTuneError(f"{path}: not followed")
        return self.text.encode("utf-8", "surrogateescape")

    def list_dir(self, path: str) -> list[str]:
        return []


@dataclass
class _Reading:
    """The state of reading one tree."""

    reader: Reader
    directory: str
    maps: Maps | None = None
    parsed: dict[str, ParsedText] = field(default_factory=dict)
    sources: dict[Source, Block] = field(default_factory=dict)
    unparsed: list[Unparsed] = field(default_factory=list)
    missing: list[MissingInclude] = field(default_factory=list)
    lost: list[Directive] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    """The number of directives in each finished file and its includes."""
    failed: set[str] = field(default_factory=set)
    chain: list[str] = field(default_factory=list)
    listings: dict[str, list[str]] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    """Directories of patterns that this user may not list, and the system's error message."""
    asked: dict[str, None] = field(default_factory=dict)

    def load(self, path: str, place: Directive | None = None) -> Block | None:
        """The directives of a file; None if it cannot be read or parsed.

        A file that cannot be read is a fault of the line that includes it.
        """
        if path in self.parsed:
            return self.parsed[path].block
        if path in self.failed:
            return None
        try:
            data = self.reader.read_bytes(path)
        except NginxTuneError as error:
            reason = getattr(error, "reason", error.message)
            if place is None:
                self._fault(path, None, f"cannot read: {reason}")
            elif self.maps is not None and reason.startswith(_ABSENT):
                self._miss(place, path, getattr(error, "target", ""), reason)
            else:
                self._fault(
                    place.file,
                    place.line,
                    f"include {path}: cannot read: {reason}",
                    is_fifo=getattr(error, "is_fifo", False),
                )
            self.failed.add(path)
            return None
        source = Source.decode(path, data)
        try:
            found = parse_source(source)
        except ParseFault as fault:
            link = _stored_link(source.text)
            line = 1 if link else source.place(fault.offset)[0]
            self._fault(path, line, link or fault.reason)
            self.failed.add(path)
            return None
        self.parsed[path] = found
        self.sources[source] = found.block
        return found.block

    def follow(self, path: str, block: Block) -> None:
        """Attach the included files, depth first."""
        text = self.parsed[path]
        if "include" not in text.names and not any(map(is_template_line, text.names)):
            self.sizes[path] = text.size
            return
        self.chain.append(path)
        size = 0
        for directive in lines_in(block):
            size += 1
            if is_template_line(directive.name):
                self.lost.append(directive)
            if directive.name == "include" and len(directive.args) == 1 and not directive.block:
                directive.included, grown = self._include(directive, size)
                size += grown
        self.chain.pop()
        self.sizes[path] = size

    def _include(self, place: Directive, size: int) -> tuple[tuple[Block, ...], int]:
        blocks: list[Block] = []
        grown = 0
        for path in self._paths(place):
            if path in self.chain:
                self._fault(place.file, place.line, f"include {path}: the file includes itself")
                self.lost.append(place)
                continue
            if len(self.chain) == DEEPEST_INCLUDE:
                self._fault(
                    place.file, place.line, f"include {path}: includes are nested too deeply"
                )
                self.lost.append(place)
                continue
            block = self.load(path, place)
            if block is None:
                if posixpath.basename(path) not in STOCK_FILES:
                    self.lost.append(place)
                continue
            for directive in block.directives:
                directive.parent = directive.parent or place
            if path not in self.sizes:
                self.follow(path, block)
            if (
                size + grown + self.sizes[path] > MOST_DIRECTIVES
            ):  # each file may include the next one twice
                self._fault(place.file, place.line, f"include {path}: too many directives")
                self.lost.append(place)
                continue
            grown += self.sizes[path]
            blocks.append(block)
        return tuple(blocks), grown

    def _paths(self, place: Directive) -> list[str]:
        """The files that an include names; a directory that cannot be listed is a fault."""
        name = place.value
        pattern: str | None = posixpath.join(self.directory, name)
        if self.maps is not None and posixpath.isabs(name):
            pattern = mapped(name, self.maps)
        if pattern is None:
            self._miss(place, name)
            if posixpath.basename(name) not in STOCK_FILES:
                self.lost.append(place)
            return []
        self.asked[pattern] = None
        if not is_pattern(pattern):
            return [pattern]
        closed: set[str] = set()
        paths: list[str] = []
        reason = ""
        try:
            paths = expand(pattern, partial(self._names, closed=closed))
        except TooWideError:
            reason = "matches too many directories or names"
        if closed:
            reason = f"cannot list {min(closed)}: {self.closed[min(closed)]}"
        if reason:
            self._fault(place.file, place.line, f"include {pattern}: {reason}")
            self.lost.append(place)
        elif not paths and self.maps is not None:
            self._miss(place, pattern)
            self.lost.append(place)
        return paths

    def _names(self, directory: str, closed: set[str]) -> list[str]:
        if directory not in self.listings:
            try:
                self.listings[directory] = self.reader.list_dir(directory)
            except NginxTuneError as error:
                self.listings[directory] = []
                reason = getattr(error, "reason", "")
                if reason.startswith("Permission denied"):
                    self.closed[directory] = reason
        if directory in self.closed:
            closed.add(directory)
        return self.listings[directory]

    def _miss(self, place: Directive, path: str, target: str = "", reason: str = "") -> None:
        """Note an include whose file is not here; ``target`` is where its name leads, if known."""
        why = reason.partition(": ")[2] if target else "not here"
        self.missing.append(
            MissingInclude(
                file=as_utf8(place.file),
                line=place.line,
                reason=as_utf8(f"include {path}: {why}"),
                path=as_utf8(target or place.value),
            )
        )

    def _fault(self, file: str, line: int | None, reason: str, *, is_fifo: bool = False) -> None:
        self.unparsed.append(
            Unparsed(file=as_utf8(file), line=line, reason=as_utf8(reason), is_fifo=is_fifo)
        )


_LINK_TEXT = re.compile(r"[^\s;{}\"'#$]*/[^\s;{}\"'#$]+\s*")


def _stored_link(text: str) -> str:
    """The fault of a file that contains only the name of another file; empty for any other file.

    Git without ``core.symlinks``, as on Windows, and some archives store a link in this way.
    """
    if not _LINK_TEXT.fullmatch(text):
        return ""
    return (
        f"a link to {text.strip()} that was stored as text, as by git on Windows or in a zip: "
        "make it a link again, or put the file in its place"
    )


def mapped(path: str, maps: Maps) -> str | None:
    """The local path of an absolute path, by its longest mapped prefix; None if none is mapped."""
    full = "/" + posixpath.normpath(path).lstrip("/")
    known = [(old, new) for old, new in maps if full == old or full.startswith(f"{old}/")]
    if not known:
        return None
    old, new = max(known, key=lambda one: len(one[0]))
    return posixpath.join(new, full[len(old) :].lstrip("/")) or "."


def lines_in(block: Block) -> Iterator[Directive]:
    """Every directive of a file, outer before inner, with includes unresolved."""
    for directive in block.directives:
        yield directive
        if directive.block is not None:
            yield from lines_in(directive.block)
